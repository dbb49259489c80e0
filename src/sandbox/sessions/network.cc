#include "sandbox/sessions/network.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/ids.h"
#include "egress/policy_json.h"
#include "wire/tar.h"

namespace sandbar::sandbox {
namespace {

namespace json = boost::json;

constexpr size_t kMaxBundle = 4 << 20;
constexpr size_t kMaxCertificate = 64 << 10;
constexpr const char* kBundle = "/etc/ssl/certs/ca-certificates.crt";
constexpr const char* kAnchor = "/usr/local/share/ca-certificates/vercel-proxy-ca.pem";
// The same file under the names that the distributions' own tools look for.
constexpr const char* kAnchors[] = {"usr/local/share/ca-certificates/vercel-proxy-ca.pem",
                                    "usr/local/share/ca-certificates/vercel-proxy-ca.crt",
                                    "etc/pki/ca-trust/source/anchors/vercel-proxy-ca.pem"};
constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----";
constexpr std::string_view kEnd = "-----END CERTIFICATE-----\n";

class OneString : public engine::ByteSource {
 public:
  explicit OneString(std::string bytes) : rest_(std::move(bytes)) {}
  Task<std::string> Next() override {
    std::string piece = rest_.substr(0, kPiece);
    rest_.erase(0, kPiece);
    co_return piece;
  }

 private:
  static constexpr size_t kPiece = 64 << 10;
  std::string rest_;
};

// With its first and last line; empty when there is none. One pass, whatever the text.
std::string_view FirstCertificate(std::string_view text) {
  size_t begin = text.find(kBegin);
  size_t end = begin == std::string_view::npos ? begin : text.find(kEnd, begin);
  return end == std::string_view::npos ? std::string_view() : text.substr(begin, end + kEnd.size() - begin);
}

void AddFile(std::string& tar, const std::string& name, const std::string& text) {
  tar += wire::TarHeader({.name = name, .mode = 0644, .size = text.size()}) + text + wire::TarPadding(text.size());
}

// A missing file reads as empty; one that is too long is an error.
Task<std::string> ReadGuestFile(std::shared_ptr<engine::GuestLink> link, std::string path, size_t limit) {
  engine::GuestUser root{0, 0, "root"};
  std::string cwd = "/";
  std::string text;
  auto file = co_await link->ReadFile(path, std::move(cwd), std::move(root));
  if (!file && file.error().code == Code::kNotFound) co_return text;
  if (!file) co_return std::unexpected(std::move(file).error());
  for (;;) {
    SB_CO_TRY(std::string piece, co_await (*file)->Next());
    if (piece.empty()) co_return text;
    text += piece;
    if (text.size() > limit) co_return Fail(Code::kTooLarge, path + " in the sandbox is too long");
  }
}

}  // namespace

store::NetworkPolicyRow SealPolicy(const Vault& vault, const egress::NetworkPolicy& policy, const std::string& owner) {
  store::NetworkPolicyRow row;
  row.mode = egress::ModeName(policy.mode);
  row.shown = json::serialize(egress::AnswerJson(policy));
  if (policy.mode == egress::EgressMode::kCustom)
    row.sealed = vault.Seal(json::serialize(egress::PolicyJson(policy)), owner);
  return row;
}

Result<egress::PolicyRef> OpenPolicy(const Vault& vault, const store::NetworkPolicyRow& row, const std::string& owner) {
  if (row.mode == egress::ModeName(egress::EgressMode::kAllowAll)) return egress::AllowAll();
  if (row.mode == egress::ModeName(egress::EgressMode::kDenyAll)) return egress::DenyAll();
  SB_TRY(std::string text, vault.Open(row.sealed, owner));
  SB_TRY(egress::NetworkPolicy policy, egress::ParsePolicy(text));
  return egress::Compile(std::move(policy));
}

store::Notice PolicyUnusable(const store::SandboxKey& key, const std::string& why) {
  store::Notice notice;
  notice.at = NowMs();
  notice.team = key.team;
  notice.project = key.project;
  notice.sandbox = key.name;
  notice.text = "the server cannot use its recorded network policy, so it is deny-all until another one is set: " + why;
  return notice;
}

std::string MergeBundle(std::string_view bundle, std::string_view earlier_pem, const std::string& ca_pem) {
  const std::string_view ours[] = {FirstCertificate(earlier_pem), FirstCertificate(ca_pem)};
  std::string out;
  while (!bundle.empty()) {
    std::string_view certificate = FirstCertificate(bundle);
    size_t before = certificate.empty() ? bundle.size() : static_cast<size_t>(certificate.data() - bundle.data());
    out += bundle.substr(0, before);
    bundle.remove_prefix(before + certificate.size());
    if (std::ranges::find(ours, certificate) == std::end(ours)) out += certificate;
  }
  if (!out.empty() && out.back() != '\n') out += '\n';
  return out + ca_pem;
}

Task<> InstallCa(std::shared_ptr<engine::GuestLink> link, std::string ca_pem) {
  std::string anchor = kAnchor;
  std::string path = kBundle;
  SB_CO_TRY(std::string earlier, co_await ReadGuestFile(link, std::move(anchor), kMaxCertificate));
  SB_CO_TRY(std::string bundle, co_await ReadGuestFile(link, std::move(path), kMaxBundle));
  std::string tar;
  for (const char* name : kAnchors) AddFile(tar, name, ca_pem);
  AddFile(tar, kBundle + 1, MergeBundle(bundle, earlier, ca_pem));
  OneString source(tar + wire::TarEnd());
  engine::GuestUser root{0, 0, "root"};
  std::string cwd = "/";
  co_return co_await link->WritePlainTar(std::move(cwd), std::move(root), &source);
}

}  // namespace sandbar::sandbox
