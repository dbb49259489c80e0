// Read-only layers: each image layer is mounted once, in the private mount namespace, and shared by all machines.
// Above them lie two small layers that the spawner makes: per image the trust store and resolv.conf, per host name
// /etc/hostname and /etc/hosts. The spawner never writes into a tree that a guest wrote. Single thread.
//
//   SB_TRY(LayerSet set, layers.Prepare(ids, digest, "sandbox"));   // set.paths: topmost first
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::spawner {

inline constexpr const char* kDefaultHostname = "sandbox";

struct LayerOptions {
  std::string images;     // <images>/layers/<id>.erofs or <id>/
  std::string mount_dir;  // in the private mount namespace
  std::string site_dir;   // on a filesystem that can be id-mapped
  std::string extra_ca;   // file with certificates to add, or empty
  bool force_loop = false;
};

// A directory that is removed with its last user.
class SiteDir {
 public:
  explicit SiteDir(std::string path) : path_(std::move(path)) {}
  SiteDir(const SiteDir&) = delete;
  SiteDir& operator=(const SiteDir&) = delete;
  ~SiteDir();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct LayerSet {
  std::vector<std::string> paths;  // topmost first
  std::shared_ptr<SiteDir> host;   // shared by the machines of one host name; keep it as long as the machine
};

class Layers {
 public:
  explicit Layers(LayerOptions options) : options_(std::move(options)) {}
  // kNotFound names the layer that is missing.
  Result<LayerSet> Prepare(const std::vector<std::string>& ids, const std::string& digest, const std::string& hostname);

  // Where one of them can be read.
  Result<std::string> Path(const std::string& id) { return Mount(id); }

 private:
  Result<std::string> Mount(const std::string& id);
  Result<Fd> MountErofs(int file) const;
  Result<std::string> TrustLayer(const std::string& digest, const std::vector<std::string>& image);
  Result<std::shared_ptr<SiteDir>> HostLayer(const std::string& hostname);
  Result<Fd> NewSiteDir(const std::string& name) const;

  LayerOptions options_;
  std::map<std::string, std::string> mounted_;           // layer id -> path
  std::map<std::string, std::string> trust_;             // image digest -> path
  std::map<std::string, std::weak_ptr<SiteDir>> hosts_;  // host name -> layer, while a machine has it
  std::shared_ptr<SiteDir> default_host_;                // "sandbox" stays
  uint64_t next_host_ = 0;
};

// Ids of layers, digests and machines end up in file names: letters, digits and "-_.:", not starting with a dot.
bool ValidId(const std::string& id, size_t max);
bool ValidHostname(const std::string& name);

}  // namespace sandbar::spawner
