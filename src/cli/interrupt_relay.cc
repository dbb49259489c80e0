#include "cli/interrupt_relay.h"

#include <signal.h>

#include "cli/commands.h"
#include "wire/url.h"

namespace sandbar::cli {

Task<> SendSignal(ApiClient* api, std::string session, std::string command, int signal) {
  json::value body = json::object{{"signal", signal}};
  const std::string path = SessionPath(session) + "/cmd/" + wire::EncodeComponent(command) + "/kill";
  SB_CO_TRYV(co_await api->Call("POST", path, std::move(body)));
  co_return Result<>{};
}

Task<int> InterruptRelay::WaitToLeave() {
  SB_CO_TRY(int number, co_await signals->Wait());
  if (number != SIGINT || command == nullptr || command->id.empty()) co_return number;
  Task<> sending = SendSignal(api, session, command->id, SIGINT);
  auto sent = co_await UnlessSignalled(signals, 2, std::move(sending));
  if (!sent) co_return number;
  passed_on = true;
  co_return co_await signals->Wait(2);
}

}  // namespace sandbar::cli
