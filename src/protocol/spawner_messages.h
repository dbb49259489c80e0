// The messages between the daemon and the privileged spawner: requests (spawner_requests.h) and answers
// (spawner_answers.h) as packets. One SOCK_SEQPACKET unix connection (<data>/run/spawner.sock, 0600 for the daemon's
// uid, SO_PEERCRED checked), one packet per message, requests answered in order of completion by `tag`; fds come back
// beside the answer. Event messages have tag 0. The encoding is protocol/codec.h; every field is bounded before use on
// both sides. Functions without state, for any thread.
//
// The server may find a spawner of another build. It says hello with the newest version that it speaks, and with the
// next older one as long as the spawner answers kUnsupported; all spawners know these answers. The version of the hello
// that is accepted is used from then on. spawner_limits.h has the versions.
//
//   std::string packet = Encode(TaggedRequest{1, ListReq{}});
//   SB_TRY(TaggedResponse answer, DecodeResponse(received));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "protocol/spawner_answers.h"
#include "protocol/spawner_requests.h"

namespace sandbar::protocol {

struct TaggedRequest {
  uint32_t tag = 0;
  SpawnerRequest body;
};
struct TaggedResponse {
  uint32_t tag = 0;
  SpawnerResponse body;
};

std::string Encode(const TaggedRequest& request);
std::string Encode(const TaggedResponse& response);
Result<TaggedRequest> DecodeRequest(std::string_view packet);
Result<TaggedResponse> DecodeResponse(std::string_view packet);

}  // namespace sandbar::protocol
