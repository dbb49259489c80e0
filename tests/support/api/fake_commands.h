// For tests: the roles Commands, Files and CodeContexts, answering from a FakeState.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/api/fake_state.h"

namespace sandbar::api {

class FakeLogReader : public sandbox::LogReader {
 public:
  explicit FakeLogReader(FakeState* state) : state_(state) { ++state_->readers; }
  FakeLogReader(const FakeLogReader&) = delete;
  FakeLogReader& operator=(const FakeLogReader&) = delete;
  ~FakeLogReader() override { --state_->readers; }
  Task<sandbox::LogChunk> Next() override {
    while (at_ == state_->log.size()) {
      SB_CO_TRYV(co_await state_->changed.Wait());
    }
    FakeState::Step step = state_->log[at_++];
    if (auto* error = std::get_if<Error>(&step)) co_return std::unexpected(*error);
    co_return std::get<sandbox::LogChunk>(std::move(step));
  }
  bool caught_up() const override { return at_ == state_->log.size(); }

 private:
  FakeState* state_;
  size_t at_ = 0;
};

// Returns the lines that the test gave to Say(), until an empty one.
class FakeCodeStream : public sandbox::CodeStream {
 public:
  explicit FakeCodeStream(FakeState* state) : reader_(state) {}
  Task<std::string> Next() override {
    SB_CO_TRY(sandbox::LogChunk chunk, co_await reader_.Next());
    co_return std::move(chunk.bytes);
  }

 private:
  FakeLogReader reader_;
};

class FakeFileStream : public engine::FileStream {
 public:
  explicit FakeFileStream(FakeState* state) : state_(state) { ++state_->files; }
  FakeFileStream(const FakeFileStream&) = delete;
  FakeFileStream& operator=(const FakeFileStream&) = delete;
  ~FakeFileStream() override { --state_->files; }
  Task<std::string> Next() override {
    if (at_ < state_->pieces.size()) co_return state_->pieces[at_++];
    if (state_->read_ends_with) co_return std::unexpected(*state_->read_ends_with);
    co_return std::string();
  }

 private:
  FakeState* state_;
  size_t at_ = 0;
};

class FakeCommands : public sandbox::Commands {
 public:
  explicit FakeCommands(FakeState* state) : state_(state) {}
  Task<sandbox::StartedCommand> Start(sandbox::Scope s, std::string id, sandbox::CommandSpec spec) override {
    state_->command_spec = std::move(spec);
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    sandbox::StartedCommand started;
    started.command = state_->command;
    if (state_->command_spec->follow_from_start) started.log = std::make_unique<FakeLogReader>(state_);
    co_return started;
  }
  Task<store::Command> Get(sandbox::Scope s, std::string, std::string id) override {
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    co_return state_->command;
  }
  Task<store::Command> Wait(sandbox::Scope s, std::string, std::string id) override {
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    struct Counted {
      int* n;
      explicit Counted(int* p) : n(p) { ++*n; }
      ~Counted() { --*n; }
    } counted(&state_->waits);
    while (!state_->command.exit_code) {
      SB_CO_TRYV(co_await state_->changed.Wait());
    }
    co_return state_->command;
  }
  Task<std::vector<store::Command>> List(sandbox::Scope s, std::string id) override {
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    co_return std::vector<store::Command>{state_->command};
  }
  Task<store::Command> Kill(sandbox::Scope s, std::string, std::string id, int signal) override {
    state_->number = signal;
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    co_return state_->command;
  }
  Task<std::unique_ptr<sandbox::LogReader>> OpenLog(sandbox::Scope s, std::string, std::string id,
                                                    sandbox::ReadFrom) override {
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    co_return std::make_unique<FakeLogReader>(state_);
  }
  Task<protocol::StdinState> GetInput(sandbox::Scope s, std::string, std::string id) override {
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    co_return protocol::StdinState{};
  }
  Task<std::unique_ptr<sandbox::InputWriter>> OpenInput(sandbox::Scope s, std::string, std::string id) override {
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    co_return Fail(Code::kConflict, "the command was started without standard input");
  }
  Task<> Resize(sandbox::Scope s, std::string, std::string id, protocol::TerminalSize) override {
    co_return state_->Begin(s, std::move(id));
  }

