// The role Server: what this server offers as a whole. Single loop.
#pragma once

#include <string>
#include <vector>

#include "engine/values.h"

namespace sandbar::sandbox {

struct ServerInfo {
  std::string default_network_mode;
  std::string engine;  // of sandboxes that demand none
  int isolation_class = 1;
  size_t running = 0;
  std::vector<engine::EngineInfo> engines;  // all known ones, usable or not
};

class Server {
 public:
  virtual ~Server() = default;
  virtual ServerInfo Info() const = 0;
};

}  // namespace sandbar::sandbox
