#include "wire/output_text.h"

#include <utility>

namespace sandbar::wire {
namespace {

constexpr size_t kMaxCharacter = 4;

// The beginning of a character at the end of the bytes, when its other bytes have not come yet.
std::string_view Unfinished(std::string_view bytes) {
  for (size_t n = 1; n < kMaxCharacter && n <= bytes.size(); ++n) {
    const std::string_view end = bytes.substr(bytes.size() - n);
    if ((static_cast<unsigned char>(end.front()) & 0xC0) == 0x80) continue;
    Utf8Stream probe;
    return probe.Feed(end).empty() ? end : std::string_view();
  }
  return {};
}

}  // namespace

OutputText::Piece OutputText::Feed(std::string_view bytes) {
  Piece piece{decode_.Feed(bytes)};
  // The same bytes but for those of a character that is not complete yet: nothing was replaced.
  const std::string all = std::exchange(rest_, "") + std::string(bytes);
  const bool same = all.starts_with(piece.text) && all.size() - piece.text.size() < kMaxCharacter;
  rest_ = same ? all.substr(piece.text.size()) : std::string(Unfinished(all));
  piece.replaced = !same;
  return piece;
}

OutputText::Piece OutputText::Flush() {
  rest_.clear();
  Piece piece{decode_.Flush()};
  piece.replaced = !piece.text.empty();
  return piece;
}

}  // namespace sandbar::wire
