#include "daemon/image_command.h"

#include <unistd.h>

#include <filesystem>
#include <set>

#include "base/files.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/script.h"
#include "cli/server_endpoint.h"
#include "images/images.h"
#include "wire/json_parse.h"
#include "wire/ndjson.h"

namespace sandbar::daemon {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

std::string Directory(const cli::ImageCommand& command) {
  if (command.images) return *command.images;
  const char* dir = std::getenv("SANDBAR_IMAGES");
  return dir != nullptr && *dir != '\0' ? dir : cli::kDefaultImages;
}

uint64_t LayerBytes(const std::string& dir, const std::vector<std::string>& layers) {
  uint64_t total = 0;
  for (const auto& id : layers) {
    std::error_code ec;
    auto size = fs::file_size(dir + "/layers/" + id + ".erofs", ec);
    if (!ec) total += size;
  }
  return total;
}

Result<> List(const cli::Options& options, const std::string& dir) {
  std::error_code ec;
  if (!fs::exists(dir + "/manifests", ec)) {
    cli::Note("no images in " + dir + "; sudo ./sandbar image build universal");
    return options.json ? cli::Out("{\"images\":[]}\n") : Result<>{};
  }
  SB_TRY(auto list, images::Catalog(dir).List());
  std::vector<std::vector<std::string>> rows{{"IMAGE", "RUNTIME", "USER", "CWD", "SIZE", "DIGEST"}};
  json::array items;
  for (const auto& image : list) {
    uint64_t bytes = LayerBytes(dir, image.layers);
    rows.push_back({image.name, image.runtime.empty() ? "-" : image.runtime, image.user, image.cwd, cli::Bytes(bytes),
                    image.digest.substr(0, 19)});
    json::object item{{"name", image.name}, {"runtime", image.runtime}, {"digest", image.digest},
                      {"user", image.user}, {"cwd", image.cwd},         {"bytes", bytes}};
    items.emplace_back(std::move(item));
  }
  json::object report{{"images", std::move(items)}};
  return cli::Out(options.json ? wire::NdjsonLine(report) : cli::Table(rows));
}

Result<> Build(const std::string& dir, const std::vector<std::string>& names) {
  if (::setenv("SANDBAR_IMAGES", dir.c_str(), 1) != 0) return FailErrno("setenv");
  return cli::RunScript("images/build.sh", names);
}

struct Manifest {
  fs::path file;
  std::string name, runtime;
  std::vector<std::string> layers;
};

Result<std::vector<Manifest>> Manifests(const std::string& dir) {
  std::vector<Manifest> out;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(dir + "/manifests", ec)) {
    if (entry.path().extension() != ".json") continue;
    SB_TRY(std::string text, ReadFile(entry.path().string()));
    SB_TRY(json::value value, wire::ParseJson(text));
    if (!value.is_object()) continue;
    const json::object& o = value.as_object();
    Manifest m{entry.path(), cli::Text(o, "name"), cli::Text(o, "runtime"), {}};
    if (const auto* layers = o.if_contains("layers"); layers != nullptr && layers->is_array())
      for (const auto& layer : layers->as_array())
        if (layer.is_string()) m.layers.emplace_back(layer.as_string());
    out.push_back(std::move(m));
  }
  if (ec) return Fail(Code::kIo, dir + ": " + ec.message());
  return out;
}

// Takes the manifests away, then the layers that no other image uses. Running sandboxes keep their mounted layers: an
// unlinked file lives until its last user is gone.
Result<> Remove(const std::string& dir, const std::vector<std::string>& names) {
  SB_TRY(auto all, Manifests(dir));
  std::set<std::string> kept, dropped;
  for (const auto& name : names) {
    bool found = false;
    for (auto& m : all) {
      std::string stem = m.file.stem().string();
      bool same = m.name == name || m.name == name + ":latest" || stem == name || stem == "runtime-" + name;
      if (!same || m.file.empty()) continue;
      found = true;
      std::error_code ec;
      fs::remove(m.file, ec);
      if (ec) return Fail(Code::kIo, m.file.string() + ": " + ec.message());
      dropped.insert(m.layers.begin(), m.layers.end());
      m.file.clear();
    }
    if (!found) return Fail(Code::kNotFound, "no image '" + name + "' here; see: sandbar image ls");
  }
  for (const auto& m : all)
    if (!m.file.empty()) kept.insert(m.layers.begin(), m.layers.end());
  for (const auto& id : dropped) {
    std::error_code ec;
    if (!kept.contains(id) && id.find('/') == std::string::npos) fs::remove(dir + "/layers/" + id + ".erofs", ec);
  }
  return {};
}

}  // namespace

int ImageMain(const cli::Options& options, const cli::ImageCommand& command) {
  std::string dir = Directory(command);
  Result<> done;
  if (command.verb != "ls" && ::geteuid() != 0) {
    done = cli::FailNeedsRoot("changing images needs root", "sudo ./sandbar image " + command.verb + " …");
  } else if (command.verb == "ls") {
    done = List(options, dir);
  } else if (command.verb == "build") {
    done = Build(dir, command.names);
    if (done && options.json) done = cli::Out("{\"built\":true}\n");
  } else {
    done = Remove(dir, command.names);
    if (done && options.json) done = cli::Out("{\"removed\":true}\n");
  }
  if (done) return 0;
  cli::Complain(done.error(), options.json);
  return done.error().code == Code::kForbidden ? 2 : cli::kExitOurs;
}

}  // namespace sandbar::daemon
