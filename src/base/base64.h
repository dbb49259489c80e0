// Base64 and base64url (RFC 4648), in one place for the whole product. Pure functions, any thread.
//
//   EncodeBase64("hi")          // "aGk="
//   EncodeBase64Url("hi")       // "aGk"
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sandbar {

std::string EncodeBase64(std::string_view bytes);     // padded with '='
std::string EncodeBase64Url(std::string_view bytes);  // '-' and '_', no padding

// Padded text of the usual alphabet, nothing else around it. Bits of the last character that belong to no byte are
// ignored: where two texts must not mean the same bytes, compare with EncodeBase64.
std::optional<std::string> DecodeBase64(std::string_view text);
// Unpadded and canonical: one text for one value, so that a signature covers exactly what was signed.
std::optional<std::string> DecodeBase64Url(std::string_view text);
// As far as the text goes on in either alphabet, for texts of other programs. `used` is then how many characters that
// was.
std::string DecodeBase64Prefix(std::string_view text, size_t* used = nullptr);

// Only characters that padded base64 consists of. The length is not looked at.
bool IsBase64Text(std::string_view text);

}  // namespace sandbar
