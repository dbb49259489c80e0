// What the daemon sends to commands: standard input, sizes of terminals, requests for the channel.
#include <signal.h>
#include <sys/socket.h>

#include <cerrno>

#include "guest/commands.h"
#include "guest/terminal.h"

namespace sandbar::guest {
namespace {

constexpr uint64_t kTellEvery = protocol::kStdinWindow / 4;

}  // namespace

void Commands::MakeStdin(Command& c, Fd fd, Fd signals) {
  const auto kind = c.request.terminal ? CommandInput::Kind::kTerminal : CommandInput::Kind::kPipe;
  c.standard_input = std::make_unique<CommandInput>(loop_, std::move(fd), kind, [this, &c] { TellStdin(c); });
  c.standard_input->SetSignaller(std::move(signals));
}

// Says what was taken in steps, and when all of it was: so that a keystroke costs one frame, and a file not many.
void Commands::TellStdin(Command& c) {
  if (!c.standard_input || !c.running || c.exit_sent) return;
  if (!outlet_->live() || !outlet_->Has(protocol::kStandardInput)) return;
  const uint64_t taken = c.standard_input->taken();
  const bool all = taken == c.standard_input->accepted();
  if (taken > c.taken_said && (all || taken - c.taken_said >= kTellEvery)) {
    c.taken_said = taken;
    outlet_->Send(protocol::StdinTaken{c.request.id, taken});
  }
  if (c.standard_input->closed() && !std::exchange(c.closed_said, true))
    outlet_->Send(protocol::StdinClosed{c.request.id});
}

CommandInput* Commands::StdinOf(const std::string& id) {
  auto it = commands_.find(id);
  return it == commands_.end() ? nullptr : it->second->standard_input.get();
}

void Commands::Stdin(const protocol::Stdin& input) {
  CommandInput* to = StdinOf(input.id);
  if (const char* wrong = to == nullptr ? nullptr : to->Accept(input.offset, input.bytes)) outlet_->Violation(wrong);
}

void Commands::StdinEnd(const protocol::StdinEnd& end) {
  CommandInput* to = StdinOf(end.id);
  if (const char* wrong = to == nullptr ? nullptr : to->End(end.offset)) outlet_->Violation(wrong);
}

void Commands::Resize(const protocol::Resize& resize) {
  auto it = commands_.find(resize.id);
  if (it == commands_.end() || !it->second->terminal) return;
  SetTerminalSize(it->second->terminal.get(), resize.size);
  it->second->standard_input->Signal(SIGWINCH);
}

std::vector<protocol::StdinState> Commands::StdinStates() const {
  std::vector<protocol::StdinState> out;
  for (const auto& [id, c] : commands_) {
    if (c->standard_input) out.push_back(c->standard_input->State(id));
  }
  return out;
}

void Commands::Input(const protocol::Input& input) {
  auto it = commands_.find(input.id);
  if (it == commands_.end() || it->second->reaped || !it->second->sides[2].fd) return;
  Command& c = *it->second;
  // What does not listen is not worth more memory.
  if (input.bytes.size() > protocol::kMaxInput - c.input.size()) {
    ::kill(c.running ? -c.pid : c.pid, SIGKILL);
    return;
  }
  c.input += input.bytes;
  WriteInput(c);
  UpdateReading(c);
}

void Commands::WriteInput(Command& c) {
  while (!c.input.empty() && c.sides[2].fd) {
    ssize_t n = ::send(c.sides[2].fd.get(), c.input.data(), c.input.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      c.input.clear();
      break;
    }
    c.input.erase(0, static_cast<size_t>(n));
  }
  if (c.input.empty()) {
    std::string().swap(c.input);
    UpdateReading(c);
  }
}

}  // namespace sandbar::guest
