// The key that the server makes for the person who runs it: an admin of everything. Its secret is in <data>/token,
// which `sandbar token` prints, and its id in <data>/token.id; both 0600. Every other key is made by another key.
//
// When <data>/token was deleted, the next start makes another first key. The former one is in force until it is
// revoked. All functions block.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "store/store.h"

namespace sandbar::sandbox {

// 285 random bits after the prefix. It has no dots: clients take three dotted parts for a JWT.
std::string NewSecret(std::string_view prefix);

// At start: makes the file if it is missing, and the key if the store does not know the file's secret. The key's id.
Result<std::string> EnsureFirstKey(store::Store& store, const std::string& data_dir);

// Puts another key in the place of the first one. A crash leaves the files of the former or of the new one; the next
// start corrects <data>/token.id.
Result<> WriteFirstKey(const std::string& data_dir, const std::string& secret, const std::string& id);

}  // namespace sandbar::sandbox
