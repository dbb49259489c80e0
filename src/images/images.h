// Prepared images on disk: what a sandbox can boot from. Reads manifests only; building is images/build.sh (root).
//
// <images>/manifests/<file>.json, one per image:
//   {"name":"vercel/sandbox/node:24","aliases":["node24"],"digest":"sha256:…","layers":["<id>",…] (topmost first),
//    "user":"ubuntu","uid":1000,"gid":1000,"home":"/vercel","cwd":"/vercel","runtime":"node24",
//    "env":{"PATH":"…","LANG":"C.UTF-8"}}
// <images>/layers/<id>.erofs  (or <images>/layers/<id>/ as a directory): read-only, root-owned, content-addressed.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sandbar::images {

struct Image {
  std::string name;  // canonical, with tag
  std::string digest;
  std::vector<std::string> layers;
  std::string user, home, cwd, runtime;
  unsigned uid = 1000, gid = 1000;
  std::map<std::string, std::string> env;
};

// Another name for an image: what it looks like, and the image that it gets. `*` stands for any text; a pattern without
// a tag fits every tag. Of several that fit, the longest counts.
struct Alias {
  std::string pattern;  // "vercel/*/base", "registry.example/us/worker:2"
  std::string image;    // a reference that is resolved without aliases
};
// kBadRequest says what is wrong with it.
Result<> CheckAlias(const Alias& alias);

class Catalog {
 public:
  explicit Catalog(std::string directory, std::vector<Alias> aliases = {})
      : directory_(std::move(directory)), aliases_(std::move(aliases)) {}
  // All prepared images. Read again when the directory has changed, so that a build shows up without a restart;
  // manifests come and go whole, by rename.
  Result<std::vector<Image>> List() const;
  // The next call reads no file: what was read is still what is there. For callers that must not block.
  bool fresh() const;
  // By image reference (`repo[:tag][@sha256:…]`, optional registry prefix) or by runtime name (node24, python3.13, …).
  // The name of the result says which image it really is: aliases and the rules of docs/images.md may lead elsewhere.
  // v1/v2 runtimes get user vercel-sandbox and cwd /vercel/sandbox (docs/images.md). kBadRequest for a malformed or
  // unknown name, kNotFound-like message naming the nearest; kUnsupported with "sandbar image build …" when known but
  // not built.
  Result<Image> ResolveImage(std::string_view reference) const;
  Result<Image> ResolveRuntime(std::string_view runtime) const;

 private:
  struct Listed {
    timespec changed{};  // the directory, when it was read
    std::vector<Image> images;
  };
  std::shared_ptr<const Listed> Current() const;
  Result<std::shared_ptr<const Listed>> Read() const;

  std::string directory_;
  std::vector<Alias> aliases_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Listed> listed_;
};

}  // namespace sandbar::images
