// API tokens: opaque random strings of which the store keeps the SHA-256. Loop only, except where said.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "store/store.h"

namespace sandbar::sandbox {

// Loads the tokens; at the very first start makes one and leaves it in <data>/token (0600). Blocks.
Result<std::vector<store::Token>> LoadTokens(store::Store& store, const std::string& data_dir);

// Compares against every token in constant time, so that neither content nor position shows in the timing.
Result<store::Token> FindToken(const std::vector<store::Token>& tokens, std::string_view presented);

}  // namespace sandbar::sandbox
