// SHA-256 and what is made of it, over OpenSSL, in one place for the whole product. Pure functions, any thread.
//
//   Sha256Hex("")                                  // "e3b0c442…"
//   Hkdf(secret, "salt", "what the key is for", 32)
#pragma once

#include <string>
#include <string_view>

namespace sandbar::crypto {

std::string Sha256(std::string_view bytes);     // 32 bytes
std::string Sha256Hex(std::string_view bytes);  // 64 lower-case digits
// 20 bytes. For protocols that prescribe it and no security that rests on it: the WebSocket handshake.
std::string Sha1(std::string_view bytes);
std::string HmacSha256(std::string_view key, std::string_view text);
// RFC 5869 with SHA-256. An empty `salt` is the same as none.
std::string Hkdf(std::string_view secret, std::string_view salt, std::string_view info, size_t size);
// Takes as long for equal as for different contents. Different sizes differ at once.
bool SameSecret(std::string_view a, std::string_view b);

}  // namespace sandbar::crypto
