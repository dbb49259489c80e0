#include "spawner/machines/gvisor_config.h"

#include <array>
#include <cstdio>

#include "os/caps.h"

namespace sandbar::spawner {
namespace {

std::string List(const std::vector<std::string>& texts) {
  std::string out;
  for (const auto& t : texts) out += (out.empty() ? "" : ",") + JsonQuote(t);
  return "[" + out + "]";
}

std::string Capabilities() {
  const std::string list = List(os::CapabilityNames(os::kGuestCapabilities));
  // Inheritable and ambient stay empty, as in a machine of class 1.
  return R"({"bounding":)" + list + R"(,"effective":)" + list + R"(,"permitted":)" + list + "}";
}

std::string Mounts(const std::vector<GvisorBind>& binds) {
  std::string out = R"({"destination":"/proc","type":"proc","source":"proc"})";
  for (const GvisorBind& b : binds) {
    out += R"(,{"type":"bind","source":)" + JsonQuote(b.source) + R"(,"destination":)" + JsonQuote(b.target) +
           R"(,"options":["rbind","nosuid","nodev",)" + (b.writable ? R"("rw"]})" : R"("ro"]})");
  }
  return "[" + out + "]";
}

}  // namespace

std::string JsonQuote(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
      continue;
    }
    std::array<char, 8> code{};
    std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(c));
    out += code.data();
  }
  return out + "\"";
}

std::string GvisorConfig(const GvisorJail& jail) {
  return R"({"ociVersion":"1.0.2","process":{"terminal":false,"user":{"uid":0,"gid":0},"cwd":"/","args":)" +
         List(jail.args) + R"(,"env":["PATH=/usr/local/bin:/usr/bin:/bin"],"capabilities":)" + Capabilities() +
         R"(,"rlimits":[{"type":"RLIMIT_NOFILE","hard":65536,"soft":4096}]},"root":{"path":"/root"},"hostname":)" +
         JsonQuote(jail.hostname) + R"(,"mounts":)" + Mounts(jail.binds) +
         R"(,"linux":{"namespaces":[{"type":"pid"},{"type":"ipc"},{"type":"uts"},{"type":"mount"},)"
         R"({"type":"network","path":"/proc/self/ns/net"}]}})";
}

}  // namespace sandbar::spawner
