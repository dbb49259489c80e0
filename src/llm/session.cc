#include "llm/session.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/ids.h"
#include "llm/transcript.h"

namespace sandbar::llm {
namespace {

// The sandbox outlives the run a little: it ends by itself when we are killed before we can delete it.
constexpr int64_t kGraceMs = 300'000;
constexpr auto kDeleteTime = std::chrono::minutes(2);

bool IsConfiguration(Code code) {
  return code == Code::kBadRequest || code == Code::kNotFound || code == Code::kUnsupported ||
         code == Code::kUnauthenticated || code == Code::kForbidden;
}

class Session {
 public:
  Session(client::ApiClient* api, RunOptions options, SessionHooks hooks)
      : api_(api), options_(std::move(options)), hooks_(std::move(hooks)), started_(NowMs()) {}

  Task<SessionDone> Run() {
    // Everything that can be wrong in the settings is found before a sandbox exists.
    if (auto ready = co_await Prepare(); !ready) {
      // Nothing ran yet, so what has stopped or is gone is something that was named.
      const bool named = IsConfiguration(ready.error().code) || ready.error().code == Code::kStopped;
      done_.outcome.status = named ? Status::kConfiguration : Status::kFailed;
      done_.outcome.reason = std::move(ready).error().message;
      done_.outcome.ms = NowMs() - started_;
      co_return Finish();
    }
    SB_CO_TRYV(co_await Race());
    if (!options_.sandbox) co_await Remove();
    done_.outcome = loop_->outcome();
    co_return Finish();
  }

 private:
  Task<> Prepare() {
    ModelOptions model_options{hooks_.environment};
    auto ex = co_await asio::this_coro::executor;
    SB_CO_TRY(model_, MakeModel(ex, options_.model, model_options));
    SB_CO_TRYV(ParseNet(options_.net));
    if (options_.upload) {
      SB_CO_TRY(files_, FilesBelow(*options_.upload));
    }
    SB_CO_TRYV(OpenFiles());
    BoxSpec spec{options_.image, options_.runtime, options_.from, options_.net, options_.limits.timeout_ms + kGraceMs};
    spec.engine = options_.engine;
    spec.min_class = options_.min_class;
    Task<Box> opening = options_.sandbox ? OpenBox(api_, *options_.sandbox) : CreateBox(api_, std::move(spec));
    SB_CO_TRY(box_, co_await std::move(opening));
    done_.sandbox = box_.name;
    tools_ = MakeMcpTools(api_, box_.name);
    Record record = [this](json::object event) { Add(std::move(event)); };
    loop_.emplace(model_.get(), tools_.get(), options_.limits, std::move(record));
    Add({{"type", "start"},
         {"prompt", options_.prompt},
         {"model", options_.model},
         {"sandbox", box_.name + ": " + box_.describe},
         {"maxSteps", options_.limits.max_steps},
         {"maxTokens", options_.limits.max_tokens},
         {"timeoutMs", options_.limits.timeout_ms}});
    co_return Result<>{};
  }

  // Where things shall go at the end: what cannot be written is better known before the work than after it.
  Result<> OpenFiles() {
    std::error_code ec;
    if (!options_.download.empty() && !std::filesystem::is_directory(options_.to, ec))
      return Fail(Code::kBadRequest, "--to " + options_.to + " is no directory");
    if (!options_.html.empty())
      if (auto made = WriteFile(options_.html, ""); !made) return Fail(Code::kBadRequest, made.error().message);
    auto transcript = Transcript::Open(options_.record, !options_.html.empty());
    if (!transcript) return Fail(Code::kBadRequest, transcript.error().message);
    transcript_ = std::move(*transcript);
    return {};
  }

  Task<> Race() {
    using namespace asio::experimental::awaitable_operators;
    Task<> work = Work();
    Task<int> stop = hooks_.stop();
    auto first = co_await (std::move(work) || std::move(stop));
    if (first.index() == 1) {
      loop_->End(Status::kInterrupted, "interrupted; the task is not finished");
    } else if (auto& result = std::get<0>(first); !result) {
      loop_->End(IsConfiguration(result.error().code) ? Status::kConfiguration : Status::kFailed,
                 result.error().message);
    }
    co_return Result<>{};
  }

