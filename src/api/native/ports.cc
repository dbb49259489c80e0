// Ports beyond the protocol: tokens for routes, and a raw byte stream to any port for `sandbar forward`.
#include <boost/json.hpp>
#include <charconv>

#include "api/call.h"
#include "api/handlers.h"
#include "base/ids.h"
#include "http/byte_stream.h"
#include "http/pipe.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

constexpr std::chrono::hours kForwardIdle{24};

Result<int> PortOf(const std::string& text) {
  int port = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (ec != std::errc{} || end != text.data() + text.size() || port < 2 || port > 65535)
    return Fail(Code::kBadRequest, "the port must be a number from 2 to 65535");
  return port;
}

Task<> ReplyRoute(Call* call, std::optional<std::string> token) {
  SB_CO_TRY(int port, PortOf(call->Param("port")));
  std::string name = call->Param("name");
  auto route = co_await call->domain->ports->SetToken(call->scope, std::move(name), port, token);
  if (!route) co_return std::unexpected(std::move(route).error());
  json::object body = RoutesJson({*route}, call->preview_urls).front().as_object();
  if (token) {
    body["token"] = *token;
    body["openUrl"] = std::string(body["url"].as_string()) + "/?sandbar_token=" + *token;
  }
  co_return co_await call->Reply(std::move(body));
}

}  // namespace

Task<> MakeRouteToken(Call* call) {
  co_return co_await ReplyRoute(call, NewId("sbp_"));
}

Task<> RemoveRouteToken(Call* call) {
  co_return co_await ReplyRoute(call, std::nullopt);
}

Task<> ForwardPort(Call* call) {
  SB_CO_TRY(int port, PortOf(call->Param("port")));
  if (!call->exchange->wants_upgrade() || call->request().Get("upgrade") != "sandbar-tcp")
    co_return Fail(Code::kBadRequest, "this path wants Connection: Upgrade and Upgrade: sandbar-tcp");
  std::string session = call->Param("session");
  auto guest = co_await call->domain->ports->Dial(call->scope, std::move(session), port);
  if (!guest) co_return std::unexpected(std::move(guest).error());
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(auto machine, http::MakeFdStream(ex, std::move(guest->fd), guest->traffic));
  std::vector<http::Header> fields{{"upgrade", "sandbar-tcp"}};
  SB_CO_TRY(http::ByteStream * client, co_await call->exchange->Upgrade(std::move(fields)));
  std::string nothing;
  auto pipe = http::PipeStreams(client, machine.get(), std::move(nothing), kForwardIdle);
  // A connection is a credential too: it ends with the one that opened it.
  co_return co_await call->credential->Until(std::move(pipe));
}

}  // namespace sandbar::api
