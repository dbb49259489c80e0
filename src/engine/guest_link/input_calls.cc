// What the daemon's side sends to commands: standard input, with the agent's credit, and requests for the channel.
#include <algorithm>

#include "engine/guest_link/core.h"

namespace sandbar::engine {

Task<> CallInput(std::shared_ptr<LinkCore> core, std::string command, std::string bytes) {
  auto deadline = LinkClock::now() + core->limits().call;
  for (size_t at = 0; at < bytes.size();) {
    SB_CO_TRYV(co_await core->WaitRoom(deadline));
    size_t n = std::min(bytes.size() - at, protocol::kMaxData / 2);
    core->Send(protocol::Input{command, bytes.substr(at, n)});
    at += n;
  }
  co_return Result<>{};
}

namespace {

// Marks the input as being written, unless the command goes away first.
struct Writing {
  std::shared_ptr<LinkCore> core;
  std::string command;
  Writing(std::shared_ptr<LinkCore> c, std::string id) : core(std::move(c)), command(std::move(id)) {
    core->FindStdin(command)->writing = true;
  }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
  ~Writing() {
    if (auto* input = core->FindStdin(command)) input->writing = false;
  }
};

// Bytes that may be sent now. Waits for credit; 0 when nobody reads any more.
Task<size_t> WaitStdinCredit(LinkCore* core, std::string command) {
  for (;;) {
    if (core->closed()) co_return std::unexpected(core->Unavailable());
    auto* input = core->FindStdin(command);
    if (input == nullptr || input->closed) co_return size_t{0};
    const uint64_t limit = input->taken + protocol::kStdinWindow;
    if (input->sent < limit) co_return static_cast<size_t>(limit - input->sent);
    auto changed = input->changed;
    SB_CO_TRYV(co_await changed->Wait(LinkClock::time_point::max()));
  }
}

Error NoInput() {
  return Error{Code::kNotFound, "no such command, or it takes no input"};
}

}  // namespace

Task<> CallWriteStdin(std::shared_ptr<LinkCore> core, std::string command, uint64_t offset, std::string bytes) {
  if (core->closed()) co_return std::unexpected(core->Unavailable());
  auto* input = core->FindStdin(command);
  if (input == nullptr) co_return std::unexpected(NoInput());
  if (input->closed) co_return Result<>{};
  if (input->writing) co_return Fail(Code::kConflict, "somebody else writes to the command's standard input");
  if (offset > input->sent) co_return Fail(Code::kBadRequest, "input with a gap");
  size_t at = std::min<uint64_t>(input->sent - offset, bytes.size());
  if (at < bytes.size() && input->ended)
    co_return Fail(Code::kConflict, "the command's standard input has ended already");
  if (bytes.size() - at > protocol::kMaxOffset - input->sent) co_return Fail(Code::kTooLarge, "too much input");
  Writing writing(core, command);
  while (at < bytes.size()) {
    SB_CO_TRY(size_t credit, co_await WaitStdinCredit(core.get(), command));
    if (credit == 0) break;
    SB_CO_TRYV(co_await core->WaitRoom(LinkClock::time_point::max()));
    // The command may have ended meanwhile; only this coroutine sends its input.
    input = core->FindStdin(command);
    if (input == nullptr || input->closed) break;
    const size_t n = std::min({bytes.size() - at, credit, protocol::kMaxData / 2});
    core->Send(protocol::Stdin{command, input->sent, bytes.substr(at, n)});
    input->sent += n;
    at += n;
  }
  co_return Result<>{};
}

Task<> CallEndStdin(std::shared_ptr<LinkCore> core, std::string command, uint64_t offset) {
  SB_CO_TRYV(co_await core->WaitRoom(LinkClock::now() + core->limits().call));
  auto* input = core->FindStdin(command);
  if (input == nullptr) co_return std::unexpected(NoInput());
  if (input->closed) co_return Result<>{};
  if (input->writing) co_return Fail(Code::kConflict, "somebody else writes to the command's standard input");
  if (offset != input->sent) co_return Fail(Code::kBadRequest, "the input does not end there");
  if (std::exchange(input->ended, true)) co_return Result<>{};
  core->Send(protocol::StdinEnd{std::move(command), offset});
  co_return Result<>{};
}

}  // namespace sandbar::engine
