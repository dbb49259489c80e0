// The code contexts of one session: interpreters that run as commands of our own, which no list of commands shows.
// Single loop; a part of Session.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sandbox/code/code.h"
#include "sandbox/code/code_context.h"
#include "sandbox/memory/restored_memory.h"
#include "sandbox/sessions/session_state.h"

namespace sandbar::sandbox {

class SessionContexts {
 public:
  explicit SessionContexts(SessionState* state) : state_(state) {}
  SessionContexts(const SessionContexts&) = delete;
  SessionContexts& operator=(const SessionContexts&) = delete;

  // The caller abandons a cell whose output it no longer reads; that interrupts the cell.
  Task<std::shared_ptr<CodeCell>> Start(CodeSpec spec);
  void Abandon(const std::shared_ptr<CodeCell>& cell);
  Result<CodeContextInfo> Add(CodeContextSpec spec);
  std::vector<CodeContextInfo> List() const;
  Result<CodeContextInfo> Interrupt(const std::string& id);
  Result<CodeContextInfo> Restart(const std::string& id);
  Result<CodeContextInfo> Remove(const std::string& id);
  bool empty() const { return contexts_.empty(); }

  // Events of the machine, for commands that are interpreters.
  void OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes);
  void OnGap(const std::string& command, uint64_t offset, uint64_t bytes);
  void OnExit(const protocol::Exit& exit);

  // Contexts that wait for their next cell.
  std::vector<KeptContext> Idle() const;
  // Takes the context of a restored memory over, and returns the new name of its interpreter's command. Nothing when
  // the context was not idle then.
  std::optional<std::string> TakeOver(const RestoredMemory& restored, const std::string& driver);
  // Ends all interpreters.
  void DropAll(const char* status, const std::string& why);
  // Ends the interpreters that an earlier server started: their contexts are lost.
  void KillOldDrivers();

 private:
  using ContextRef = std::shared_ptr<CodeContext>;
  Result<ContextRef> Find(const std::string& id) const;
  Result<ContextRef> Pick(const CodeSpec& spec);
  Result<ContextRef> Make(std::string id, CodeContextSpec spec);
  ContextRef ContextOf(const std::string& command) const;
  Task<> StartDriver(ContextRef context);
  Task<> SuperviseCell(ContextRef context, std::shared_ptr<CodeCell> cell);
  void PushCell(const CodeContext& context, CodeCell& cell);
  Task<> EndCell(ContextRef context, std::shared_ptr<CodeCell> cell, protocol::Exit exit);
  // Kills the interpreter and its processes.
  void DropDriver(CodeContext& context, std::string why, const char* status = "killed");

  SessionState* state_;
  std::map<std::string, ContextRef> contexts_;
};

}  // namespace sandbar::sandbox
