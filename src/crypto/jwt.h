// JSON Web Tokens in their compact form (RFC 7515): "header.claims.signature", each part in base64url. What the parts
// say is the caller's business, and so is the key. Pure function, any thread.
//
//   SignJwt(R"({"alg":"HS256","typ":"JWT"})", claims, [&](std::string_view text) { return HmacSha256(key, text); })
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace sandbar::crypto {

// `header` and `claims` are JSON. `sign` gets "header.claims" as it stands in the token and returns the bytes of the
// signature, made by the algorithm that the header names.
std::string SignJwt(std::string_view header, std::string_view claims,
                    const std::function<std::string(std::string_view text)>& sign);

}  // namespace sandbar::crypto
