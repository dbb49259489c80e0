// Answers a request of the daemon by a job: starts the job, and replies when it has ended. Single thread; does not
// wait. Both objects outlive the job.
//
//   AnswerByJob(&daemon, &jobs, tag, {.kind = JobKind::kConvert}, [&](JobFacts facts, JobGroup group) {
//     return FlattenJob::Start(std::move(facts), group, disk);
//   });
#pragma once

#include <cstdint>

#include "spawner/jobs/job.h"
#include "spawner/jobs/jobs.h"
#include "spawner/server/daemon_connection.h"

namespace sandbar::spawner {

// Replies at once when the job cannot start.
void AnswerByJob(DaemonConnection* daemon, Jobs* jobs, uint32_t tag, JobFacts facts, const Jobs::Make& make);

}  // namespace sandbar::spawner
