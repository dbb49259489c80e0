#include "spawner/disk/layers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "os/mounts.h"
#include "os/mounts_loop.h"
#include "os/openat.h"
#include "spawner/protocol.h"

namespace sandbar::spawner {
namespace {

constexpr size_t kMaxBundle = 16 << 20;
constexpr const char* kBundle = "etc/ssl/certs/ca-certificates.crt";

// Only root may have been able to write what we let the kernel parse.
Result<> CheckTrusted(int fd, const std::string& what) {
  struct stat st{};
  if (::fstat(fd, &st) != 0) return FailErrno("stat " + what);
  if (st.st_uid != 0 || (st.st_mode & 022) != 0)
    return Fail(Code::kForbidden, what + " must belong to root and be writable by nobody else");
  return {};
}

std::string ImageBundle(const std::vector<std::string>& image) {
  for (const auto& layer : image) {
    auto root = os::OpenPath(layer, O_PATH | O_DIRECTORY);
    if (!root) continue;
    auto file = os::OpenInRoot(root->get(), kBundle, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (!file) continue;
    auto bytes = ReadAll(file->get(), kMaxBundle);
    if (bytes) return std::move(*bytes);
  }
  return {};
}

}  // namespace

bool ValidId(const std::string& id, size_t max) {
  if (id.empty() || id.size() > max || id.front() == '.' || id.front() == '-') return false;
  return std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.' || c == ':';
  });
}

bool ValidHostname(const std::string& name) {
  return ValidId(name, 63) && name.find_first_of("_:") == std::string::npos && name.back() != '-' && name.back() != '.';
}

Result<Fd> Layers::MountErofs(int file) const {
  constexpr uint64_t kAttributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID;
  if (!options_.force_loop) {
    std::vector<os::MountOption> direct = {{"source", "/proc/self/fd/" + std::to_string(file)}, {"ro", "", true}};
    auto mount = os::NewMount("erofs", direct, kAttributes);
    if (mount) return mount;
    // Before 6.12 only block devices will do.
    if (mount.error().sys_errno != ENOTBLK && mount.error().sys_errno != EINVAL) return mount;
  }
  SB_TRY(os::LoopDevice loop, os::AttachLoop(file, true));
  std::vector<os::MountOption> by_device = {{"source", loop.path}, {"ro", "", true}};
  return os::NewMount("erofs", by_device, kAttributes);
}

Result<std::string> Layers::Mount(const std::string& id) {
  if (auto it = mounted_.find(id); it != mounted_.end()) return it->second;
  if (!ValidId(id, 100)) return Fail(Code::kBadRequest, "bad layer id");
  SB_TRY(Fd dir, os::OpenPath(options_.images + "/layers", O_RDONLY | O_DIRECTORY));
  SB_TRYV(CheckTrusted(dir.get(), options_.images + "/layers"));
  Fd mount;
  auto file = os::OpenInside(dir.get(), id + ".erofs", O_RDONLY);
  if (file) {
    SB_TRYV(CheckTrusted(file->get(), "layer " + id));
    SB_TRY(mount, MountErofs(file->get()));
  } else {
    auto tree = os::OpenInside(dir.get(), id, O_PATH | O_DIRECTORY);
    if (!tree) return Fail(Code::kNotFound, "layer " + id + " is not on this host: build the image again");
    SB_TRYV(CheckTrusted(tree->get(), "layer " + id));
    SB_TRY(mount, os::CloneTree(tree->get(), ""));
    SB_TRYV(os::SetMountAttributes(mount.get(), MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID));
  }
  std::string path = options_.mount_dir + "/" + std::to_string(mounted_.size());
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return FailErrno("mkdir " + path);
  SB_TRYV(os::Attach(mount.get(), AT_FDCWD, path));
  mounted_.emplace(id, path);
  return path;
}

Result<Fd> Layers::NewSiteDir(const std::string& name) const {
  SB_TRY(Fd site, os::OpenPath(options_.site_dir, O_RDONLY | O_DIRECTORY));
  SB_TRYV(os::RemoveTree(site.get(), name));
  // Overlay takes a directory's owner and mode from the topmost layer that has it: keep Debian's.
  return os::EnsureDir(site.get(), name, 0755);
}

