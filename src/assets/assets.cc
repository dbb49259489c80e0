#include "assets/assets.h"

namespace sandbar::assets {

std::string Guide(std::string_view url) {
  constexpr std::string_view kPlace = "{{url}}";
  std::string_view rest = kLlmsTxt;
  std::string out;
  for (size_t at = rest.find(kPlace); at != std::string_view::npos; at = rest.find(kPlace)) {
    out += rest.substr(0, at);
    out += url;
    rest.remove_prefix(at + kPlace.size());
  }
  out += rest;
  return out;
}

}  // namespace sandbar::assets
