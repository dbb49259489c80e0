#include "daemon/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include "base/duration.h"
#include "base/engine_table.h"
#include "base/files.h"
#include "base/log_level.h"
#include "cli/server_endpoint.h"
#include "egress/address.h"
#include "wire/loopback.h"
#include "wire/text.h"
#include "wire/url.h"

namespace sandbar::daemon {
namespace {

constexpr int kDefaultMaxVcpus = 8;  // as the hosted service has it

constexpr int64_t kTerabyte = 1LL << 40;
constexpr char kHostBundle[] = "/etc/ssl/certs/ca-certificates.crt";

using Setter = std::function<Result<>(const toml::node&)>;
using Keys = std::vector<std::pair<std::string, Setter>>;

Result<> Wrong(std::string_view expected) {
  return Fail(Code::kBadRequest, fmt::format("must be {}", expected));
}

Setter Str(std::string* to) {
  return [to](const toml::node& n) -> Result<> {
    auto v = n.value_exact<std::string>();
    if (!v) return Wrong("a string");
    *to = *v;
    return {};
  };
}

Setter Bool(bool* to) {
  return [to](const toml::node& n) -> Result<> {
    auto v = n.value_exact<bool>();
    if (!v) return Wrong("true or false");
    *to = *v;
    return {};
  };
}

Result<int64_t> Integer(const toml::node& n, int64_t low, int64_t high) {
  auto v = n.value_exact<int64_t>();
  if (!v || *v < low || *v > high)
    return Fail(Code::kBadRequest, fmt::format("must be a whole number from {} to {}", low, high));
  return *v;
}

template <class T>
Setter Int(T* to, int64_t low, int64_t high) {
  return [=](const toml::node& n) -> Result<> {
    SB_TRY(int64_t v, Integer(n, low, high));
    *to = static_cast<T>(v);
    return {};
  };
}

Setter Megabytes(uint64_t* to_bytes) {
  return [to_bytes](const toml::node& n) -> Result<> {
    SB_TRY(int64_t mb, Integer(n, 16, kTerabyte >> 20));
    *to_bytes = static_cast<uint64_t>(mb) << 20;
    return {};
  };
}

Setter Duration(int64_t* to_ms) {
  return [to_ms](const toml::node& n) -> Result<> {
    auto text = n.value_exact<std::string>();
    auto ms = text ? ParseDuration(*text) : std::nullopt;
    if (!ms || *ms < 1000) return Wrong("a duration such as \"90s\", \"5m\" or \"24h\"");
    *to_ms = *ms;
    return {};
  };
}

// A duration, or "never".
Setter DurationOrNever(int64_t* to_ms) {
  return [to_ms](const toml::node& n) -> Result<> {
    auto text = n.value_exact<std::string>();
    auto ms = text && *text != "never" ? ParseDuration(*text) : std::nullopt;
    if (text != "never" && (!ms || *ms < 1000)) return Wrong("a duration such as \"24h\", or \"never\"");
    *to_ms = ms.value_or(0);
    return {};
  };
}

Setter Grace(std::chrono::milliseconds* to) {
  return [to](const toml::node& n) -> Result<> {
    auto text = n.value_exact<std::string>();
    auto ms = text ? ParseDuration(*text) : std::nullopt;
    if (!ms || *ms > 60'000) return Wrong("a duration up to a minute, such as \"5s\"");
    *to = std::chrono::milliseconds(*ms);
    return {};
  };
}

Setter Number(double* to) {
  return [to](const toml::node& n) -> Result<> {
    auto v = n.value<double>();
    if (!v || !(*v >= 0) || *v > 1e12) return Wrong("a number, 0 or more");
    *to = *v;
    return {};
  };
}

Setter OneOf(std::string* to, std::vector<std::string> words) {
  return [to, words = std::move(words)](const toml::node& n) -> Result<> {
    auto v = n.value_exact<std::string>();
    for (const auto& word : words)
      if (v == word) {
        *to = word;
        return {};
      }
    return Wrong(fmt::format("one of \"{}\"", fmt::join(words, "\", \"")));
  };
}

// Two words for a bool.
Setter Choice(bool* to, std::string no, std::string yes) {
  return [to, no = std::move(no), yes = std::move(yes)](const toml::node& n) -> Result<> {
    auto v = n.value_exact<std::string>();
    if (v != no && v != yes) return Wrong(fmt::format("one of \"{}\", \"{}\"", no, yes));
    *to = v == yes;
    return {};
  };
}

Setter Strings(std::vector<std::string>* to) {
  return [to](const toml::node& n) -> Result<> {
    const auto* array = n.as_array();
    if (array == nullptr) return Wrong("a list of strings");
    to->clear();
    for (const auto& item : *array) {
      auto v = item.value_exact<std::string>();
      if (!v) return Wrong("a list of strings");
      to->push_back(*v);
    }
    return {};
  };
}

Result<> Apply(const toml::table& table, const std::string& section, const Keys& keys) {
  for (const auto& [key, node] : table) {
    std::string name(key.str());
    std::string full = section.empty() ? name : section + "." + name;
    auto it = std::ranges::find(keys, name, &Keys::value_type::first);
    if (it == keys.end()) {
      std::vector<std::string> known;
      for (const auto& k : keys) known.push_back(k.first);
      std::string_view near = wire::Nearest(name, known);
      return Fail(Code::kBadRequest, fmt::format("line {}: unknown key `{}`{}", node.source().begin.line, full,
                                                 near.empty() ? "" : fmt::format(", did you mean `{}`?", near)));
    }
    auto set = it->second(node);
    if (!set)
      return Fail(Code::kBadRequest,
                  fmt::format("line {}: `{}` {}", node.source().begin.line, full, set.error().message));
  }
  return {};
}

Setter Section(const std::string& name, Keys keys) {
  return [name, keys = std::move(keys)](const toml::node& n) -> Result<> {
    const auto* table = n.as_table();
    if (table == nullptr) return Wrong("a table: [" + name + "]");
    auto applied = Apply(*table, name, keys);
    // The inner message already says where; mark it so that the caller does not say it twice.
    if (!applied) return Fail(Code::kConflict, applied.error().message);
    return {};
  };
}

// [pool] node24 = 2, "vercel/sandbox/universal" = 1: machines kept ready, by runtime or image.
Setter Pools(std::vector<sandbox::PoolTarget>* to) {
  return [to](const toml::node& n) -> Result<> {
    const auto* table = n.as_table();
    if (table == nullptr) return Wrong("a table: [pool]");
    for (const auto& [key, node] : *table) {
      auto count = Integer(node, 0, 1000);
      if (!count) return Fail(Code::kConflict, fmt::format("`pool.{}` {}", key.str(), count.error().message));
      sandbox::PoolTarget target;
      std::string name(key.str());
      (name.contains('/') ? target.image : target.runtime) = name;
      target.count = static_cast<int>(*count);
      if (target.count > 0) to->push_back(std::move(target));
    }
    return {};
  };
}

// [images.aliases] "registry.example/us/*" = "sandbar/data": other names of images.
Setter Aliases(std::vector<images::Alias>* to) {
  return [to](const toml::node& n) -> Result<> {
    const auto* table = n.as_table();
    if (table == nullptr) return Wrong("a table: [images.aliases]");
    for (const auto& [key, node] : *table) {
      images::Alias alias{std::string(key.str()), node.value_exact<std::string>().value_or("")};
      auto checked = images::CheckAlias(alias);
      if (!checked)
        return Fail(Code::kBadRequest, fmt::format("is wrong at \"{}\": {}", alias.pattern, checked.error().message));
      to->push_back(std::move(alias));
    }
    return {};
  };
}

Keys TopLevel(Config* c) {
  Keys server = {{"listen",
                  [c](const toml::node& n) -> Result<> {
                    auto v = n.value_exact<std::string>();
                    if (!v) return Wrong("a string HOST:PORT");
                    return ParseListen(*v, c);
                  }},
                 {"public_url", Str(&c->public_url)},
                 {"tls_cert", Str(&c->tls_cert)},
                 {"tls_key", Str(&c->tls_key)},
                 {"preview_domain", Str(&c->preview_domain)},
                 {"preview_tls_cert", Str(&c->preview_tls_cert)},
                 {"preview_tls_key", Str(&c->preview_tls_key)},
                 {"insecure_http", Bool(&c->insecure_http)}};
  Keys limits = {{"max_vcpus", Int(&c->domain.max_vcpus, 1, 1024)},
                 {"cpu_overcommit", Bool(&c->cpu_overcommit)},
                 {"max_memory_mb", Int(&c->domain.max_memory_mb, 256, 1 << 24)},
                 {"max_timeout", Duration(&c->domain.max_timeout_ms)},
                 {"default_timeout", Duration(&c->domain.default_timeout_ms)},
                 {"stop_grace", Grace(&c->domain.stop_grace)},
                 {"pids", Int(&c->domain.pids_per_sandbox, 16, 1 << 22)},
                 {"disk_mb", Megabytes(&c->domain.disk_bytes)},
                 {"logs_mb", Megabytes(&c->domain.log_session_bytes)},
                 {"all_logs_mb", Megabytes(&c->domain.log_total_bytes)},
                 {"drive_mb", Megabytes(&c->domain.drive_bytes)},
                 {"max_running", Int(&c->domain.max_running, 1, 100'000)},
                 {"max_sandboxes", Int(&c->domain.max_sandboxes, 1, 100'000'000)},
                 {"max_ports", Int(&c->domain.max_ports, 0, 15)},
                 {"host_share", Int(&c->host_share, 1, 100)}};
  Keys project = {{"disk_mb", Megabytes(&c->domain.project.disk_bytes)},
                  {"logs_mb", Megabytes(&c->domain.project.log_bytes)}};
  Keys network = {{"default", OneOf(&c->domain.default_network_mode, {"allow-all", "deny-all"})},
                  {"allow_addresses", Strings(&c->egress.allow_addresses)},
                  {"resolver", Str(&c->egress.resolver)},
                  {"strict", Bool(&c->egress.strict)},
                  {"dns_for_subnets", Bool(&c->egress.dns_for_subnets)},
                  {"allow_ech", Bool(&c->egress.allow_ech)},
                  {"bandwidth", Int(&c->egress.bytes_per_second, 0, kTerabyte)},
                  {"connections", Int(&c->egress.max_connections, 1, 1'000'000)},
                  {"half_open_connections", Int(&c->egress.max_half_open, 1, 1'000'000)},
                  {"forward_issuer", Str(&c->forward_issuer)}};
  Keys images = {{"dir", Str(&c->images)},
                 {"aliases", Aliases(&c->image_aliases)},
                 {"default", Str(&c->domain.default_image)},
                 {"default_runtime", Str(&c->domain.default_runtime)}};
  Keys snapshot = {{"verify", Choice(&c->domain.verify_strict, "on-demand", "strict")},
                   {"scrub", Duration(&c->domain.scrub_every_ms)}};
  Keys retention = {{"unnamed", DurationOrNever(&c->domain.collect_unnamed_ms)}};
  Keys mcp = {{"handle_after", Duration(&c->mcp.handle_after_ms)}, {"idle", Duration(&c->mcp.idle_ms)}};
  Keys disk = {{"limit", OneOf(&c->disk_limit, {"btrfs", "none"})},
               {"pool_bytes", Int(&c->disk_pool_bytes, 0, kTerabyte * 64)}};
  Keys gvisor = {{"runsc", Str(&c->runsc)},
                 {"platform", OneOf(&c->gvisor_platform, {"auto", "systrap", "ptrace", "kvm"})}};
  Keys microvm = {{"kernel", Str(&c->kernel)},
                  {"qemu", Str(&c->qemu)},
                  {"start", OneOf(&c->vm_start, {"restore", "boot"})},
                  {"start_timeout", Duration(&c->domain.kernel_start_ms)}};
  api::Prices& p = c->prices;
  Keys prices = {{"currency", Str(&p.currency)},
                 {"cpu_hour", Number(&p.cpu_hour.each)},
                 {"memory_gb_hour", Number(&p.memory_gb_hour.each)},
                 {"creation", Number(&p.creation.each)},
                 {"transfer_gb", Number(&p.transfer_gb.each)},
                 {"free_cpu_hours", Number(&p.cpu_hour.free)},
                 {"free_memory_gb_hours", Number(&p.memory_gb_hour.free)},
                 {"free_creations", Number(&p.creation.free)},
                 {"free_transfer_gb", Number(&p.transfer_gb.free)}};
  return {{"prices", Section("prices", std::move(prices))},
          {"server", Section("server", std::move(server))},
          {"limits", Section("limits", std::move(limits))},
          {"project", Section("project", std::move(project))},
          {"network", Section("network", std::move(network))},
          {"images", Section("images", std::move(images))},
          {"mcp", Section("mcp", std::move(mcp))},
          {"disk", Section("disk", std::move(disk))},
          {"gvisor", Section("gvisor", std::move(gvisor))},
          {"microvm", Section("microvm", std::move(microvm))},
          {"snapshot", Section("snapshot", std::move(snapshot))},
          {"retention", Section("retention", std::move(retention))},
          {"pool", Pools(&c->domain.pools)},
          {"isolation", OneOf(&c->domain.isolation, EngineChoices())},
          {"resume", OneOf(&c->domain.resume, {"disk", "memory"})},
          {"allow_tcg_as_class3", Bool(&c->domain.allow_tcg_as_class3)},
          {"allow_nesting_on_class1", Bool(&c->domain.allow_nesting_on_class1)},
          {"log", OneOf(&c->log, {"debug", "info", "warn", "error"})},
          {"extra_ca", Str(&c->extra_ca)},
          {"user", Str(&c->user)}};
}

Result<> CheckNetwork(const Config& c) {
  for (const std::string& text : c.egress.allow_addresses)
    if (auto cidr = egress::ParseCidr(text); !cidr)
      return Fail(Code::kBadRequest, fmt::format("network.allow_addresses: \"{}\": {}", text, cidr.error().message));
  if (const std::string& text = c.egress.resolver; !text.empty())
    if (auto endpoint = egress::ParseEndpoint(text); !endpoint)
      return Fail(Code::kBadRequest, fmt::format("network.resolver: \"{}\": {}", text, endpoint.error().message));
  auto issuer = wire::ParseUrl(c.forward_issuer);
  if (!issuer || issuer->scheme != "https" || c.forward_issuer.ends_with('/'))
    return Fail(Code::kBadRequest, "network.forward_issuer: must be an https URL without a slash at its end");
  return {};
}

Result<> CheckPreviews(const Config& c) {
  if (c.preview_tls_cert.empty() != c.preview_tls_key.empty())
    return Fail(Code::kBadRequest, "preview_tls_cert and preview_tls_key go together");
  if (!c.preview_tls_cert.empty() && !c.tls())
    return Fail(Code::kBadRequest, "preview_tls_cert needs tls_cert and tls_key: it is one listener");
  const std::string& domain = c.preview_domain;
  const bool plain = !domain.empty() && !domain.starts_with('.') && !domain.ends_with('.') &&
                     domain.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
  if (!plain) return Fail(Code::kBadRequest, "preview_domain must be a lower-case domain such as \"preview.example\"");
  return {};
}

Result<> Check(const Config& c) {
  if (c.tls_cert.empty() != c.tls_key.empty())
    return Fail(Code::kBadRequest, "a certificate needs its key and the other way round: --tls-cert and --tls-key");
  if (!wire::IsLoopbackHost(c.host) && !c.tls() && !c.insecure_http)
    return Fail(Code::kBadRequest,
                fmt::format("{} is not a loopback address, and tokens would travel in the clear\n  fix: --tls-cert "
                            "FILE --tls-key FILE, or --insecure-http when something in front of it speaks TLS",
                            c.host));
  SB_TRYV(CheckNetwork(c));
  SB_TRYV(CheckPreviews(c));
  for (const auto& [name, path] : {std::pair("--data", &c.data), std::pair("--images", &c.images)})
    if (!path->starts_with('/')) return Fail(Code::kBadRequest, fmt::format("{} must be an absolute path", name));
  for (const auto& [name, path] : {std::pair("microvm.kernel", &c.kernel), std::pair("microvm.qemu", &c.qemu)})
    if (!path->empty() && !path->starts_with('/'))
      return Fail(Code::kBadRequest, fmt::format("{} must be an absolute path", name));
  return {};
}

}  // namespace

HostSize ThisHost() {
  HostSize host;
  host.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  host.memory_mb = static_cast<int>(
      (static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE))) >> 20);
  return host;
}

// Without a list of registries the last two labels stand for the registrable domain.
std::string PreviewRemark(const Config& config) {
  auto site = [](const std::string& host) {
    size_t dot = host.rfind('.');
    if (dot != std::string::npos && dot > 0) dot = host.rfind('.', dot - 1);
    return dot == std::string::npos ? host : host.substr(dot + 1);
  };
  auto url = wire::ParseUrl(config.public_url);
  if (!url || site(url->host) != site(config.preview_domain)) return "";
  return fmt::format(
      "previews ({}) and the API ({}) share a site: pages of strangers should have a domain of their own",
      config.preview_domain, url->host);
}

Result<> ParseListen(const std::string& text, Config* config) {
  size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return Fail(Code::kBadRequest, "`" + text + "` is not HOST:PORT");
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  unsigned port = 0;
  auto [end, ec] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
  if (ec != std::errc() || end != text.data() + text.size() || port > 65535)
    return Fail(Code::kBadRequest, "`" + text + "` is not HOST:PORT");
  config->host = host;
  config->port = static_cast<uint16_t>(port);
  return {};
}

Result<> ApplyToml(const std::string& text, const std::string& name, Config* config) {
  try {
    toml::table table = toml::parse(text, name);
    auto applied = Apply(table, "", TopLevel(config));
    if (!applied) {
      std::string message = applied.error().message;
      // A section's own complaint comes wrapped in that of the table around it.
      if (size_t inner = message.rfind("line "); inner != std::string::npos && inner > 0)
        message = message.substr(inner);
      return Fail(Code::kBadRequest, name + ": " + message);
    }
    return {};
  } catch (const toml::parse_error& e) {
    return Fail(Code::kBadRequest,
                fmt::format("{}: line {}: {}", name, e.source().begin.line, std::string(e.description())));
  } catch (const std::exception& e) {
    return Fail(Code::kBadRequest, name + ": " + e.what());
  }
}

namespace {

// The SDK's default size is 2 vCPUs; a one-core host still serves it, by time slices.
Result<> SetVcpus(const HostSize& host, Config* c) {
  const int cores = std::max(2, host.cores);
  if (!c->cpu_overcommit && c->domain.max_vcpus > cores)
    return Fail(Code::kBadRequest,
                fmt::format("`limits.max_vcpus` is {}, more than the {} cores of this host: that needs "
                            "`limits.cpu_overcommit = true`",
                            c->domain.max_vcpus, cores));
  if (c->domain.max_vcpus == 0) c->domain.max_vcpus = c->cpu_overcommit ? std::max(kDefaultMaxVcpus, cores) : cores;
  return {};
}

}  // namespace

Result<Config> LoadConfig(const std::string& data, const cli::ServeCommand& flags, const HostSize& host) {
  Config c;
  c.data = data;
  c.images = cli::kDefaultImages;
  c.domain.max_vcpus = 0;  // nobody asked for a limit
  c.domain.max_memory_mb = std::max(4096, host.memory_mb * 8 / 10);
  std::error_code ec;
  if (std::filesystem::exists(kHostBundle, ec)) c.extra_ca = kHostBundle;
  if (const char* dir = std::getenv("SANDBAR_IMAGES"); dir != nullptr && *dir != '\0') c.images = dir;
  if (const char* list = std::getenv("SANDBAR_FORCE_FALLBACK"); list != nullptr) c.force_fallback = list;
  const uint64_t default_disk = std::exchange(c.domain.disk_bytes, 0);  // 0: nobody asked for a limit
  if (flags.config) {
    SB_TRY(std::string text, ReadFile(*flags.config));
    SB_TRYV(ApplyToml(text, *flags.config, &c));
  }
  // The environment is for one run and wins over the file.
  if (const char* level = std::getenv("SANDBAR_LOG"); level != nullptr && *level != '\0') {
    if (!log::ParseLevel(level))
      return Fail(Code::kBadRequest, fmt::format("SANDBAR_LOG is \"{}\"; it may be debug, info, warn or error", level));
    c.log = level;
  }
  SB_TRYV(SetVcpus(host, &c));
  if (c.disk_limit == "none" && c.domain.disk_bytes != 0)
    return Fail(Code::kBadRequest, "`limits.disk_mb` needs `disk.limit = \"btrfs\"`: plain directories have no limit");
  if (c.disk_limit == "none" && c.domain.project.disk_bytes != 0)
    return Fail(Code::kBadRequest,
                "`project.disk_mb` needs `disk.limit = \"btrfs\"`: plain directories have no budget");
  if (c.disk_limit != "none" && c.domain.disk_bytes == 0) c.domain.disk_bytes = default_disk;
  if (flags.listen) SB_TRYV(ParseListen(*flags.listen, &c));
  if (flags.images) c.images = *flags.images;
  if (flags.isolation) c.domain.isolation = *flags.isolation;
  if (flags.tls_cert) c.tls_cert = *flags.tls_cert;
  if (flags.tls_key) c.tls_key = *flags.tls_key;
  c.insecure_http |= flags.insecure_http;
  c.ephemeral = flags.ephemeral;
  c.ready_fd = flags.ready_fd;
  c.lifeline_fd = flags.lifeline_fd;
  // What it listens on is chosen by the caller's working directory otherwise.
  c.data = std::filesystem::absolute(c.data, ec).lexically_normal().string();
  c.images = std::filesystem::absolute(c.images, ec).lexically_normal().string();
  while (c.data.size() > 1 && c.data.ends_with('/')) c.data.pop_back();
  c.domain.data_dir = c.data;
  c.mcp.idle_ms = std::min(c.mcp.idle_ms, c.domain.max_timeout_ms);
  SB_TRYV(Check(c));
  return c;
}

}  // namespace sandbar::daemon
