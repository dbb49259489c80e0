#include "images/images.h"

#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <optional>

#include "base/files.h"

namespace sandbar::images {
namespace json = boost::json;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kManaged = "vercel/sandbox/";
constexpr size_t kMaxReference = 255;
constexpr size_t kMaxManifest = 64 << 10;

// What the recipes can make: used to tell "not built yet" from "no such thing". Kept equal to images/catalog.txt by
// a unit test.
struct Known {
  std::string_view recipe, image, runtime;
};
constexpr Known kKnown[] = {
    {"base", "sandbar/base:latest", ""},
    {"node24", "vercel/sandbox/node:24", "node24"},
    {"node22", "vercel/sandbox/node:22", "node22"},
    {"python3.13", "vercel/sandbox/python:3.13", "python3.13"},
    {"bun", "vercel/sandbox/bun:latest", "bun"},
    {"universal", "vercel/sandbox/universal:latest", ""},
    {"data", "sandbar/data:latest", ""},
    {"podman", "sandbar/podman:latest", ""},
    {"docker", "sandbar/docker:latest", ""},
};

constexpr std::string_view kUniversal = "vercel/sandbox/universal:latest";

// Images of the vendor that have no recipe here, and what stands for them: patterns as in Alias.
struct StandIn {
  std::string_view pattern, image;
};
constexpr StandIn kStandIns[] = {
    {"vercel/sandbox/ubuntu", kUniversal},
    {"vercel/sandbox/arch", kUniversal},
    {"vercel/*/base", kUniversal},  // what the vendor's own tools start from, such as vercel/eve/base
};

std::string Text(const json::object& o, std::string_view key) {
  const auto* v = o.if_contains(key);
  if (v == nullptr || !v->is_string()) return {};
  return std::string(v->as_string());
}

std::optional<Image> ParseManifest(const std::string& text) {
  boost::system::error_code ec;
  json::value v = json::parse(text, ec);
  if (ec || !v.is_object()) return std::nullopt;
  const json::object& o = v.as_object();
  Image image{.name = Text(o, "name"),
              .digest = Text(o, "digest"),
              .user = Text(o, "user"),
              .home = Text(o, "home"),
              .cwd = Text(o, "cwd"),
              .runtime = Text(o, "runtime")};
  if (const auto* n = o.if_contains("uid"); n != nullptr && n->is_int64()) image.uid = unsigned(n->as_int64());
  if (const auto* n = o.if_contains("gid"); n != nullptr && n->is_int64()) image.gid = unsigned(n->as_int64());
  const auto* layers = o.if_contains("layers");
  if (layers == nullptr || !layers->is_array()) return std::nullopt;
  for (const auto& l : layers->as_array())
    if (l.is_string()) image.layers.emplace_back(l.as_string());
  if (const auto* env = o.if_contains("env"); env != nullptr && env->is_object())
    for (const auto& [k, e] : env->as_object())
      if (e.is_string()) image.env.emplace(k, e.as_string());
  if (image.name.empty() || image.digest.empty() || image.layers.empty()) return std::nullopt;
  return image;
}

bool ValidReference(std::string_view s) {
  if (s.empty() || s.size() > kMaxReference) return false;
  return std::ranges::all_of(s, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("._-/:@").contains(c);
  });
}

struct Reference {
  std::string repo, tag, digest;
};

// repo[:tag][@sha256:…], with the vendor's registry prefix dropped.
Reference Split(std::string_view s) {
  Reference r;
  if (s.starts_with("vcr.vercel.com/")) s.remove_prefix(15);
  if (auto at = s.find('@'); at != s.npos) {
    r.digest = s.substr(at + 1);
    s = s.substr(0, at);
  }
  if (auto colon = s.rfind(':'); colon != s.npos && s.find('/', colon) == s.npos) {
    r.tag = s.substr(colon + 1);
    s = s.substr(0, colon);
  }
  r.repo = s;
  return r;
}

std::string_view RepoOf(std::string_view name) {
  return name.substr(0, name.rfind(':'));
}

size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t up = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = up;
    }
  }
  return row[b.size()];
}

