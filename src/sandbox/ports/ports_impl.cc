#include "sandbox/ports/ports_impl.h"

#include <algorithm>

#include "base/ids.h"
#include "crypto/digest.h"
#include "sandbox/ports/routes.h"

namespace sandbar::sandbox {

Task<RouteTarget> PortsImpl::FindRoute(std::string subdomain) {
  SB_CO_TRY(auto found, co_await core_->directory->FindSandboxBySubdomain(subdomain));
  if (found) {
    for (store::PortRoute& route : found->routes)
      if (route.subdomain == subdomain)
        co_return RouteTarget{found->team, found->project, found->name, found->current_session, std::move(route)};
  }
  co_return Fail(Code::kNotFound, "there is no sandbox behind this name");
}

Task<DialledPort> PortsImpl::Dial(Scope scope, std::string session, int port) {
  if (port < 2 || port > 65535) co_return Fail(Code::kBadRequest, "port: 2 to 65535");
  // Held while we wait: the machine object belongs to it.
  SB_CO_TRY(auto active, co_await records_->FindActive(std::move(scope), std::move(session)));
  auto fd = co_await active->connected()->DialPort(static_cast<uint16_t>(port));
  if (!fd && fd.error().code == Code::kNotFound) co_return Fail(Code::kStopped, "the sandbox has stopped");
  if (!fd) co_return std::unexpected(std::move(fd).error());
  co_return DialledPort{*std::move(fd), active->previews()};
}

Task<store::PortRoute> PortsImpl::SetToken(Scope scope, std::string name, int port, std::optional<std::string> token) {
  SB_CO_TRY(auto sandbox, co_await records_->FindSandbox(std::move(scope), std::move(name)));
  std::string digest = token ? crypto::Sha256Hex(*token) : "";
  auto key = store::KeyOf(sandbox);
  store::SandboxEdit edit = [port, digest](store::Sandbox& row) -> Result<> {
    auto it = std::ranges::find(row.routes, port, &store::PortRoute::port);
    if (it == row.routes.end()) return Fail(Code::kNotFound, "the sandbox does not publish this port");
    it->token = digest;
    row.updated_at = NowMs();
    return {};
  };
  SB_CO_TRY(auto edited, co_await core_->directory->EditSandbox(std::move(key), std::move(edit)));
  const store::PortRoute* route = FindPort(edited.routes, port);
  if (route == nullptr) co_return Fail(Code::kNotFound, "the sandbox does not publish this port");
  co_return *route;
}

}  // namespace sandbar::sandbox
