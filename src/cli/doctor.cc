#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/fd.h"
#include "base/files.h"
#include "cli/called.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "wire/ndjson.h"

namespace sandbar::cli {
namespace {

namespace fs = std::filesystem;

enum class Verdict { kOk, kWarn, kBad };

struct Finding {
  std::string name;
  Verdict verdict = Verdict::kOk;
  std::string detail;
  std::string fix;
};

bool Exists(const std::string& path) {
  std::error_code ec;
  return fs::exists(path, ec);
}

Finding CheckRoot() {
  if (::geteuid() == 0) return {"root", Verdict::kOk, "running as root", ""};
  return {"root", Verdict::kWarn, "not root: client commands work, serving does not", "sudo ./sandbar doctor"};
}

// Whether the running kernel is at least this version.
bool KernelHas(int major, int minor) {
  utsname name{};
  ::uname(&name);
  int a = 0, b = 0;
  return std::sscanf(name.release, "%d.%d", &a, &b) == 2 && (a > major || (a == major && b >= minor));
}

Finding CheckKernel() {
  utsname name{};
  ::uname(&name);
  std::string release = name.release;
  if (KernelHas(6, 1)) return {"kernel", Verdict::kOk, release + " (6.1 or newer is needed)", ""};
  return {"kernel", Verdict::kBad, release + " is older than 6.1 (id-mapped overlay layers)",
          "apt-get install linux-image-amd64 && reboot"};
}

// What newer kernels do better; everything works without.
Finding CheckFallbacks() {
  std::vector<std::string> used;
  if (!KernelHas(6, 3)) used.push_back("devices of the sandbox belong to nobody (before 6.3)");
  if (!KernelHas(6, 7)) used.push_back("full btrfs quotas (before 6.7)");
  if (!KernelHas(6, 12)) used.push_back("image layers on loop devices (before 6.12)");
  if (!KernelHas(6, 13)) used.push_back("overlay layers at paths (before 6.13)");
  if (!Exists("/sys/fs/cgroup/cgroup.controllers")) used.push_back("control groups v1");
  return {"fallbacks", Verdict::kOk, used.empty() ? "none in use" : fmt::format("{}", fmt::join(used, "; ")), ""};
}

// One that cannot be used is no fault of the machine, unless it was chosen.
Finding CheckEngine(const EngineProbe& probe) {
  const std::string name = "engine " + probe.name;
  const std::string what = fmt::format("class {}{}", probe.isolation_class, probe.is_default ? ", the default" : "");
  if (!probe.why_not.empty()) return {name, Verdict::kWarn, what + ": not usable: " + probe.why_not, ""};
  if (!probe.error.empty()) return {name, Verdict::kBad, what + ": `true` did not run: " + probe.error, ""};
  return {name, Verdict::kOk, fmt::format("{}: created, ran `true`, deleted in {} ms", what, probe.ms), ""};
}

std::vector<Finding> CheckEngines(const Options& options, const std::vector<EngineProbe>& probes) {
  if (probes.empty())
    return {{"engines", Verdict::kWarn, "not tried: no server answers for " + options.data,
             "sudo ./sandbar up   # then the doctor again"}};
  std::vector<Finding> findings;
  for (const EngineProbe& probe : probes) findings.push_back(CheckEngine(probe));
  return findings;
}

Finding CheckPreviews(const PreviewProbe& probe) {
  if (probe.error.empty()) return {"previews", Verdict::kOk, "names lead to the server: " + probe.url, ""};
  const std::string what = probe.url + " does not lead to the server: " + probe.error;
  if (probe.url.contains(".localhost"))
    return {"previews", Verdict::kWarn,
            what + "; browsers and curl know .localhost by themselves, other programs may not",
            "apt-get install libnss-myhostname"};
  return {"previews", Verdict::kBad, what,
          "a DNS record for * below preview_domain with this server's address (docs/operations.md)"};
}

Finding CheckCgroups() {
  bool v2 = Exists("/sys/fs/cgroup/cgroup.controllers");
  bool v1 = Exists("/sys/fs/cgroup/memory/memory.limit_in_bytes") && Exists("/sys/fs/cgroup/pids");
  std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
  if (!v1 && !v2)
    return {
        "cgroups", Verdict::kBad, "no memory controller in /sys/fs/cgroup",
        "boot with cgroup_enable=memory, or give the container its cgroup: docker run --privileged --cgroupns=host"};
  if (::geteuid() == 0 && ::access(root.c_str(), W_OK) != 0)
    return {"cgroups", Verdict::kBad, root + " is read-only", "docker run --privileged --cgroupns=host …"};
  return {"cgroups", Verdict::kOk, v2 ? "v2" : "v1", ""};
}

// Tries it in a child, so that nothing of ours changes.
template <class F>
bool InChild(F f) {
  pid_t pid = ::fork();
  if (pid < 0) return false;
  if (pid == 0) ::_exit(f() ? 0 : 1);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Finding CheckNamespaces() {
  int flags = CLONE_NEWUSER;
  if (::geteuid() == 0)
    flags |= CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  if (InChild([flags] { return ::unshare(flags) == 0; }))
    return {"namespaces", Verdict::kOk, "user, mount, pid, net, …", ""};
  auto limit = ReadFile("/proc/sys/user/max_user_namespaces");
  if (limit && *limit == "0\n")
    return {"namespaces", Verdict::kBad, "user namespaces are switched off",
            "sysctl -w user.max_user_namespaces=100000"};
  return {"namespaces", ::geteuid() == 0 ? Verdict::kBad : Verdict::kWarn, "unshare is refused",
          "run as root on the host, or: docker run --privileged --cgroupns=host …"};
}

Finding CheckFilesystem(const std::string& name, bool required, const std::string& without) {
  auto known = ReadFile("/proc/filesystems");
  utsname kernel{};
  ::uname(&kernel);
  bool module =
      Exists(fmt::format("/lib/modules/{}/kernel/fs/{}", kernel.release, name == "overlay" ? "overlayfs" : name));
  bool loaded = known && known->find("\t" + name + "\n") != std::string::npos;
  if (loaded || module) return {name, Verdict::kOk, loaded ? "in the kernel" : "as a module", ""};
  return {name, required ? Verdict::kBad : Verdict::kWarn, "not in this kernel" + without, "modprobe " + name};
}

Finding CheckTool(const std::string& name, const std::string& package, const std::string& why) {
  for (const char* dir : {"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/", "/usr/local/bin/"})
    if (Exists(dir + name)) return {name, Verdict::kOk, std::string(dir) + name, ""};
  return {name, Verdict::kWarn, "missing; " + why, "apt-get install " + package};
}

Finding CheckLoop() {
  if (Exists("/dev/loop-control")) return {"loop", Verdict::kOk, "/dev/loop-control", ""};
  return {"loop", Verdict::kWarn, "no loop devices: disk limits per sandbox cannot be enforced", "modprobe loop"};
}

Finding CheckUser() {
  if (::getpwnam("sandbar") != nullptr) return {"user", Verdict::kOk, "sandbar", ""};
  return {"user", Verdict::kBad, "the system user 'sandbar' does not exist (the daemon runs as it)",
          "useradd --system --user-group --no-create-home --shell /usr/sbin/nologin sandbar"};
}

Finding CheckImages(const std::string& dir) {
  std::string names;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(dir + "/manifests", ec)) {
    std::string stem = entry.path().stem().string();
    if (entry.path().extension() == ".json" && !stem.starts_with("runtime-"))
      names += (names.empty() ? "" : ", ") + stem;
  }
  const std::string fix = "sudo ./sandbar image build universal";
  if (names.empty()) return {"images", Verdict::kBad, "none in " + dir, fix};
  if (Exists(dir + "/manifests/universal.json")) return {"images", Verdict::kOk, names, ""};
  return {"images", Verdict::kWarn, names + "; universal, the default of sandboxes that name no image, is not built",
          fix};
}

// The one that the server of this data directory started with, or the one that the next will find.
Finding CheckGuestKernel(const std::string& data, const std::optional<std::string>& images) {
  auto log = ReadFile(data + "/log/spawner.log");
  constexpr std::string_view kMark = " microvm: guest kernel ";
  if (size_t at = log ? log->rfind(kMark) : std::string::npos; at != std::string::npos) {
    at += kMark.size();
    return {"guest kernel", Verdict::kOk, log->substr(at, log->find('\n', at) - at), ""};
  }
  const std::string dir = KernelDirectory(std::nullopt, images);
  auto about = ReadFile(dir + "/about");
  if (!about)
    return {"guest kernel", Verdict::kWarn, "none in " + dir + ": no microVMs", "sudo ./sandbar kernel cloud"};
  return {"guest kernel", Verdict::kOk, about->substr(0, about->find('\n')) + " (" + dir + ")", ""};
}

Finding CheckDisk(const std::string& dir) {
  std::string at = dir;
  while (!Exists(at) && at.size() > 1) at = fs::path(at).parent_path().string();
  struct statvfs st{};
  if (::statvfs(at.c_str(), &st) != 0) return {"disk", Verdict::kWarn, "cannot look at " + at, ""};
  uint64_t free = static_cast<uint64_t>(st.f_bavail) * st.f_frsize;
  Finding out{"disk", Verdict::kOk, Bytes(free) + " free in " + at, ""};
  if (free < (3ULL << 30)) {
    out.verdict = free < (1ULL << 30) ? Verdict::kBad : Verdict::kWarn;
    out.fix = "free some space, or use another directory: --data DIR, SANDBAR_CACHE=DIR";
  }
  return out;
}

Finding CheckPort(const Options& options, const std::string& listen) {
  if (auto endpoint = ReadEndpoint(options.data)) return {"port", Verdict::kOk, "a server is at " + endpoint->url, ""};
  int port = std::atoi(listen.substr(listen.rfind(':') + 1).c_str());
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int one = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
    return {"port", Verdict::kOk, std::to_string(port) + " is free", ""};
  return {"port", Verdict::kWarn, std::to_string(port) + " is taken",
          "sandbar serve --listen 127.0.0.1:" + std::to_string(port + 1)};
}

// Which mechanisms the newest start of this data directory's spawner found: its own words.
Finding CheckInForce(const std::string& data) {
  auto log = ReadFile(data + "/log/spawner.log");
  constexpr std::string_view kMark = ", disk ";
  size_t at = log ? log->rfind(kMark) : std::string::npos;
  if (at == std::string::npos) return {"in force", Verdict::kOk, "no server has run in " + data + " yet", ""};
  std::string line = log->substr(at + 2, log->find('\n', at) - at - 2);
  if (line.starts_with("disk btrfs")) return {"in force", Verdict::kOk, line, ""};
  return {"in force", Verdict::kWarn, line + ": no disk limit per sandbox",
          "apt-get install btrfs-progs; modprobe btrfs"};
}

const char* Word(Verdict v) {
  switch (v) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kBad:
      return "bad";
  }
  return "bad";
}

std::string Render(const std::vector<Finding>& findings) {
  std::string out;
  for (const auto& f : findings) {
    Colour colour = f.verdict == Verdict::kOk     ? Colour::kGreen
                    : f.verdict == Verdict::kWarn ? Colour::kYellow
                                                  : Colour::kRed;
    out += fmt::format("{}  {:<24} {}\n", Paint(1, colour, fmt::format("{:<4}", Word(f.verdict))), f.name,
                       Printable(f.detail));
    if (!f.fix.empty()) out += fmt::format("      fix: {}\n", PrintableLines(AsCalled(f.fix)));
  }
  return out;
}

}  // namespace

