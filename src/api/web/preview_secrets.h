// Keeps credentials of this server out of the requests that go to a guest: API tokens, JWTs of ours and route tokens,
// wherever and however a client spells them (any header and scheme, cookies, the query, WebSocket subprotocols, Basic
// and base64url encodings, percent signs). It looks for values, not for names. Single loop; lives for one request.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "async/task.h"
#include "http/server.h"
#include "sandbox/keys/keys.h"

namespace sandbar::api {

class PreviewSecrets {
 public:
  // Everything outlives it. `route` may have a token.
  PreviewSecrets(const sandbox::Keys* keys, std::string_view jwt_key, const store::PortRoute* route)
      : keys_(keys), jwt_key_(jwt_key), route_(route) {}

  // The fields that may pass: a field with a credential is left out, of a list of cookies or subprotocols its item.
  Task<std::vector<http::Header>> Headers(const http::HttpRequest* request);
  // The target without the parameters that have a credential in their name or value.
  Task<std::string> Target(std::string target);
  // Whether some part of the text is a credential. kTooLarge when it has too many words to look at.
  Task<bool> Carries(std::string text);

 private:
  Task<bool> AnyIs(std::vector<std::string> words);
  bool Is(const std::string& word) const;
  // The items of a list that may pass.
  Task<std::string> Items(std::string list, char separator);

  const sandbox::Keys* keys_;
  std::string_view jwt_key_;
  const store::PortRoute* route_;
  size_t looked_at_ = 0;
};

}  // namespace sandbar::api
