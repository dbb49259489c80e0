#include "cli/archive_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/engine_table.h"
#include "base/fd.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/zstd_file.h"
#include "wire/json_parse.h"
#include "wire/tar.h"

namespace sandbar::cli {
namespace {

constexpr size_t kMaxSettings = 1 << 20;
// Headers, padding and what follows the end. Three files need a few kilobytes of it.
constexpr uint64_t kMaxOverhead = 1 << 20;
// Files compress by a factor of 3 to 30. An archive may say more than that, but then its size needs the importer's
// word.
constexpr uint64_t kMaxRatio = 100;
constexpr uint64_t kAlwaysFine = 256ULL << 20;
constexpr uint64_t kMaxUnasked = 64ULL << 30;
constexpr int64_t kMaxTimeoutMs = 3'600'000;  // as `run` gives it

struct Limits {
  uint64_t files = 0;  // of files.tar
  bool asked = false;  // by --max-size
  uint64_t archive = 0;
};

// The three files of an archive, and no others, each once.
class Unpacker final : public wire::TarSink {
 public:
  Unpacker(std::string dir, Limits limits) : dir_(std::move(dir)), limits_(limits) {}
  Result<> OnEntry(const wire::TarEntry& entry) override {
    const bool known = entry.name == "sandbar.json" || entry.name == "deleted" || entry.name == "files.tar";
    if (!known || entry.directory)
      return Fail(Code::kBadRequest, "not an archive of sandbar: it holds " + QuoteForeign(entry.name));
    if (!seen_.insert(entry.name).second) return Fail(Code::kBadRequest, "the archive has " + entry.name + " twice");
    if (entry.name == "sandbar.json" && entry.size > kMaxSettings) return TooLarge(entry, kMaxSettings);
    if (entry.name == "deleted" && entry.size > kMaxDeletedList) return TooLarge(entry, kMaxDeletedList);
    if (entry.name == "files.tar" && entry.size > limits_.files) return TooMuch(entry.size);
    SB_TRYV(CheckRoom(entry));
    const std::string path = dir_ + "/" + entry.name;
    file_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file_) return FailErrno(path);
    held_ += entry.size;
    return {};
  }
  Result<> OnData(std::string_view bytes) override { return WriteAll(file_.get(), bytes); }
  Result<> OnEntryEnd() override { return {}; }
  bool complete() const { return seen_.size() == 3; }
  uint64_t held() const { return held_; }

 private:
  static Result<> TooLarge(const wire::TarEntry& entry, uint64_t limit) {
    return Fail(Code::kTooLarge, fmt::format("{} of the archive says that it has {} bytes; at most {} are read",
                                             entry.name, entry.size, limit));
  }
  Result<> TooMuch(uint64_t size) const {
    std::string what = fmt::format("the files in the archive have {} unpacked", Bytes(size));
    if (limits_.asked) return Fail(Code::kTooLarge, what + ", more than --max-size says");
    what += fmt::format(", the archive itself {}: nothing was unpacked", Bytes(limits_.archive));
    return FailWithFix(Code::kTooLarge, what, fmt::format("if you trust it: --max-size {}", size));
  }
  // A small file can say that it holds terabytes.
  Result<> CheckRoom(const wire::TarEntry& entry) const {
    struct statvfs fs{};
    if (::statvfs(dir_.c_str(), &fs) != 0) return FailErrno(dir_);
    const uint64_t room = static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize;
    if (entry.size <= room / 2) return {};
    return Fail(Code::kTooLarge, fmt::format("{} of the archive has {} bytes; {} takes {} at most (set TMPDIR)",
                                             entry.name, entry.size, dir_, room / 2));
  }

