// `sandbar kernel ls|cloud|build|use`: the guest kernel of microVMs, on this machine's disk. Making one is the job of
// tools/kernel.sh.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/script.h"
#include "wire/ndjson.h"

namespace sandbar::cli {
namespace {

namespace fs = std::filesystem;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string Trimmed(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

json::object Describe(const fs::path& file, std::string about, bool current) {
  std::error_code ec;
  auto bytes = fs::file_size(file, ec);
  return {{"path", file.string()}, {"about", std::move(about)}, {"bytes", ec ? 0 : bytes}, {"current", current}};
}

// The one that servers find, and those that were built before and can be had again in a moment.
json::array Kernels(const std::string& dir) {
  json::array out;
  std::error_code ec;
  if (fs::exists(dir + "/kernel", ec))
    out.push_back(Describe(dir + "/kernel", Trimmed(ReadFile(dir + "/about").value_or("unknown")), true));
  std::vector<fs::path> built;
  for (const auto& entry : fs::directory_iterator(fs::path(dir).parent_path(), ec))
    if (entry.is_regular_file(ec) && entry.path().filename().string().starts_with("kernel-"))
      built.push_back(entry.path());
  std::ranges::sort(built);
  for (const auto& file : built)
    out.push_back(Describe(file, "built from linux-source-6.1, " + file.filename().string().substr(7), false));
  return out;
}

Result<> List(const Options& options, const std::string& dir) {
  json::array kernels = Kernels(dir);
  if (options.json) return Out(wire::NdjsonLine(json::object{{"kernels", std::move(kernels)}}));
  if (kernels.empty()) Note("no guest kernel in " + dir + "; sudo ./sandbar kernel cloud");
  std::vector<std::vector<std::string>> rows{{"", "KERNEL", "SIZE", "PATH"}};
  for (const auto& value : kernels) {
    const json::object& k = value.as_object();
    rows.push_back({k.at("current").as_bool() ? "*" : "", Text(k, "about"), Bytes(k.at("bytes").to_number<uint64_t>()),
                    Text(k, "path")});
  }
  return Out(Table(rows));
}

Result<> Make(const Options& options, const KernelCommand& command, const std::string& dir) {
  if (::geteuid() != 0)
    return FailNeedsRoot("changing the guest kernel needs root", "sudo ./sandbar kernel " + command.verb + " …");
  if (::setenv("SANDBAR_KERNEL", dir.c_str(), 1) != 0) return FailErrno("setenv");
  std::vector<std::string> words = {command.verb};
  if (!command.file.empty()) words.push_back(command.file);
  SB_TRYV(RunScript("tools/kernel.sh", words));
  Note("servers take it at their next start: sudo ./sandbar down && sudo ./sandbar up");
  if (!options.json) return {};
  return Out(wire::NdjsonLine(Kernels(dir).at(0).as_object()));
}

}  // namespace

std::string KernelDirectory(const std::optional<std::string>& given, const std::optional<std::string>& images) {
  if (given) return *given;
  std::string beside = images.value_or(Environment("SANDBAR_IMAGES"));
  if (beside.empty()) beside = kDefaultImages;
  return fs::path(beside).parent_path() / "kernel";
}

int Kernel(const Options& options, const KernelCommand& command) {
  const std::string dir = KernelDirectory(command.dir, std::nullopt);
  auto done = command.verb == "ls" ? List(options, dir) : Make(options, command, dir);
  if (done) return 0;
  Complain(done.error(), options.json);
  return done.error().code == Code::kForbidden ? 2 : kExitOurs;
}

}  // namespace sandbar::cli
