#include "egress/name_table.h"

namespace sandbar::egress {

namespace {

constexpr uint32_t kBase = 0xc6120000;  // 198.18.0.0
constexpr uint32_t kCount = 1U << 17;   // a /15
constexpr uint32_t kFirst = 1;

IpAddress MadeUp(uint32_t index) {
  uint32_t v4 = kBase + index;
  const std::string raw{static_cast<char>(v4 >> 24), static_cast<char>(v4 >> 16), static_cast<char>(v4 >> 8),
                        static_cast<char>(v4)};
  return *FromRaw(raw);
}

}  // namespace

bool NameTable::IsMadeUp(const IpAddress& address) {
  // NOLINTNEXTLINE(bugprone-unchecked-optional-access): a constant
  static const Cidr kRange = *ParseCidr("198.18.0.0/15");
  return kRange.Contains(address);
}

IpAddress NameTable::AddressFor(const std::string& name) {
  if (auto known = by_name_.find(name); known != by_name_.end()) {
    entries_.splice(entries_.begin(), entries_, known->second);
    return known->second->address;
  }
  if (entries_.size() == kMaxNames) {
    by_name_.erase(entries_.back().name);
    by_address_.erase(entries_.back().address);
    entries_.pop_back();
  }
  // Round the whole range, so that an address means something else only after a hundred thousand other names. One that
  // is still in use (there are far fewer than addresses) is passed over.
  IpAddress address = MadeUp(next_);
  while (by_address_.contains(address)) {
    next_ = next_ + 1 == kCount ? kFirst : next_ + 1;
    address = MadeUp(next_);
  }
  next_ = next_ + 1 == kCount ? kFirst : next_ + 1;
  entries_.push_front({name, address});
  by_name_[name] = entries_.begin();
  by_address_[address] = entries_.begin();
  return address;
}

std::string NameTable::NameOf(const IpAddress& address) {
  auto known = by_address_.find(address);
  if (known == by_address_.end()) return {};
  entries_.splice(entries_.begin(), entries_, known->second);
  return known->second->name;
}

void NameTable::Saw(const IpAddress& real, const std::string& name) {
  if (seen_.size() >= kMaxNames && !seen_.contains(real)) seen_.clear();  // only a hint: forgetting is fine
  seen_[real] = name;
}

std::string NameTable::SeenName(const IpAddress& real) const {
  auto known = seen_.find(real);
  return known == seen_.end() ? std::string() : known->second;
}

}  // namespace sandbar::egress
