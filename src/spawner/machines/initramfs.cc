#include "spawner/machines/initramfs.h"

#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <string_view>

namespace sandbar::spawner {
namespace {

// The "newc" form of cpio, which is what kernels unpack.
class Archive {
 public:
  void Add(const std::string& name, uint32_t mode, std::string_view bytes = {}, uint32_t major = 0,
           uint32_t minor = 0) {
    char head[128];
    std::snprintf(head, sizeof head, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", ++inode_, mode, 0, 0,
                  1, 0, static_cast<uint32_t>(bytes.size()), 0, 0, major, minor, static_cast<uint32_t>(name.size() + 1),
                  0);
    out_ += head;
    out_ += name;
    out_ += '\0';
    Pad();
    out_ += bytes;
    Pad();
  }
  std::string Take() {
    Add("TRAILER!!!", 0);
    return std::move(out_);
  }

 private:
  void Pad() { out_.resize((out_.size() + 3) / 4 * 4, '\0'); }
  std::string out_;
  uint32_t inode_ = 0;
};

}  // namespace

std::string MakeInitramfs(const std::string& agent, const Modules& modules, const Modules& containers) {
  Archive archive;
  for (const char* dir : {"dev", "proc", "sys", "root", "image", "disk", "site", "modules"})
    archive.Add(dir, S_IFDIR | 0755);
  archive.Add("dev/console", S_IFCHR | 0600, {}, 5, 1);
  archive.Add("init", S_IFREG | 0755, agent);
  for (const auto& [file, wanted] : {std::pair("modules.list", &modules), std::pair("containers.list", &containers)}) {
    std::string list;
    for (const auto& [name, bytes] : *wanted) {
      archive.Add("modules/" + name, S_IFREG | 0644, bytes);
      list += "/modules/" + name + "\n";
    }
    if (!list.empty()) archive.Add(file, S_IFREG | 0644, list);
  }
  return archive.Take();
}

}  // namespace sandbar::spawner
