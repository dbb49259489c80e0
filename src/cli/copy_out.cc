// `sandbar cp` out of a sandbox. A file comes by the API's read, a directory as an archive that `tar` makes in the
// sandbox and TreeWriter takes apart here. The person's own files are never half replaced: what is copied gets its name
// when it is complete.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/ids.h"
#include "cli/copy.h"
#include "cli/guest_script.h"
#include "cli/output.h"
#include "cli/output_file.h"
#include "cli/signals.h"
#include "cli/tree_writer.h"
#include "wire/ndjson.h"

namespace sandbar::cli {
namespace {

namespace fs = std::filesystem;

// One archive in the sandbox, in a scratch directory whose name we choose: so it can be deleted at any time. The
// archive leaves out the scratch directory and other file systems.
constexpr char kPack[] =
    ": sandbar cp; umask 077; d=\"${TMPDIR:-/tmp}/$2\"; mkdir -- \"$d\" || exit; echo \"$d\"; "
    "LC_ALL=C exec tar -C \"$1\" --format=gnu --hard-dereference --one-file-system --exclude=\"$2\" "
    "-cf \"$d/tree\" .";
constexpr char kCleanUp[] = ": sandbar cp; rm -rf -- \"${TMPDIR:-/tmp}/$1\"";

Task<std::unique_ptr<http::ClientResponse>> ReadInGuest(ApiClient* api, std::string session, std::string path) {
  json::object body{{"path", std::move(path)}};
  http::ClientRequest request = api->Request("POST", SessionPath(session) + "/fs/read", wire::ToAsciiJson(body));
  co_return co_await api->Open(std::move(request));
}

// The bytes of an answer to an fd; how many there were.
Task<uint64_t> Save(http::ClientResponse* response, int fd) {
  uint64_t total = 0;
  for (;;) {
    SB_CO_TRY(std::string piece, co_await response->Read());
    if (piece.empty()) co_return total;
    total += piece.size();
    SB_CO_TRYV(WriteAll(fd, piece));
  }
}

Task<uint64_t> SaveAs(http::ClientResponse* response, std::string to, GuestFile about) {
  auto ex = co_await asio::this_coro::executor;
  Signals signals(ex, {SIGINT, SIGTERM, SIGHUP});
  SB_CO_TRY(OutputFile file, OutputFile::Open(std::move(to)));
  Task<uint64_t> saving = Save(response, file.fd());
  SB_CO_TRY(uint64_t total, co_await UnlessSignalled(&signals, 1, std::move(saving)));
  const OutputFile::About looks{about.mode, about.mtime};
  SB_CO_TRYV(file.Commit(looks));
  co_return total;
}

Task<int> FileOut(ApiClient* api, bool as_json, std::string session, const Source* source, std::string to,
                  GuestFile about) {
  std::error_code ec;
  if (fs::is_directory(to, ec)) to += (to.ends_with('/') ? "" : "/") + source->name;
  SB_CO_TRY(auto response, co_await ReadInGuest(api, std::move(session), source->path));
  SB_CO_TRY(uint64_t total, co_await SaveAs(response.get(), to, about));
  if (!as_json) co_return 0;
  json::object report{{"bytes", total}, {"to", to}};
  SB_CO_TRYV(Out(wire::NdjsonLine(report)));
  co_return 0;
}

void SetMode(const Fd& directory, const GuestFile& about) {
  const timespec times[2] = {{0, UTIME_OMIT}, {about.mtime, 0}};
  ::futimens(directory.get(), times);
  if (::fchmod(directory.get(), about.mode & 0777) != 0) Note("could not set the mode of the copy");
}

// The directory that the copy fills. One that does not exist yet is filled under a temporary name beside it and gets
// its own name when the copy is complete: half a copy never looks like a whole one.
class Target {
 public:
  static Result<Target> Open(const Source& source, std::string to) {
    struct stat st{};
    const bool there = ::stat(to.c_str(), &st) == 0;
    if (there && !S_ISDIR(st.st_mode)) return Fail(Code::kBadRequest, to + " exists and is no directory");
    const bool inside = there && !source.contents;
    if (inside) to += (to.ends_with('/') ? "" : "/") + source.name;
    while (to.size() > 1 && to.ends_with('/')) to.pop_back();
    // The directory that was named may be reached by a link of the caller's; one inside of it may not.
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (inside ? O_NOFOLLOW : 0);
    Fd directory(::open(to.c_str(), flags));
    if (directory) return Target(std::move(to), "", std::move(directory));
    if (errno != ENOENT) return FailErrno(to);
    std::string part = to + "." + NewLabel("part-", 8);
    if (::mkdir(part.c_str(), 0700) != 0) return FailErrno("make " + to);
    directory = Fd(::open(part.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    Target target(std::move(to), std::move(part), std::move(directory));
    if (!target.directory_) return FailErrno("open " + target.path_);
    return target;
  }
  Target(Target&& other) noexcept
      : path_(std::move(other.path_)), part_(std::exchange(other.part_, "")), directory_(std::move(other.directory_)) {}
  Target& operator=(Target&&) = delete;
  ~Target() {
    if (part_.empty()) return;
    std::error_code ec;
    fs::remove_all(part_, ec);
    if (ec) Note("could not delete " + part_ + ", a part of the copy: " + ec.message());
  }

  const std::string& path() const { return path_; }
  // Whether it does not have its name yet: then all of it goes when the copy fails.
  bool is_new() const { return !part_.empty(); }
  Fd Root() const { return Fd(::fcntl(directory_.get(), F_DUPFD_CLOEXEC, 0)); }
  // The copy is complete. A directory that was there keeps its own mode.
  Result<> Commit(const GuestFile& about) {
    if (part_.empty()) return {};
    int failed = ::renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
    // Some file systems have no such rename. The plain one does not replace a directory that has files.
    if (failed != 0 && errno == EINVAL) failed = ::rename(part_.c_str(), path_.c_str());
    if (failed != 0) return FailErrno("make " + path_);
    part_.clear();
    SetMode(directory_, about);
    return {};
  }

 private:
  Target(std::string path, std::string part, Fd directory)
      : path_(std::move(path)), part_(std::move(part)), directory_(std::move(directory)) {}

  std::string path_;
  std::string part_;  // empty: the directory has its name
  Fd directory_;
};

Task<> Unpack(ApiClient* api, std::string session, std::string archive, TreeWriter* writer) {
  SB_CO_TRY(auto response, co_await ReadInGuest(api, std::move(session), std::move(archive)));
  wire::TarReader tar(writer, TreeWriter::kTakes);
  for (;;) {
    SB_CO_TRY(std::string piece, co_await response->Read());
    if (piece.empty()) break;
    SB_CO_TRYV(tar.Feed(piece));
  }
  SB_CO_TRYV(tar.Finish());
  co_return writer->Finish();
}

// The lines that tar said, each about something that is not in the archive.
std::vector<std::string> Remarks(const std::string& err) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < err.size();) {
    const size_t end = std::min(err.find('\n', at), err.size());
    std::string line = err.substr(at, end - at);
    at = end + 1;
    const bool summary = line.contains("Exiting with failure status") || line.contains("file is the archive");
    if (!line.empty() && !summary) lines.push_back(std::move(line));
  }
  return lines;
}

// Packs the source in the sandbox and unpacks it here. What tar left out is added to `left_out`.
Task<> Transfer(ApiClient* api, Signals* signals, std::string session, GuestScript pack, TreeWriter* writer,
                std::vector<std::string>* left_out) {
  SB_CO_TRY(Ran packed, co_await RunUnlessSignalled(api, signals, session, std::move(pack)));
  const std::string scratch = packed.out.substr(0, packed.out.find('\n'));
  if (!scratch.starts_with('/'))
    co_return Fail(Code::kUnavailable, "in the sandbox: " + Printable(packed.err.substr(0, 400)));
  *left_out = Remarks(packed.err);
  Task<> unpacking = Unpack(api, std::move(session), scratch + "/tree", writer);
  auto unpacked = co_await UnlessSignalled(signals, 1, std::move(unpacking));
  // Without an archive its maker's complaint is the reason.
  if (!unpacked && packed.code != 0 && writer->files() == 0 && !left_out->empty())
    co_return Fail(Code::kUnavailable, "in the sandbox: " + Printable(left_out->front().substr(0, 400)));
  co_return unpacked;
}

// The error of a copy that did not get to its end, with what is here of it.
std::unexpected<Error> Incomplete(Error error, const Target& target, uint64_t files) {
  if (target.is_new()) {
    error.message += "; nothing was copied to " + target.path();
  } else {
    error.message += fmt::format("; the copy is not complete: {} file{} of it {} in {}", files, files == 1 ? "" : "s",
                                 files == 1 ? "is" : "are", target.path());
  }
  return std::unexpected(std::move(error));
}

Task<int> TreeOut(ApiClient* api, bool as_json, std::string session, const Source* source, std::string to,
                  GuestFile about) {
  auto ex = co_await asio::this_coro::executor;
  Signals signals(ex, {SIGINT, SIGTERM, SIGHUP});
  SB_CO_TRY(Target target, Target::Open(*source, std::move(to)));
  TreeWriter writer(target.Root());
  std::vector<std::string> left_out;
  const std::string scratch = NewLabel(".sandbar-cp-", 16);
  GuestScript pack{kPack, {source->path, scratch}, {}, false};
  auto copied = co_await Transfer(api, &signals, session, std::move(pack), &writer, &left_out);
  GuestScript clean_up{kCleanUp, {scratch}, {}, false};
  Task<Ran> cleaning = RunInGuest(api, std::move(session), std::move(clean_up));
  auto cleaned = co_await UnlessSignalled(&signals, signals.count() + 1, std::move(cleaning));
  if (!cleaned) Note("could not delete the temporary " + scratch + " in the sandbox: " + cleaned.error().message);
  if (!copied) co_return Incomplete(std::move(copied).error(), target, writer.files());
  SB_CO_TRYV(target.Commit(about));
  if (as_json) {
    json::object report{{"copied", writer.files()}, {"bytes", writer.bytes()}, {"to", target.path()}};
    SB_CO_TRYV(Out(wire::NdjsonLine(report)));
  } else {
    Note(fmt::format("copied {} file{} to {}", writer.files(), writer.files() == 1 ? "" : "s", target.path()));
  }
  const uint64_t count = left_out.size() + writer.left_out_count();
  left_out.insert(left_out.end(), writer.left_out().begin(), writer.left_out().end());
  co_return NameLeftOut(left_out, count, as_json);
}

}  // namespace

Task<int> CopyOut(ApiClient* api, bool as_json, Place from, std::string to) {
  SB_CO_TRY(std::string session, co_await SessionOf(api, from.sandbox, true));
  const Source source = SourceOf(from.path);
  if (to == "-") {
    SB_CO_TRY(auto response, co_await ReadInGuest(api, std::move(session), from.path));
    SB_CO_TRYV(co_await Save(response.get(), 1));
    co_return 0;
  }
  SB_CO_TRY(auto about, co_await StatInGuest(api, session, source.path));
  if (!about) co_return Fail(Code::kNotFound, source.path + " does not exist in " + from.sandbox);
  if (S_ISDIR(about->mode))
    co_return co_await TreeOut(api, as_json, std::move(session), &source, std::move(to), *about);
  co_return co_await FileOut(api, as_json, std::move(session), &source, std::move(to), *about);
}

}  // namespace sandbar::cli
