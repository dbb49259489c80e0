#include "llm/claude_worker.h"

#include <algorithm>

#include "base/ids.h"
#include "llm/box.h"
#include "llm/claude_session.h"
#include "wire/url.h"

namespace sandbar::llm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kBeat{30'000};
constexpr milliseconds kShortestBeat{1'000};
constexpr milliseconds kTtl{90'000};
constexpr milliseconds kLongestWait{60'000};
constexpr auto kCleanUp = std::chrono::minutes(2);

milliseconds Between(milliseconds low, milliseconds high) {
  uint16_t random = 0;
  FillRandom(&random, sizeof random);
  return low + (high - low) * random / 65536;
}

class Worker {
 public:
  Worker(const asio::any_io_executor& ex, client::ApiClient* api, ClaudeWorkerOptions options, ClaudeWorkerHooks hooks)
      : claude_(ex, hooks.url, hooks.key),
        api_(api),
        options_(std::move(options)),
        hooks_(std::move(hooks)),
        id_(NewId("sandbar-", 12)) {}

  Task<int> Run() {
    SB_CO_TRYV(ParseNet(options_.net));
    using namespace asio::experimental::awaitable_operators;
    while (true) {
      Task<std::optional<Work>> next = Next();
      Task<int> stop = hooks_.stop();
      auto first = co_await (std::move(next) || std::move(stop));
      if (first.index() == 1) co_return served_;
      auto work = std::get<0>(std::move(first));
      if (!work) co_return std::unexpected(std::move(work).error());
      if (!*work) co_return served_;
      SB_CO_TRY(bool go_on, co_await Serve(**std::move(work)));
      if (!go_on) co_return served_;
    }
  }

 private:
  enum class Lease { kHeld, kOver, kLost };

  // An acknowledged item; nullopt: there is none, and none is waited for.
  Task<std::optional<Work>> Next() {
    for (int failures = 0;;) {
      std::string environment = options_.environment, id = id_;
      auto work = co_await claude_.Poll(std::move(environment), std::move(id));
      if (!work && work.error().code != Code::kUnavailable) co_return std::unexpected(std::move(work).error());
      if (!work) {
        const milliseconds wait = std::min(milliseconds(1000) * (1 << std::min(failures++, 6)), kLongestWait);
        hooks_.say(work.error().message);
        SB_CO_TRYV(co_await Sleep(Between(wait * 3 / 4, wait)));
        continue;
      }
      failures = 0;
      if (!*work) {
        if (options_.once) co_return std::nullopt;
        SB_CO_TRYV(co_await Sleep(Between(milliseconds(1000), milliseconds(3000))));
        continue;
      }
      Work copy = **work;
      auto taken = co_await claude_.Acknowledge(std::move(copy));
      if (!taken && taken.error().code == Code::kCancelled) co_return std::unexpected(std::move(taken).error());
      if (taken) co_return std::move(*work);
      hooks_.say("work " + (*work)->id + " was not acknowledged: " + taken.error().message);
    }
  }

  // False: somebody wants us to end.
  Task<bool> Serve(Work work) {
    using namespace asio::experimental::awaitable_operators;
    lease_ = Lease::kHeld;
    ended_.reset();
    bool stopped = false;
    if (work.type == "session") {
      hooks_.say("session " + work.session);
      Work beat = work, session = work;
      Task<> keep = KeepLease(std::move(beat));
      Task<> serve = ServeSession(std::move(session));
      Task<int> stop = hooks_.stop();
      auto first = co_await (std::move(serve) || std::move(keep) || std::move(stop));
      stopped = first.index() == 2;
      if (first.index() == 0 && !std::get<0>(first)) hooks_.say("failed: " + std::get<0>(first).error().message);
      if (first.index() == 1 && !std::get<1>(first)) hooks_.say("lease: " + std::get<1>(first).error().message);
      ++served_;
    }
    co_await PutAway();
    if (lease_ != Lease::kLost) {
      Task<> stopping = claude_.Stop(std::move(work));
      auto done = co_await WithTimeout(std::move(stopping), kCleanUp);
      // A conflict: it has ended by itself.
      if (!done && done.error().code != Code::kUnavailable) hooks_.say("stop: " + done.error().message);
    }
    co_return !stopped;
  }

  Task<> ServeSession(Work work) {
    Work asked = work;
    SB_CO_TRYV(co_await claude_.GetSession(std::move(asked)));
    SB_CO_TRY(Box box, co_await Place(work.session));
    hooks_.say("sandbox " + box.name + ": " + box.describe);
    box_ = box.name;
    session_ = box.session;
    ClaudeTools tools(api_, std::move(box));
    ClaudeSessionLimits limits;
    limits.max_idle = milliseconds(options_.max_idle_ms);
    ClaudeSession session(&claude_, std::move(work), &tools, limits, hooks_.say);
    SB_CO_TRY(ClaudeSession::End end, co_await session.Run());
    ended_ = end;
    hooks_.say(end == ClaudeSession::End::kIdle ? "idle, its files are kept" : "terminated");
    co_return Result<>{};
  }

  // A session comes back as another item of work later: its sandbox has its name and keeps its files.
  Task<Box> Place(std::string session) {
    std::string name = "claude-" + session;
    auto there = co_await OpenBox(api_, name);
    if (there || there.error().code != Code::kNotFound) co_return there;
    SB_CO_TRY(json::value policy, ParseNet(options_.net));
    json::object body{{"name", name}, {"timeout", options_.timeout_ms}, {"networkPolicy", std::move(policy)}};
    std::string path = AddOrigin(options_.image, options_.runtime, options_.from, &body);
    json::value sent = std::move(body);
    SB_CO_TRYV(co_await api_->Call("POST", std::move(path), std::move(sent)));
    co_return co_await OpenBox(api_, std::move(name));
  }

  // Until the service takes the lease away or wants an end.
  Task<> KeepLease(Work work) {
    std::string last = "NO_HEARTBEAT";
    milliseconds wait = kBeat, ttl = kTtl;
    auto good = Clock::now();
    while (true) {
      Work copy = work;
      std::string known = last;
      Task<Beat> beating = claude_.Heartbeat(std::move(copy), std::move(known));
      auto beat = co_await WithTimeout(std::move(beating), wait);
      if (beat) {
        good = Clock::now();
        last = beat->last;
        if (beat->ttl_ms > 0) ttl = milliseconds(beat->ttl_ms);
        wait = std::clamp(ttl / 2, kShortestBeat, kBeat);
        if (beat->over) {
          lease_ = Lease::kOver;
          co_return Result<>{};
        }
      } else if (beat.error().code == Code::kConflict || Clock::now() - good > ttl) {
        // Somebody else may serve it now: nothing more is posted for it.
        lease_ = Lease::kLost;
        co_return std::unexpected(std::move(beat).error());
      } else if (beat.error().code != Code::kUnavailable && beat.error().code != Code::kTimeout) {
        co_return std::unexpected(std::move(beat).error());
      }
      SB_CO_TRYV(co_await Sleep(wait));
    }
  }

  // The machine ends on every way out; its files only when the session is over for good.
  Task<> PutAway() {
    if (box_.empty()) co_return Result<>{};
    Task<> ending = ended_ == ClaudeSession::End::kTerminated ? DeleteBox(api_, box_) : StopBox();
    auto done = co_await WithTimeout(std::move(ending), kCleanUp);
    if (!done) hooks_.say("could not stop the sandbox " + box_ + ": " + done.error().message);
    box_.clear();
    co_return Result<>{};
  }

  Task<> StopBox() {
    std::string path = "/v2/sandboxes/sessions/" + wire::EncodeComponent(session_) + "/stop";
    SB_CO_TRYV(co_await api_->Call("POST", std::move(path), std::nullopt));
    co_return Result<>{};
  }

  ClaudeApi claude_;
  client::ApiClient* api_;
  ClaudeWorkerOptions options_;
  ClaudeWorkerHooks hooks_;
  std::string id_;
  int served_ = 0;
  Lease lease_ = Lease::kHeld;
  std::optional<ClaudeSession::End> ended_;
  std::string box_, session_;  // of the item at hand; empty: none yet
};

}  // namespace

Task<int> RunClaudeWorker(client::ApiClient* api, ClaudeWorkerOptions options, ClaudeWorkerHooks hooks) {
  auto ex = co_await asio::this_coro::executor;
  Worker worker(ex, api, std::move(options), std::move(hooks));
  co_return co_await worker.Run();
}

}  // namespace sandbar::llm