  Task<> Work() {
    if (!files_.empty()) {
      Add({{"type", "note"}, {"text", fmt::format("uploading {} files", files_.size())}});
      auto sent = co_await WriteFiles(api_, box_, std::move(files_));
      if (!sent) co_return std::unexpected(std::move(sent).error().Context("upload"));
    }
    std::string system = SystemPrompt(box_, options_.sandbox ? "" : options_.net);
    std::string prompt = options_.prompt;
    SB_CO_TRYV(co_await loop_->Go(std::move(system), std::move(prompt)));
    // One that was there before may go on from its own snapshot.
    if (!options_.sandbox) SB_CO_TRYV(co_await StillThere(api_, box_));
    for (const std::string& glob : options_.download) {
      std::string pattern = glob, to = options_.to;
      auto files = co_await Download(api_, box_, std::move(pattern), std::move(to));
      if (!files) co_return Fail(Code::kIo, "--download " + glob + ": " + files.error().message);
      // Loud: whoever names a file wants it.
      if (files->empty()) co_return Fail(Code::kIo, "nothing in the sandbox matches --download " + glob);
      done_.files.insert(done_.files.end(), files->begin(), files->end());
    }
    co_return Result<>{};
  }

  Task<> Remove() {
    Task<> deleting = DeleteBox(api_, box_.name);
    auto gone = co_await WithTimeout(std::move(deleting), kDeleteTime);
    if (!gone) hooks_.say("could not delete the sandbox " + box_.name + ": " + gone.error().message);
    co_return Result<>{};
  }

  void Add(json::object event) {
    if (!options_.quiet)
      if (std::string line = ViewLine(event, NowMs() - started_); !line.empty()) hooks_.say(line);
    if (transcript_) transcript_->Add(std::move(event));
  }

  SessionDone Finish() {
    json::object end = ToJson(done_.outcome);
    end.erase("toolCalls");
    end["type"] = "end";
    Add(std::move(end));
    if (!transcript_) return std::move(done_);
    if (transcript_->failed()) Spoil("the transcript " + options_.record + ": " + transcript_->failed()->message);
    if (!options_.html.empty())
      if (auto written = WriteFile(options_.html, TranscriptHtml(transcript_->events())); !written)
        Spoil(written.error().message);
    return std::move(done_);
  }
  // What was asked for could not be delivered: an answer alone is no success.
  void Spoil(std::string why) {
    if (done_.outcome.status != Status::kAnswered) return;
    done_.outcome.status = Status::kFailed;
    done_.outcome.reason = std::move(why);
  }

  client::ApiClient* api_;
  RunOptions options_;
  SessionHooks hooks_;
  int64_t started_;
  SessionDone done_;
  Box box_;
  std::vector<client::TarItem> files_;
  std::optional<Transcript> transcript_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ToolBox> tools_;
  std::optional<ToolLoop> loop_;
};

}  // namespace

std::string SystemPrompt(const Box& box, const std::string& net) {
  std::string network = "Its network is limited by a policy.";
  if (net.starts_with("deny")) network = "It has no network.";
  if (net == "allow" || net == "allow-all") network = "It can reach the internet.";
  if (net.starts_with("allow:")) network = "It can reach only these hosts: " + net.substr(6) + ".";
  return "You work in a disposable Linux sandbox through the tools you are given; nothing you do there can harm "
         "anyone. The working directory is " +
         box.cwd + ". " + network +
         " Run the code you write and look at what it prints before you rely on it. A non-zero exit code is a result: "
         "read stderr, mend the cause and run it again. When the task is done, give the final answer without a tool "
         "call.";
}

Task<SessionDone> RunSession(client::ApiClient* api, RunOptions options, SessionHooks hooks) {
  Session session(api, std::move(options), std::move(hooks));
  co_return co_await session.Run();
}

}  // namespace sandbar::llm
