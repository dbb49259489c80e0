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

// Decodes padded text of the standard alphabet. Unused bits of the last character are ignored, so two texts can decode
// to the same bytes; a caller that must rule this out compares with EncodeBase64.
std::optional<std::string> DecodeBase64(std::string_view text);
// Unpadded and canonical: one text for one value, so that a signature covers exactly what was signed.
std::optional<std::string> DecodeBase64Url(std::string_view text);
// Decodes the longest prefix in either alphabet, for texts of other programs. `used`: the number of characters in it.
std::string DecodeBase64Prefix(std::string_view text, size_t* used = nullptr);

// Only characters that padded base64 consists of. The length is not looked at.
bool IsBase64Text(std::string_view text);

}  // namespace sandbar