  const std::string dir_;
  const Limits limits_;
  Fd file_;
  std::set<std::string> seen_;
  uint64_t held_ = 0;
};

Result<json::object> ReadSettings(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return FailErrno(path);
  std::string text(kMaxSettings, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::read(file.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno(path);
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  text.resize(size);
  SB_TRY(json::value settings, wire::ParseJson(text, {.bytes = kMaxSettings}));
  if (!settings.is_object() || Number(settings.as_object(), "format") != kArchiveFormat)
    return Fail(Code::kBadRequest, "the archive has a format that this version does not know");
  return std::move(settings.as_object());
}

// Tags that the server acts on are not the archive's to set.
bool IsPlainTag(std::string_view name) {
  return !name.starts_with("sandbar:") && !name.starts_with("sandbar.");
}

// The class that the archive demands, in whichever way; 0: none.
int64_t DemandedClass(const json::object& settings) {
  const json::object& demand = Object(settings, "isolation");
  int64_t demanded = Number(demand, "minClass");
  const std::string engine = Text(demand, "engine"), tag = Text(Object(settings, "tags"), "sandbar:min-isolation");
  // The name of an engine of class 1 demands nothing: every engine has that class or a higher one.
  const EngineTraits* traits = FindEngine(engine);
  if (traits != nullptr && traits->isolation_class > 1) demanded = std::max<int64_t>(demanded, traits->isolation_class);
  if (tag.size() == 1 && tag[0] >= '1' && tag[0] <= '3') demanded = std::max<int64_t>(demanded, tag[0] - '0');
  return std::clamp<int64_t>(demanded, 0, 3);
}

bool IsTrue(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_bool() && value->as_bool();
}

std::vector<int> ArchivedPorts(const json::object& settings) {
  std::vector<int> ports;
  const json::value* list = settings.if_contains("ports");
  if (list == nullptr || !list->is_array()) return ports;
  for (const json::value& port : list->as_array())
    if (port.is_int64() && port.as_int64() > 0 && port.as_int64() < 65536 && ports.size() < 16)
      ports.push_back(static_cast<int>(port.as_int64()));
  return ports;
}

}  // namespace

std::string QuoteForeign(std::string_view text) {
  return "\"" + Printable(text.substr(0, 200)) + "\"";
}

Result<json::object> ReadArchive(const std::string& file, const std::string& to, std::optional<uint64_t> max_size) {
  Fd archive(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!archive) return FailErrno(file);
  struct stat st{};
  if (::fstat(archive.get(), &st) != 0) return FailErrno(file);
  if (!S_ISREG(st.st_mode)) return Fail(Code::kBadRequest, file + " is not a regular file");
  const auto size = static_cast<uint64_t>(st.st_size);
  const uint64_t by_ratio = size > kMaxUnasked / kMaxRatio ? kMaxUnasked : size * kMaxRatio;
  Limits limits{max_size.value_or(std::max(kAlwaysFine, by_ratio)), max_size.has_value(), size};
  ZstdReader in(std::move(archive));
  Unpacker files(to, limits);
  wire::TarReader tar(&files);
  for (uint64_t read = 0;;) {
    SB_TRY(std::string piece, in.Read());
    if (piece.empty()) break;
    read += piece.size();
    SB_TRYV(tar.Feed(piece));
    if (read > files.held() + kMaxOverhead)
      return Fail(Code::kBadRequest, file + " is no archive of sandbar: it holds more than its three files");
  }
  SB_TRYV(tar.Finish());
  if (!files.complete()) return Fail(Code::kBadRequest, file + " is not complete");
  return ReadSettings(to + "/sandbar.json");
}

ImportRequest RequestFor(const json::object& settings, const ImportCommand& command) {
  ImportRequest out;
  json::object& body = out.body;
  const std::string image = Text(settings, "image");
  body = {{"projectId", kProject},
          {"name", command.name.value_or(Text(settings, "name"))},
          {"image", image.substr(0, image.find('@'))},
          // Its files are all that an import brings: they are kept when it stops.
          {"persistent", true},
          // What is unpacked is a stranger's: its owner gives it a network when they have looked.
          {"networkPolicy", json::object{{"mode", "deny-all"}}}};
  json::object tags;
  for (const auto& [name, value] : Object(settings, "tags")) {
    if (IsPlainTag(name) && value.is_string()) tags[name] = value;
    if (!IsPlainTag(name) && name != "sandbar:min-isolation") out.not_taken.push_back("the tag " + QuoteForeign(name));
  }
  if (!tags.empty()) body["tags"] = std::move(tags);

  const int64_t timeout = Number(settings, "timeout");
  const bool fits = timeout > 0 && timeout <= kMaxTimeoutMs;
  body["timeout"] = command.timeout_ms.value_or(fits ? timeout : kMaxTimeoutMs);
  if (!command.timeout_ms && timeout > kMaxTimeoutMs)
    out.not_taken.push_back(fmt::format("a timeout of {} s (--timeout)", timeout / 1000));

  if (command.vcpus) body["resources"] = json::object{{"vcpus", *command.vcpus}};

  json::array ports(command.ports.begin(), command.ports.end());
  body["ports"] = std::move(ports);
  if (const auto archived = ArchivedPorts(settings); command.ports.empty() && !archived.empty())
    out.not_taken.push_back(fmt::format("published ports {} (--publish)", fmt::join(archived, ", ")));

  for (const char* key : {"snapshotExpiration", "keepLastSnapshots"})
    if (const json::value* value = settings.if_contains(key); value != nullptr && !value->is_null())
      out.not_taken.push_back(key);

  if (const int64_t demanded = DemandedClass(settings); demanded > 0)
    body["isolation"] = json::object{{"minClass", demanded}};
  AddDemand(command.isolation, &body);
  if (!command.isolation.nesting && IsTrue(settings, "nesting"))
    out.not_taken.push_back("containers inside (--nesting)");
  return out;
}

}  // namespace sandbar::cli
