// Sends this program's standard input to a command. It keeps what the command has not taken yet: after a restart of the
// server it continues at the byte that the machine has. Single loop.
//
//   StdinSender sender(ex, api);
//   sender.Begin(CommandPath(session, id), {.detach_keys = true});
//   co_await sender.Run();       // ends when the user typed the detach keys; otherwise it is cancelled
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/detach_keys.h"
#include "cli/local_input.h"
#include "cli/retry_clock.h"
#include "cli/server_endpoint.h"

namespace sandbar::cli {

class StdinSender {
 public:
  struct Settings {
    int fd = 0;
    bool detach_keys = false;
    bool sends_end = true;  // the end of our input is the end of the command's
    // The command was started by somebody else, who may write too. Typed keys then go where the input is by now, and
    // are dropped with a remark while the other one writes.
    bool joined = false;
  };
  StdinSender(const asio::any_io_executor& ex, ApiClient* api) : ex_(ex), api_(api), wake_(ex) {}
  StdinSender(const StdinSender&) = delete;
  StdinSender& operator=(const StdinSender&) = delete;

  // The command runs: `path` is its path of the native API.
  void Begin(std::string path, Settings settings);
  // The connection to the server was made anew: asks what the machine has.
  void Verify();
  // Success: the user wants to leave. Without input, or when nobody reads it any more, this waits until it is
  // cancelled.
  Task<> Run();

 private:
  // As the server tells it.
  struct State {
    uint64_t accepted = 0, taken = 0;
    bool ended = false, closed = false;
  };
  Task<State> Ask();
  Task<> Find();
  Task<> Send();
  Task<> Wait();
  void Adopt(const State& state);
  void Drop(uint64_t taken);
  void Refill();
  void Rebase(uint64_t position);
  Task<> Failed(Error why);
  bool HasWork() const;
  bool Ends() const;

  asio::any_io_executor ex_;
  ApiClient* api_;
  Settings settings_;
  bool shared_ = false;  // others write too
  Event wake_;
  std::string path_;
  std::optional<LocalInput> input_;
  DetachKeys detach_;
  // kept_ begins at the position base_; the first sent_ bytes of it are on their way.
  std::string kept_;
  uint64_t base_ = 0;
  size_t sent_ = 0;
  bool end_sent_ = false;
  bool closed_ = false;
  bool verify_ = false;
  bool warned_ = false;
  RetryClock retry_;
};

}  // namespace sandbar::cli