template <class Get>
std::string Nearest(std::string_view wanted, Get get) {
  std::string best;
  size_t best_distance = 0;
  for (const Known& k : kKnown) {
    std::string_view name = get(k);
    if (name.empty()) continue;
    size_t d = Distance(wanted, name);
    if (best.empty() || d < best_distance) {
      best = name;
      best_distance = d;
    }
  }
  return best;
}

const Image* FindByName(const std::vector<Image>& all, std::string_view name) {
  auto it = std::ranges::find_if(all, [&](const Image& i) { return i.name == name; });
  return it == all.end() ? nullptr : &*it;
}

std::unexpected<Error> NotBuilt(std::string_view what, std::string_view recipe) {
  return Fail(Code::kUnsupported, std::string(what) +
                                      " is known but not built on this server; build it with: sandbar image build " +
                                      std::string(recipe));
}

// Does the text look like the pattern, in which `*` stands for any text? After a mismatch only the last `*` takes more,
// so that the work is bounded by the product of the lengths.
bool Fits(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = pattern.npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

bool FitsReference(std::string_view pattern, const Reference& ref) {
  const Reference wanted = Split(pattern);
  if (!Fits(wanted.repo, ref.repo)) return false;
  return wanted.tag.empty() || Fits(wanted.tag, ref.tag.empty() ? "latest" : ref.tag);
}

// The image of the longest pattern that fits; empty: none does.
template <class Rows>
std::string LongestFit(const Rows& rows, const Reference& ref) {
  std::string_view pattern, image;
  for (const auto& row : rows) {
    const bool longer = image.empty() || row.pattern.size() > pattern.size();
    if (!longer || !FitsReference(row.pattern, ref)) continue;
    pattern = row.pattern;
    image = row.image;
  }
  return std::string(image);
}

// The documented rule for managed names (docs/images.md): exact tag; else any built image of the same repository,
// newest tag first.
const Image* FindPrepared(const std::vector<Image>& all, const Reference& ref) {
  const std::string tag = ref.tag.empty() ? "latest" : ref.tag;
  const Image* best = FindByName(all, ref.repo + ":" + tag);
  if (best != nullptr || !ref.repo.starts_with(kManaged)) return best;
  for (const Image& i : all)
    if (RepoOf(i.name) == ref.repo && (best == nullptr || i.name > best->name)) best = &i;
  return best;
}

// For a name that no image has: is it not built yet, misspelt, or of somebody else?
std::unexpected<Error> NoSuchImage(const Reference& ref) {
  const std::string tag = ref.tag.empty() ? "latest" : ref.tag;
  const Known* known = nullptr;
  for (const Known& k : kKnown)
    if (RepoOf(k.image) == ref.repo && (known == nullptr || k.image == ref.repo + ":" + tag)) known = &k;
  if (known != nullptr) return NotBuilt("image " + std::string(known->image), known->recipe);
  std::string nearest = Nearest(ref.repo, [](const Known& k) { return RepoOf(k.image); });
  if (ref.repo.starts_with(kManaged) || ref.repo.starts_with("sandbar/"))
    return Fail(Code::kBadRequest, "image: no image " + ref.repo + "; did you mean " + nearest + "?");
  return Fail(Code::kUnsupported, "image: " + ref.repo +
                                      " is not prepared here and pulling from registries is not available; prepared "
                                      "images: sandbar image ls; the operator can give one of them that name too: "
                                      "[images.aliases] in the server's configuration");
}

// Without aliases: an image that is here, or the one that stands for a vendor's.
Result<Image> FindImage(const std::vector<Image>& all, const Reference& ref) {
  if (const Image* found = FindPrepared(all, ref)) return *found;
  const std::string stand_in = LongestFit(kStandIns, ref);
  if (stand_in.empty()) return NoSuchImage(ref);
  const Reference instead = Split(stand_in);
  if (const Image* found = FindPrepared(all, instead)) return *found;
  return NoSuchImage(instead);
}

}  // namespace

