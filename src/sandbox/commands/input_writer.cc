#include "sandbox/commands/input_writer.h"

namespace sandbar::sandbox {
namespace {

// Of a command that has ended.
class EndedWriter final : public InputWriter {
 public:
  explicit EndedWriter(std::string command) : command_(std::move(command)) {}
  Result<protocol::StdinState> State() const override { return EndedInput(command_); }
  Task<> Write(uint64_t, std::string) override { co_return Result<>{}; }
  Task<> End(uint64_t) override { co_return Result<>{}; }

 private:
  std::string command_;
};

class RunningWriter final : public InputWriter {
 public:
  RunningWriter(std::shared_ptr<SessionCommands> commands, std::shared_ptr<RunningCommand> run)
      : commands_(std::move(commands)), run_(std::move(run)) {
    run_->has_writer = true;
  }
  RunningWriter(const RunningWriter&) = delete;
  RunningWriter& operator=(const RunningWriter&) = delete;
  ~RunningWriter() override { run_->has_writer = false; }

  Result<protocol::StdinState> State() const override { return commands_->InputState(run_->row.id); }

  Task<> Write(uint64_t offset, std::string bytes) override {
    SB_CO_TRY(auto link, commands_->Link());
    auto written = co_await link->WriteStdin(run_->row.id, offset, std::move(bytes));
    co_return Forgive(std::move(written));
  }

  Task<> End(uint64_t offset) override {
    SB_CO_TRY(auto link, commands_->Link());
    auto ended = co_await link->EndStdin(run_->row.id, offset);
    co_return Forgive(std::move(ended));
  }

 private:
  // The link forgets a command at its exit.
  Result<> Forgive(Result<> done) const {
    const bool gone = run_->ending || commands_->Find(run_->row.id) == nullptr;
    if (!done && done.error().code == Code::kNotFound && gone) return {};
    return done;
  }

  std::shared_ptr<SessionCommands> commands_;
  std::shared_ptr<RunningCommand> run_;
};

}  // namespace

protocol::StdinState EndedInput(std::string command) {
  protocol::StdinState state;
  state.id = std::move(command);
  state.ended = state.closed = true;
  return state;
}

Result<std::unique_ptr<InputWriter>> OpenInputWriter(std::shared_ptr<SessionCommands> commands, std::string command) {
  auto run = commands ? commands->Find(command) : nullptr;
  if (!run || run->ending) return std::make_unique<EndedWriter>(std::move(command));
  SB_TRYV(commands->InputState(command));
  if (run->has_writer)
    return Fail(Code::kConflict, "somebody else writes to the command's standard input: one writer at a time");
  return std::make_unique<RunningWriter>(std::move(commands), std::move(run));
}

}  // namespace sandbar::sandbox
