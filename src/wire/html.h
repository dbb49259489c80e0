// Text inside HTML. Pure functions, any thread.
//
//   "<p>" + EscapeHtml("a < b") + "</p>"     // "<p>a &lt; b</p>"
#pragma once

#include <string>
#include <string_view>

namespace sandbar::wire {

// For element contents and quoted attribute values: & < > " ' become references.
std::string EscapeHtml(std::string_view text);

}  // namespace sandbar::wire
