#include "sandbox/server_impl.h"

namespace sandbar::sandbox {

ServerInfo ServerImpl::Info() const {
  ServerInfo info;
  info.default_network_mode = core_->config.default_network_mode;
  info.engine = core_->engines.default_engine().name;
  info.isolation_class = core_->engines.default_engine().isolation_class;
  info.engines = core_->engines.engines();
  info.running = active_->Running().size();
  return info;
}

}  // namespace sandbar::sandbox