 private:
  FakeState* state_;
};

class FakeFiles : public sandbox::Files {
 public:
  explicit FakeFiles(FakeState* state) : state_(state) {}
  Task<std::unique_ptr<engine::FileStream>> Read(sandbox::Scope s, std::string, std::string path,
                                                 std::optional<std::string> dir) override {
    state_->cwd = std::move(dir);
    SB_CO_TRYV(state_->Begin(s, std::move(path)));
    co_return std::make_unique<FakeFileStream>(state_);
  }
  Task<> WriteTar(sandbox::Scope s, std::string id, std::optional<std::string> dir,
                  engine::ByteSource* source) override {
    state_->cwd = std::move(dir);
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    while (true) {
      SB_CO_TRY(std::string piece, co_await source->Next());
      if (piece.empty()) break;
      state_->written += piece;
    }
    co_return Result<>{};
  }
  Task<> MakeDir(sandbox::Scope s, std::string, std::string path, std::optional<std::string> dir,
                 bool recursive) override {
    state_->cwd = std::move(dir);
    state_->flag = recursive;
    co_return state_->Begin(s, std::move(path));
  }
  Task<std::unique_ptr<engine::FileStream>> ReadRange(sandbox::Scope s, sandbox::FileTarget target,
                                                      engine::FileRange range) override {
    state_->file_range = range;
    SB_CO_TRYV(Take(s, std::move(target)));
    co_return std::make_unique<FakeFileStream>(state_);
  }
  Task<sandbox::FileList> List(sandbox::Scope s, sandbox::FileTarget target, std::string after,
                               uint32_t limit) override {
    SB_CO_TRYV(Take(s, std::move(target)));
    state_->list_after = std::move(after);
    state_->list_limit = limit;
    co_return state_->file_list;
  }
  Task<protocol::FileEntry> Stat(sandbox::Scope s, sandbox::FileTarget target, bool follow) override {
    state_->flag = follow;
    SB_CO_TRYV(Take(s, std::move(target)));
    co_return state_->file_list.entries.at(0);
  }
  Task<> Write(sandbox::Scope s, sandbox::FileTarget target, protocol::WriteFile how,
               engine::ByteSource* source) override {
    SB_CO_TRYV(Take(s, std::move(target)));
    state_->file_write = std::move(how);
    while (true) {
      SB_CO_TRY(std::string piece, co_await source->Next());
      if (piece.empty()) break;
      state_->written += piece;
    }
    co_return Result<>{};
  }
  Task<> Edit(sandbox::Scope s, sandbox::FileTarget target, engine::FileEdit edit) override {
    state_->file_edit = std::move(edit);
    co_return Take(s, std::move(target));
  }

 private:
  Result<> Take(const sandbox::Scope& s, sandbox::FileTarget target) {
    state_->file_target = target;
    return state_->Begin(s, std::move(target.path));
  }

  FakeState* state_;
};

class FakeCodeContexts : public sandbox::CodeContexts {
 public:
  explicit FakeCodeContexts(FakeState* state) : state_(state) {}
  Task<std::unique_ptr<sandbox::CodeStream>> Run(sandbox::Scope s, std::string name, sandbox::CodeSpec spec) override {
    state_->code_spec = std::move(spec);
    SB_CO_TRYV(state_->Begin(s, std::move(name)));
    co_return std::make_unique<FakeCodeStream>(state_);
  }
  Task<sandbox::CodeContextInfo> Create(sandbox::Scope s, std::string name, sandbox::CodeContextSpec spec) override {
    SB_CO_TRYV(state_->Begin(s, std::move(name)));
    state_->context.language = spec.language;
    co_return state_->context;
  }
  Task<std::vector<sandbox::CodeContextInfo>> List(sandbox::Scope s, std::string name) override {
    SB_CO_TRYV(state_->Begin(s, std::move(name)));
    co_return std::vector<sandbox::CodeContextInfo>{state_->context};
  }
  Task<sandbox::CodeContextInfo> Change(sandbox::Scope s, std::string, std::string id,
                                        sandbox::ContextChange change) override {
    state_->number = static_cast<int64_t>(change);
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    co_return state_->context;
  }

 private:
  FakeState* state_;
};

}  // namespace sandbar::api