Result<std::string> Layers::TrustLayer(const std::string& digest, const std::vector<std::string>& image) {
  if (auto it = trust_.find(digest); it != trust_.end()) return it->second;
  std::string name = "image-" + std::to_string(trust_.size());
  SB_TRY(Fd root, NewSiteDir(name));
  for (const char* dir : {"proc", "dev", "sys", "tmp", "run"}) {
    mode_t mode = std::string_view(dir) == "tmp" ? 01777 : 0755;
    SB_TRYV(os::EnsureDir(root.get(), dir, mode));
  }
  SB_TRY(Fd etc, os::EnsureDir(root.get(), "etc", 0755));
  SB_TRYV(os::WriteFileAt(etc.get(), "resolv.conf", "nameserver 192.0.2.53\noptions timeout:2 attempts:2\n", 0644));
  std::string bundle = ImageBundle(image);
  if (!options_.extra_ca.empty()) {
    SB_TRY(std::string extra, os::ReadFile(options_.extra_ca, kMaxBundle));
    if (!bundle.empty() && bundle.back() != '\n') bundle += '\n';
    bundle += extra;
  }
  if (!bundle.empty()) {
    SB_TRY(Fd ssl, os::EnsureDir(etc.get(), "ssl", 0755));
    SB_TRY(Fd certs, os::EnsureDir(ssl.get(), "certs", 0755));
    SB_TRYV(os::WriteFileAt(certs.get(), "ca-certificates.crt", bundle, 0644));
  }
  return trust_.emplace(digest, options_.site_dir + "/" + name).first->second;
}

SiteDir::~SiteDir() {
  size_t slash = path_.rfind('/');
  auto parent = os::OpenPath(path_.substr(0, slash), O_RDONLY | O_DIRECTORY);
  if (!parent) return;
  if (auto r = os::RemoveTree(parent->get(), path_.substr(slash + 1)); !r) log::Warn("{}", r.error().message);
}

Result<std::shared_ptr<SiteDir>> Layers::HostLayer(const std::string& hostname) {
  if (auto it = hosts_.find(hostname); it != hosts_.end()) {
    if (auto known = it->second.lock()) return known;
  }
  std::erase_if(hosts_, [](const auto& e) { return e.second.expired(); });
  std::string name = "host-" + std::to_string(next_host_++);
  SB_TRY(Fd root, NewSiteDir(name));
  auto layer = std::make_shared<SiteDir>(options_.site_dir + "/" + name);
  SB_TRY(Fd etc, os::EnsureDir(root.get(), "etc", 0755));
  SB_TRYV(os::WriteFileAt(etc.get(), "hostname", hostname + "\n", 0644));
  SB_TRYV(os::WriteFileAt(etc.get(), "hosts",
                          "127.0.0.1 localhost " + hostname + "\n::1 localhost ip6-localhost ip6-loopback\n", 0644));
  hosts_[hostname] = layer;
  if (hostname == kDefaultHostname) default_host_ = layer;
  return layer;
}

Result<LayerSet> Layers::Prepare(const std::vector<std::string>& ids, const std::string& digest,
                                 const std::string& hostname) {
  if (ids.empty() || ids.size() > kMaxLayers) return Fail(Code::kBadRequest, "an image has 1 to 64 layers");
  if (!ValidId(digest, 100)) return Fail(Code::kBadRequest, "bad image digest");
  if (!ValidHostname(hostname)) return Fail(Code::kBadRequest, "bad host name");
  std::vector<std::string> image;
  for (const auto& id : ids) {
    SB_TRY(std::string path, Mount(id));
    image.push_back(std::move(path));
  }
  LayerSet set;
  SB_TRY(set.host, HostLayer(hostname));
  SB_TRY(std::string trust, TrustLayer(digest, image));
  set.paths.push_back(set.host->path());
  set.paths.push_back(std::move(trust));
  set.paths.insert(set.paths.end(), image.begin(), image.end());
  return set;
}

}  // namespace sandbar::spawner
