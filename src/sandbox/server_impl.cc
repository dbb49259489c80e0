#include "sandbox/server_impl.h"

#include "sandbox/tokens.h"

namespace sandbar::sandbox {

Task<> ServerImpl::LoadTokens() {
  auto load = [dir = core_->config.data_dir](store::Store& store) { return sandbox::LoadTokens(store, dir); };
  SB_CO_TRY(tokens_, co_await core_->Combined(std::move(load)));
  co_return Result<>{};
}

ServerInfo ServerImpl::Info() const {
  ServerInfo info;
  info.default_network_mode = core_->config.default_network_mode;
  info.engine = core_->engines.default_engine().name;
  info.isolation_class = core_->engines.default_engine().isolation_class;
  info.engines = core_->engines.engines();
  info.running = active_->Running().size();
  return info;
}

Task<store::Token> ServerImpl::CheckToken(std::string presented) {
  co_return FindToken(tokens_, presented);
}

}  // namespace sandbar::sandbox
