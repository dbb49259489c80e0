#include "sandbox/sandboxes/source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/base64.h"
#include "egress/address.h"
#include "wire/url.h"

namespace sandbar::sandbox {
namespace {

constexpr int kMaxDepth = 1'000'000;
constexpr size_t kMaxRevision = 255;
constexpr size_t kMaxSecret = 4096;
constexpr size_t kMaxMessage = 2000;

// The arguments come as $1…, never as text of the script. Only the two web protocols, no prompts, no submodules. A
// commit is no name that clone takes: with a depth it is fetched by itself, else found in the whole history.
constexpr const char* kGit = R"(set -e
url=$1 dir=$2 depth=$3 rev=$4
export GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=true GIT_ALLOW_PROTOCOL=https:http GIT_LFS_SKIP_SMUDGE=1
git() { command git -c protocol.allow=never -c protocol.https.allow=always -c protocol.http.allow=always "$@"; }
commit() { case $rev in *[!0-9a-f]*) return 1 ;; ???????*) return 0 ;; *) return 1 ;; esac; }
if [ -z "$rev" ]; then
  git clone --quiet ${depth:+--depth "$depth"} -- "$url" "$dir"
elif ! commit; then
  git clone --quiet ${depth:+--depth "$depth"} --branch "$rev" -- "$url" "$dir"
elif [ -n "$depth" ] && [ ${#rev} -ge 40 ]; then
  git init --quiet -- "$dir"
  git -C "$dir" remote add -- origin "$url"
  git -C "$dir" fetch --quiet --depth "$depth" origin "$rev"
  git -C "$dir" -c advice.detachedHead=false checkout --quiet FETCH_HEAD --
else
  git clone --quiet --no-checkout -- "$url" "$dir"
  git -C "$dir" -c advice.detachedHead=false checkout --quiet "$rev" --
fi
)";

// tar finds out by itself how the archive is compressed.
constexpr const char* kTarball = R"(set -e
file=$(mktemp)
trap 'rm -f "$file"' EXIT
curl --globoff --fail --silent --show-error --location --max-redirs 5 --proto =https,http --output "$file" --url "$1"
tar --extract --no-same-owner --file "$file"
)";

std::unexpected<Error> Bad(std::string_view field, std::string_view why) {
  return Fail(Code::kBadRequest, fmt::format("source.{}: {}", field, why));
}

bool IsPlain(std::string_view text) {
  return std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f; });
}

Result<std::string> DirectoryOf(const wire::Url& url) {
  std::string path = url.target.substr(0, url.target.find('?'));
  while (path.ends_with('/')) path.pop_back();
  std::string name = path.substr(path.rfind('/') + 1);
  if (name.ends_with(".git")) name.resize(name.size() - 4);
  bool good = !name.empty() && name.size() <= 128 && !name.starts_with('-') && !name.starts_with('.') &&
              std::ranges::all_of(name, [](char c) {
                return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.';
              });
  if (!good) return Bad("url", "its last part has to be the repository's name");
  return name;
}

Result<> CheckRevision(const std::string& revision) {
  constexpr std::string_view kNever = "~^:?*[\\";
  bool good = !revision.empty() && revision.size() <= kMaxRevision && IsPlain(revision) && !revision.starts_with('-') &&
              !revision.contains("..") && !revision.contains("@{") &&
              revision.find_first_of(kNever) == std::string::npos;
  if (!good) return Bad("revision", "has to be a branch, a tag or a commit");
  return {};
}

// Only this host; with a password, every request to it carries it.
Result<egress::PolicyRef> SetUpPolicy(const SourceSpec& spec, const wire::Url& url) {
  egress::NetworkPolicy policy{.mode = egress::EgressMode::kCustom};
  egress::DomainEntry entry;
  if (spec.password) {
    const std::string pair = spec.username.value_or("") + ":" + *spec.password;
    entry.rules.push_back({std::nullopt, egress::TransformAction{{{"authorization", "Basic " + EncodeBase64(pair)}}}});
  }
  if (auto address = egress::ParseAddress(url.host)) {
    if (spec.password) return Bad("url", "with a password it has to have a host name, not an address");
    policy.allow_cidrs.push_back(url.host);
    return egress::Compile(std::move(policy));
  }
  auto name = egress::CanonicalName(url.host);
  if (!name) return Bad("url", name.error().message);
  entry.pattern = *name;
  policy.domains.push_back(std::move(entry));
  return egress::Compile(std::move(policy));
}

}  // namespace

Result<SourcePlan> PlanSource(const SourceSpec& spec) {
  auto url = wire::ParseUrl(spec.url);
  if (!url || !IsPlain(spec.url)) return Bad("url", "has to be an http or https URL without user name and password");
  if (spec.username.has_value() != spec.password.has_value())
    return Bad("username", "needs a password, and a password a user name");
  if (spec.password && url->scheme != "https")
    return Bad("url", "has to be https: a password would be readable on the way");
  if (spec.password &&
      (spec.username->size() > kMaxSecret || spec.password->size() > kMaxSecret || spec.username->contains(':')))
    return Bad("password", "is too long, or the user name has a colon");
  SourcePlan plan;
  SB_TRY(plan.policy, SetUpPolicy(spec, *url));
  if (spec.kind == SourceSpec::Kind::kTarball) {
    if (spec.depth || spec.revision) return Bad("type", "a tarball has neither depth nor revision");
    plan.argv = {"/bin/sh", "-c", kTarball, "fetch", spec.url};
    return plan;
  }
  if (spec.depth && (*spec.depth < 1 || *spec.depth > kMaxDepth)) return Bad("depth", "has to be 1 or more");
  if (spec.revision) SB_TRYV(CheckRevision(*spec.revision));
  SB_TRY(std::string directory, DirectoryOf(*url));
  plan.argv = {"/bin/sh",
               "-c",
               kGit,
               "clone",
               spec.url,
               directory,
               spec.depth ? std::to_string(*spec.depth) : "",
               spec.revision.value_or("")};
  return plan;
}

std::string SourceMessage(const SourceSpec& spec, int exit_code, const std::string& output) {
  std::string said = output.size() > kMaxMessage ? output.substr(output.size() - kMaxMessage) : output;
  for (char& c : said)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f) c = ' ';
  while (said.ends_with('\n') || said.ends_with(' ')) said.pop_back();
  return fmt::format("source: {} failed with exit code {}: {}",
                     spec.kind == SourceSpec::Kind::kGit ? "git" : "the download", exit_code,
                     said.empty() ? "it said nothing" : said);
}

}  // namespace sandbar::sandbox
