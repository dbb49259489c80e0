#include "daemon/settings.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "base/fd.h"
#include "base/files.h"
#include "base/ids.h"
#include "cli/output.h"
#include "cli/server_endpoint.h"
#include "wire/json_parse.h"
#include "wire/ndjson.h"

namespace sandbar::daemon {
namespace {

namespace json = boost::json;
using Settings = std::map<std::string, std::string>;

constexpr off_t kMaxRecord = 1 << 20;

std::string RecordPath(const std::string& data) {
  return data + "/settings.json";
}

void Flatten(const toml::table& table, const std::string& prefix, Settings* out) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const toml::table* inner = node.as_table()) {
      Flatten(*inner, name + ".", out);
    } else if (const auto text = node.value_exact<std::string>()) {
      (*out)[name] = *text;
    } else {
      std::ostringstream value;
      value << toml::node_view<const toml::node>(node);
      (*out)[name] = value.str();
    }
  }
}

Result<Settings> FromFile(const std::string& path) {
  SB_TRY(std::string text, ReadFile(path));
  Settings out;
  try {
    Flatten(toml::parse(text, path), "", &out);
  } catch (const std::exception& e) {
    return Fail(Code::kBadRequest, path + ": " + e.what());
  }
  return out;
}

// The flags' names, with the key of the file that each stands for.
std::map<std::string, std::pair<std::string, std::optional<std::string>>> Flags(const cli::ServeCommand& f) {
  std::optional<std::string> insecure;
  if (f.insecure_http) insecure = "true";
  return {{"listen", {"server.listen", f.listen}},       {"images", {"images.dir", f.images}},
          {"tls-cert", {"server.tls_cert", f.tls_cert}}, {"tls-key", {"server.tls_key", f.tls_key}},
          {"isolation", {"isolation", f.isolation}},     {"insecure-http", {"server.insecure_http", insecure}}};
}

// The settings of the file, those of the flags, and all of them with the defaults of what `up` and `restart` can set.
struct Named {
  Settings file, flags, all;
};

Result<Named> NamedSettings(const Config& config, const cli::ServeCommand& flags) {
  Named out;
  if (flags.config) {
    SB_TRY(out.file, FromFile(*flags.config));
  }
  for (const auto& [flag, value] : Flags(flags))
    if (value.second) out.flags[value.first] = *value.second;
  out.all = out.file;
  for (const auto& [key, value] : out.flags) out.all[key] = value;
  const std::string host = config.host.contains(':') ? "[" + config.host + "]" : config.host;
  out.all["server.listen"] = host + ":" + std::to_string(config.port);
  out.all["images.dir"] = config.images;
  out.all["isolation"] = config.domain.isolation;
  return out;
}

// The spawner has it from its own start, and it outlives the server.
bool SpawnersOwn(const std::string& key) {
  static const std::set<std::string> kKeys = {
      "images.dir",    "limits.host_share", "microvm.kernel",          "microvm.qemu",
      "microvm.start", "extra_ca",          "allow_nesting_on_class1", "user"};
  return kKeys.contains(key) || key.starts_with("disk.") || key.starts_with("gvisor.");
}

}  // namespace

Result<json::object> SettingsRecord(const Config& config, const cli::ServeCommand& flags) {
  SB_TRY(Named named, NamedSettings(config, flags));
  json::object settings, given;
  json::array of_file;
  for (const auto& [key, value] : named.all) settings[key] = value;
  for (const auto& [key, value] : named.file)
    if (!named.flags.contains(key)) of_file.emplace_back(key);
  for (const auto& [flag, value] : Flags(flags))
    if (value.second) given[flag] = *value.second;
  if (flags.config) given["config"] = *flags.config;
  return json::object{{"settings", std::move(settings)},
                      {"ofFile", std::move(of_file)},
                      {"flags", std::move(given)},
                      {"background", flags.ready_fd >= 0 && flags.lifeline_fd < 0}};
}

Result<> WriteRecord(const std::string& data, const json::object& record) {
  // Aside and renamed: the directory is sticky and root's, so nobody else can put something in its place.
  const std::string aside = data + "/" + NewLabel("settings-", 12);
  Fd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return FailErrno("make " + aside);
  SB_TRYV(cli::WriteAll(file.get(), wire::NdjsonLine(record)));
  if (::rename(aside.c_str(), RecordPath(data).c_str()) != 0) return FailErrno("rename " + aside);
  return {};
}

Result<json::object> ReadRecord(const std::string& data) {
  const std::string path = RecordPath(data);
  Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ENOENT)
    return cli::FailWithFix(Code::kNotFound,
                            "an older version started the running server and did not record its options",
                            "end its `sandbar serve` process with SIGTERM (sandboxes go on), then: sudo ./sandbar up");
  if (!file) return FailErrno(path);
  struct stat st{};
  if (::fstat(file.get(), &st) != 0) return FailErrno(path);
  if (!S_ISREG(st.st_mode) || st.st_uid != 0 || (st.st_mode & 022) != 0 || st.st_size > kMaxRecord)
    return Fail(Code::kForbidden, path + " is not a file of root's: remove it");
  std::string text(static_cast<size_t>(st.st_size), '\0');
  const ssize_t n = ::read(file.get(), text.data(), text.size());
  if (n < 0) return FailErrno(path);
  text.resize(static_cast<size_t>(n));
  SB_TRY(json::value value, wire::ParseJson(text));
  if (!value.is_object()) return Fail(Code::kProtocol, path + " is damaged");
  return std::move(value.as_object());
}

Result<std::vector<cli::Difference>> CompareSettings(const cli::Options& options, const cli::ServeCommand& flags,
                                                     const json::object& record) {
  SB_TRY(Config config, LoadConfig(options.data, flags, ThisHost()));
  SB_TRY(Named asked, NamedSettings(config, flags));
  const json::object& in_force = cli::Object(record, "settings");
  std::set<std::string> keys;
  for (const Settings& named : {asked.file, asked.flags})
    for (const auto& [key, value] : named) keys.insert(key);
  // What another file said, or this one before it was changed, is not asked for any more.
  if (const json::value* before = record.if_contains("ofFile"); flags.config && before != nullptr && before->is_array())
    for (const json::value& key : before->as_array())
      if (key.is_string()) keys.insert(std::string(key.as_string()));
  std::vector<cli::Difference> out;
  for (const std::string& key : keys) {
    const std::string running = cli::Text(in_force, key);
    const auto it = asked.all.find(key);
    const std::string wanted = it == asked.all.end() ? "" : it->second;
    if (running != wanted) out.push_back({key, running, wanted, SpawnersOwn(key)});
  }
  return out;
}

}  // namespace sandbar::daemon