int Doctor(const Options& options, const DoctorCommand& command, const ServerProbes& probes) {
  std::string images = command.images.value_or(kDefaultImages);
  std::vector<Finding> findings = {
      CheckRoot(),
      CheckKernel(),
      CheckFallbacks(),
      CheckNamespaces(),
      CheckCgroups(),
      CheckFilesystem("overlay", true, ""),
      CheckFilesystem("erofs", false, ": layers must be plain directories"),
      CheckFilesystem("btrfs", false, ": disk limits per sandbox cannot be enforced"),
      CheckLoop(),
      CheckTool("mkfs.btrfs", "btrfs-progs", "disk limits per sandbox cannot be enforced"),
      CheckTool("mmdebstrap", "mmdebstrap", "images cannot be built"),
      CheckTool("mkfs.erofs", "erofs-utils", "images cannot be built"),
      CheckUser(),
      CheckImages(images),
      CheckGuestKernel(options.data, command.images),
      CheckDisk(options.data),
      CheckInForce(options.data),
      CheckPort(options, command.listen.value_or(kDefaultListen)),
  };
  for (Finding& f : CheckEngines(options, probes.engines)) findings.push_back(std::move(f));
  if (probes.previews) findings.push_back(CheckPreviews(*probes.previews));
  bool bad = false;
  json::array list;
  for (const auto& f : findings) {
    bad |= f.verdict == Verdict::kBad;
    json::object item{{"name", f.name}, {"verdict", Word(f.verdict)}, {"detail", f.detail}};
    if (!f.fix.empty()) item["fix"] = AsCalled(f.fix);
    list.push_back(std::move(item));
  }
  json::object report{{"findings", std::move(list)}, {"ok", !bad}};
  // With colours of our own.
  auto written = WriteAll(1, options.json ? wire::NdjsonLine(report) : Render(findings));
  if (!written) return 141;
  return bad ? 1 : 0;
}

}  // namespace sandbar::cli
