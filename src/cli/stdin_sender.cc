#include "cli/stdin_sender.h"

#include <fmt/format.h>

#include "cli/output.h"
#include "wire/json_parse.h"

namespace sandbar::cli {
namespace {

constexpr size_t kWindow = 1 << 20;
constexpr size_t kPiece = 512 << 10;
constexpr size_t kMaxAnswer = 64 << 10;
constexpr std::chrono::milliseconds kKeyPause{400};
constexpr std::chrono::milliseconds kBusyPause{200};

bool Flag(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_bool() && value->as_bool();
}

}  // namespace

void StdinSender::Begin(std::string path, Settings settings) {
  path_ = std::move(path);
  settings_ = settings;
  shared_ = settings.joined;
  verify_ = settings_.joined;
  input_.emplace(ex_, settings_.fd, [this] { wake_.Notify(); });
  wake_.Notify();
}

void StdinSender::Verify() {
  verify_ = true;
  wake_.Notify();
}

// Takes what is there, as far as the window has room.
void StdinSender::Refill() {
  if (kept_.size() >= kWindow) return;
  std::string bytes = input_->Take(kWindow - kept_.size());
  kept_ += settings_.detach_keys ? detach_.Feed(bytes) : bytes;
}

bool StdinSender::HasWork() const {
  return sent_ < kept_.size() || (Ends() && !end_sent_);
}

bool StdinSender::Ends() const {
  return settings_.sends_end && input_->ended() && !detach_.holding();
}

void StdinSender::Drop(uint64_t taken) {
  if (taken <= base_) return;
  const size_t n = std::min<uint64_t>(taken - base_, sent_);
  kept_.erase(0, n);
  base_ += n;
  sent_ -= n;
}

// What is not sent yet goes to this position of the command's input.
void StdinSender::Rebase(uint64_t position) {
  kept_.erase(0, sent_);
  sent_ = 0;
  base_ = position;
}

void StdinSender::Adopt(const State& state) {
  closed_ = state.closed;
  if (closed_) return;
  Drop(state.taken);
  // More than `sent_`: the answer to what we sent was lost on its way.
  if (state.accepted < base_ || state.accepted > base_ + kept_.size()) {
    // Others have written.
    shared_ = true;
    Rebase(state.accepted);
  } else {
    sent_ = state.accepted - base_;
  }
  end_sent_ = state.ended;
}

Task<StdinSender::State> StdinSender::Ask() {
  SB_CO_TRY(json::object got, co_await api_->Call("GET", path_ + "/stdin", std::nullopt));
  co_return State{static_cast<uint64_t>(Number(got, "accepted")), static_cast<uint64_t>(Number(got, "taken")),
                  Flag(got, "ended"), Flag(got, "closed")};
}

Task<> StdinSender::Failed(Error why) {
  verify_ = true;
  // The command, its session or its input is gone. How the command ended is told with its output.
  if (why.code == Code::kNotFound || why.code == Code::kStopped) {
    closed_ = true;
    co_return Result<>{};
  }
  if (why.code == Code::kForbidden && settings_.joined) {
    Remark("\r\nsandbar: your key may only watch: what you type is not passed on\r\n");
    closed_ = true;
    co_return Result<>{};
  }
  // What was sent on a connection that broke is not known to the server yet.
  if (why.code == Code::kBadRequest) {
    Error later{Code::kUnavailable, why.message};
    co_return co_await retry_.Pause(std::move(later));
  }
  co_return co_await retry_.Pause(std::move(why));
}

Task<> StdinSender::Find() {
  auto state = co_await Ask();
  if (!state && state.error().code == Code::kConflict) {
    closed_ = true;  // it was started without input
    co_return Result<>{};
  }
  if (!state) co_return co_await Failed(std::move(state).error());
  verify_ = false;
  retry_.Worked();
  Adopt(*state);
  co_return Result<>{};
}

Task<> StdinSender::Send() {
  if (shared_) {
    // Somebody else may have typed since.
    auto state = co_await Ask();
    if (!state) co_return co_await Failed(std::move(state).error());
    if (state->accepted > base_ + sent_) Rebase(state->accepted);
  }
  const std::string piece = kept_.substr(sent_, kPiece);
  const bool ends = Ends() && sent_ + piece.size() == kept_.size();
  const std::string path = fmt::format("{}/stdin?offset={}{}", path_, base_ + sent_, ends ? "&end=true" : "");
  http::ClientRequest request = api_->Request("POST", path, piece);
  for (auto& header : request.headers)
    if (header.name == "content-type") header.value = "application/octet-stream";
  auto response = co_await api_->Open(std::move(request));
  if (!response && response.error().code == Code::kConflict) {
    if (settings_.joined) {
      if (!std::exchange(warned_, true))
        Remark("\r\nsandbar: somebody else writes to this command: what you type is not passed on\r\n");
      kept_.erase(sent_);
      co_return Result<>{};
    }
    // Somebody who has joined types, or the server has not noticed yet that our last connection broke.
    verify_ = true;
    co_return co_await Sleep(kBusyPause);
  }
  if (!response) co_return co_await Failed(std::move(response).error());
  auto text = co_await (*response)->ReadAll(kMaxAnswer);
  if (!text) co_return co_await Failed(std::move(text).error());
  SB_CO_TRY(json::value value, wire::ParseJson(*text));
  if (!value.is_object()) co_return Fail(Code::kProtocol, "the server's answer is no JSON object");
  const json::object& got = value.as_object();
  retry_.Worked();
  closed_ = Flag(got, "closed");
  const auto accepted = static_cast<uint64_t>(Number(got, "accepted"));
  if (accepted > base_ + sent_ + piece.size() && !closed_) {
    // The bytes were skipped: another writer was there first.
    shared_ = true;
    Rebase(accepted);
    co_return Result<>{};
  }
  sent_ += piece.size();
  end_sent_ = end_sent_ || ends;
  Drop(static_cast<uint64_t>(Number(got, "taken")));
  co_return Result<>{};
}

Task<> StdinSender::Wait() {
  // No room for more until the command has taken something.
  if (kept_.size() >= kWindow) {
    verify_ = true;
    co_return co_await Sleep(kBusyPause);
  }
  if (!detach_.holding()) co_return co_await wake_.Wait();
  Task<> wait = wake_.Wait();
  auto woken = co_await WithTimeout(std::move(wait), kKeyPause);
  if (woken || woken.error().code != Code::kTimeout) co_return woken;
  kept_ += detach_.Release();
  co_return Result<>{};
}

Task<> StdinSender::Run() {
  for (;;) {
    if (!input_) {
      SB_CO_TRYV(co_await wake_.Wait());
      continue;
    }
    if (closed_) {
      // Typed keys may still say that the user wants to leave.
      if (!settings_.detach_keys) input_.reset();
      kept_.clear();
      sent_ = 0;
      verify_ = false;
    } else if (verify_) {
      SB_CO_TRYV(co_await Find());
      continue;
    }
    if (!input_) {
      for (;;) SB_CO_TRYV(co_await wake_.Wait());
    }
    Refill();
    if (!closed_ && HasWork()) {
      SB_CO_TRYV(co_await Send());
      continue;
    }
    if (detach_.found()) co_return Result<>{};
    SB_CO_TRYV(co_await Wait());
  }
}

}  // namespace sandbar::cli