std::shared_ptr<const Catalog::Listed> Catalog::Current() const {
  struct stat st{};
  if (::stat((directory_ + "/manifests").c_str(), &st) != 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const bool same =
      listed_ && listed_->changed.tv_sec == st.st_mtim.tv_sec && listed_->changed.tv_nsec == st.st_mtim.tv_nsec;
  return same ? listed_ : nullptr;
}

bool Catalog::fresh() const {
  return Current() != nullptr;
}

Result<std::shared_ptr<const Catalog::Listed>> Catalog::Read() const {
  auto out = std::make_shared<Listed>();
  fs::path dir = fs::path(directory_) / "manifests";
  struct stat st{};
  std::error_code ec;
  if (::stat(dir.c_str(), &st) != 0)
    return Fail(Code::kUnavailable,
                "no images are prepared in " + directory_ + "; build one with: sandbar image build universal");
  out->changed = st.st_mtim;
  for (const auto& entry : fs::directory_iterator(dir, ec)) {
    if (entry.path().extension() != ".json") continue;
    auto text = ReadFile(entry.path(), kMaxManifest);
    if (!text) continue;
    if (auto image = ParseManifest(*text)) out->images.push_back(*std::move(image));
  }
  std::ranges::sort(out->images, {}, &Image::name);
  // Another change within the clock's grain would not show: what has just changed is read again next time.
  if (std::time(nullptr) > st.st_mtim.tv_sec + 1) {
    const std::lock_guard lock(mutex_);
    listed_ = out;
  }
  return out;
}

Result<std::vector<Image>> Catalog::List() const {
  if (auto current = Current()) return current->images;
  SB_TRY(auto read, Read());
  return read->images;
}

Result<> CheckAlias(const Alias& alias) {
  std::string plain = alias.pattern;
  std::erase(plain, '*');
  const bool fits = alias.pattern.size() <= kMaxReference && (plain.empty() || ValidReference(plain));
  if (!fits || alias.pattern.empty() || alias.pattern.contains('@')) {
    return Fail(Code::kBadRequest,
                "an alias is repo or repo:tag of at most 255 characters without a digest; `*` stands for any text");
  }
  if (!ValidReference(alias.image) || alias.image.contains('*'))
    return Fail(Code::kBadRequest, "an alias leads to an image: repo, repo:tag or repo@sha256:…");
  return {};
}

Result<Image> Catalog::ResolveImage(std::string_view reference) const {
  if (!ValidReference(reference))
    return Fail(Code::kBadRequest, "image: expected repo, repo:tag or repo@sha256:… of at most 255 characters");
  SB_TRY(auto all, List());
  const Reference ref = Split(reference);
  // A digest names one image for good, whatever the aliases say: that is how records remember theirs.
  if (const Image* pinned = FindPrepared(all, ref); pinned != nullptr && pinned->digest == ref.digest) return *pinned;
  const std::string alias = LongestFit(aliases_, ref);
  const Reference wanted = alias.empty() ? ref : Split(alias);
  auto found = FindImage(all, wanted);
  if (!found) {
    if (alias.empty()) return found;
    return std::unexpected(std::move(found).error().Context(ref.repo + " is an alias of " + alias));
  }
  for (const std::string& digest : {ref.digest, wanted.digest}) {
    if (!digest.empty() && digest != found->digest)
      return Fail(Code::kBadRequest, "image: " + std::string(RepoOf(found->name)) + " is here with digest " +
                                         found->digest + ", not " + digest);
  }
  return found;
}

Result<Image> Catalog::ResolveRuntime(std::string_view runtime) const {
  SB_TRY(auto all, List());
  for (const Image& i : all)
    if (i.runtime == runtime && i.name.starts_with("sandbar/runtime/")) return i;
  for (const Known& k : kKnown)
    if (!k.runtime.empty() && k.runtime == runtime) return NotBuilt("runtime " + std::string(runtime), k.recipe);
  return Fail(Code::kBadRequest, "runtime: no runtime '" + std::string(runtime.substr(0, 40)) + "'; did you mean " +
                                     Nearest(runtime, [](const Known& k) { return k.runtime; }) +
                                     "? (node24, node22, python3.13, bun)");
}

}  // namespace sandbar::images
