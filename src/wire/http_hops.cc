#include "wire/http_hops.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_set>

#include "wire/text.h"

namespace sandbar::wire {

namespace {

constexpr std::array<std::string_view, 7> kFixed = {"connection", "keep-alive",    "te", "trailer", "transfer-encoding",
                                                    "upgrade",    "content-length"};

class HttpHops {
 public:
  // Reads the Connection fields of the message once: they can name thousands.
  explicit HttpHops(const std::vector<HttpField>& fields);
  bool Has(std::string_view name) const;

 private:
  std::unordered_set<std::string> names_;
};

HttpHops::HttpHops(const std::vector<HttpField>& fields) {
  for (std::string_view name : kFixed) names_.emplace(name);
  for (const HttpField& f : fields) {
    if (!EqualsIgnoreCase(f.name, "connection")) continue;
    std::string_view rest = f.value;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      names_.insert(LowerCase(Trim(rest.substr(0, comma))));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
}

bool HttpHops::Has(std::string_view name) const {
  const std::string lower = LowerCase(name);
  return lower.starts_with("proxy-") || names_.contains(lower);
}

}  // namespace

std::vector<HttpField> EndToEndFields(const std::vector<HttpField>& fields) {
  std::vector<HttpField> out;
  const HttpHops hops(fields);
  for (const HttpField& f : fields)
    if (!hops.Has(f.name)) out.push_back(f);
  return out;
}

}  // namespace sandbar::wire
