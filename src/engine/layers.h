// What engines find out about the layers of snapshots: manifests and differences (Engine::WriteManifest, CheckManifest,
// Diff). Values, for any thread.
//
//   LayerStack before{.snapshots = {"s1"}, .image = {"sha256-…"}};
//   for (const FileChange& change : diff.changes) … change.kind, change.path …
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sandbar::engine {

// What a scan through a snapshot's layer found.
struct LayerReport {
  uint64_t bytes = 0, files = 0;
  std::string digest;              // of the manifest
  uint64_t differences = 0;        // between layer and manifest
  std::vector<std::string> first;  // the first of them, such as "changed /etc/passwd"
};

struct LayerStack {
  std::vector<std::string> snapshots, image;  // topmost first
};

struct FileChange {
  char kind = 'M';  // A added, D deleted, M changed
  char type = 'f';  // d directory, f file, l link, p pipe, s socket, x other
  uint64_t size = 0, before = 0;
  std::string path;  // printable: %XX for what is not, for spaces and for "%"
};

struct LayerDiff {
  std::vector<FileChange> changes;
  bool more = false;  // there are more than anybody wants to read
};

}  // namespace sandbar::engine
