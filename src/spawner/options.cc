#include "spawner/options.h"

#include <charconv>
#include <functional>
#include <map>

#include "base/log_level.h"

namespace sandbar::spawner {
namespace {

template <class T>
Result<> Number(const std::string& text, T* out) {
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if (ec != std::errc() || end != text.data() + text.size()) return Fail(Code::kBadRequest, "not a number: " + text);
  return {};
}

Result<> Fallbacks(const std::string& text, std::set<std::string>* out) {
  size_t at = 0;
  while (at <= text.size()) {
    size_t comma = std::min(text.find(',', at), text.size());
    std::string name = text.substr(at, comma - at);
    if (name != "overlay" && name != "erofs" && name != "quota")
      return Fail(Code::kBadRequest, "unknown fallback: " + name);
    out->insert(name);
    at = comma + 1;
  }
  return {};
}

Result<> DiskLimit(const std::string& text, bool* out) {
  if (text != "btrfs" && text != "none") return Fail(Code::kBadRequest, "--disk-limit is btrfs or none");
  *out = text == "btrfs";
  return {};
}

Result<> LogLevel(const std::string& text, log::Level* out) {
  const auto level = log::ParseLevel(text);
  if (!level) return Fail(Code::kBadRequest, "--log is debug, info, warn or error");
  *out = *level;
  return {};
}

Result<> VmStart(const std::string& text, bool* out) {
  if (text != "restore" && text != "boot") return Fail(Code::kBadRequest, "--vm-start is restore or boot");
  *out = text == "restore";
  return {};
}

}  // namespace

std::string Usage() {
  return "usage: sandbar-spawner --data DIR --images DIR --guest FILE --daemon-uid N --daemon-gid N [--ephemeral]\n"
         "         [--foreground] [--extra-ca FILE] [--host-share PERCENT] [--disk-pool-bytes N]\n"
         "         [--disk-limit btrfs|none] [--scanner FILE] [--kernel DIR] [--qemu FILE] [--vm-start restore|boot]\n"
         "         [--runsc FILE|none] [--gvisor-platform systrap|ptrace|kvm] [--force-fallback overlay,erofs,quota]\n"
         "         [--allow-nesting] [--log debug|info|warn|error] [--stage FILE]\n";
}

Result<Options> ParseOptions(const std::vector<std::string>& args) {
  Options o;
  auto text = [](std::string* to) {
    return [to](const std::string& v) -> Result<> {
      *to = v;
      return {};
    };
  };
  std::map<std::string, std::function<Result<>(const std::string&)>> with_value = {
      {"--data", text(&o.data)},
      {"--images", text(&o.images)},
      {"--guest", text(&o.guest)},
      {"--stage", text(&o.stage)},
      {"--scanner", text(&o.scanner)},
      {"--kernel", text(&o.kernel)},
      {"--qemu", text(&o.qemu)},
      {"--extra-ca", text(&o.extra_ca)},
      {"--runsc", text(&o.runsc)},
      {"--gvisor-platform", text(&o.gvisor_platform)},
      {"--daemon-uid", [&](const std::string& v) { return Number(v, &o.daemon_uid); }},
      {"--daemon-gid", [&](const std::string& v) { return Number(v, &o.daemon_gid); }},
      {"--host-share", [&](const std::string& v) { return Number(v, &o.host_share); }},
      {"--disk-pool-bytes", [&](const std::string& v) { return Number(v, &o.disk_pool_bytes); }},
      {"--log", [&](const std::string& v) { return LogLevel(v, &o.log); }},
      {"--vm-start", [&](const std::string& v) { return VmStart(v, &o.vm_restore); }},
      {"--disk-limit", [&](const std::string& v) { return DiskLimit(v, &o.disk_limits); }},
      {"--force-fallback", [&](const std::string& v) { return Fallbacks(v, &o.force_fallback); }},
  };
  std::map<std::string, bool*> flags = {
      {"--ephemeral", &o.ephemeral}, {"--foreground", &o.foreground}, {"--allow-nesting", &o.allow_nesting}};
  for (size_t i = 0; i < args.size(); ++i) {
    if (auto f = flags.find(args[i]); f != flags.end()) {
      *f->second = true;
      continue;
    }
    auto it = with_value.find(args[i]);
    if (it == with_value.end()) return Fail(Code::kBadRequest, "unknown option: " + args[i]);
    if (i + 1 == args.size()) return Fail(Code::kBadRequest, args[i] + " needs a value");
    SB_TRYV(it->second(args[++i]));
  }
  for (auto [name, value] :
       {std::pair("--data", &o.data), std::pair("--images", &o.images), std::pair("--guest", &o.guest)}) {
    if (value->empty()) return Fail(Code::kBadRequest, std::string(name) + " is required");
    if (value->front() != '/') return Fail(Code::kBadRequest, std::string(name) + " must be an absolute path");
  }
  if (o.kernel.empty()) o.kernel = o.images.substr(0, o.images.rfind('/')) + "/kernel";
  if (o.host_share < 1 || o.host_share > 100) return Fail(Code::kBadRequest, "--host-share is 1 to 100");
  return o;
}

}  // namespace sandbar::spawner
