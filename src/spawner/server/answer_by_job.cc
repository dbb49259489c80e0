#include "spawner/server/answer_by_job.h"

#include <utility>

namespace sandbar::spawner {

void AnswerByJob(DaemonConnection* daemon, Jobs* jobs, uint32_t tag, JobFacts facts, const Jobs::Make& make) {
  auto answer = [daemon, owed = daemon->Owe(tag)](Job& ended, const Result<>& done) {
    daemon->ReplyTo(owed, done ? ended.answer() : Response(ToResponse(done.error())));
  };
  if (auto started = jobs->Start(std::move(facts), make, answer); !started) daemon->ReplyError(tag, started.error());
}

}  // namespace sandbar::spawner
