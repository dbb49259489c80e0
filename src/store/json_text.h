// Complex fields of the records as JSON text columns, and opaque list cursors. Pure functions.
// Decoders are for text that this store wrote: anything unexpected is a damaged row.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/records.h"

namespace sandbar::store {

std::string ToJson(const std::map<std::string, std::string>& v);
std::string ToJson(const std::vector<std::string>& v);
std::string ToJson(const std::vector<PortRoute>& v);
std::string ToJson(const std::map<std::string, Mount>& v);
std::string ToJson(const std::vector<SessionMount>& v);
std::optional<std::string> ToJson(const std::optional<KeepLastSnapshots>& v);

Result<> FromJson(std::string_view text, std::map<std::string, std::string>& out);
Result<> FromJson(std::string_view text, std::vector<std::string>& out);
Result<> FromJson(std::string_view text, std::vector<PortRoute>& out);
Result<> FromJson(std::string_view text, std::map<std::string, Mount>& out);
Result<> FromJson(std::string_view text, std::vector<SessionMount>& out);
Result<> FromJson(const std::optional<std::string>& text, std::optional<KeepLastSnapshots>& out);

// Where a page ended: the sort column's value of its last row and the row number that breaks ties.
struct Cursor {
  std::string listing;  // which listing and order made it, e.g. "sandboxes/createdAt/desc"
  std::string text;     // value when sorted by name
  int64_t number = 0;   // value otherwise
  int64_t row = 0;
};
std::string EncodeCursor(const Cursor& cursor);
// kBadRequest when it is not one of ours or belongs to another listing.
Result<Cursor> DecodeCursor(std::string_view encoded, std::string_view listing);

}  // namespace sandbar::store
