// The addresses a machine's resolver gave out for names. Under a domain policy these are made up (198.18.0.0/15, one
// per name): the name is resolved only when it is dialled, so a query carries nothing out. Under allow-all they are the
// real ones, remembered to tell which name a connection was meant for. Single loop.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "egress/address.h"

namespace sandbar::egress {

inline constexpr size_t kMaxNames = 4096;

class NameTable {
 public:
  // The made-up address of a canonical name; the name used longest ago makes room.
  IpAddress AddressFor(const std::string& name);
  // The name that a made-up address stands for; empty when it is none, or none any more.
  std::string NameOf(const IpAddress& address);
  static bool IsMadeUp(const IpAddress& address);

  void Saw(const IpAddress& real, const std::string& name);
  std::string SeenName(const IpAddress& real) const;

 private:
  struct Entry {
    std::string name;
    IpAddress address;
  };
  using Place = std::list<Entry>::iterator;

  std::list<Entry> entries_;  // the newest first
  std::map<std::string, Place> by_name_;
  std::map<IpAddress, Place> by_address_;
  uint32_t next_ = 1;
  std::map<IpAddress, std::string> seen_;
};

}  // namespace sandbar::egress
