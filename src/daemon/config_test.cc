#include "daemon/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace sandbar::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& toml) {
  Config c;
  auto r = ApplyToml(toml, "sandbar.toml", &c);
  return r ? "" : r.error().message;
}

TEST(Config, DefaultsFollowTheHost) {
  auto c = LoadConfig("/data", {}, {.cores = 16, .memory_mb = 64'000});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->domain.max_vcpus, 16);
  EXPECT_EQ(c->domain.max_memory_mb, 51'200);
  EXPECT_EQ(c->host, "127.0.0.1");
  EXPECT_EQ(c->port, 8787);
  EXPECT_EQ(c->domain.data_dir, "/data");
  // The SDK's default of 2 vCPUs and 4096 MB must fit everywhere.
  auto small = LoadConfig("/data", {}, {.cores = 1, .memory_mb = 1000});
  ASSERT_TRUE(small);
  EXPECT_EQ(small->domain.max_vcpus, 8) << "more than it has cores: cpu_overcommit";
  EXPECT_EQ(small->domain.max_memory_mb, 4096);
}

TEST(Config, CpuOvercommit) {
  const std::string file = ::testing::TempDir() + "sandbar-overcommit.toml";
  const cli::ServeCommand flags{.config = file};
  auto load = [&](const std::string& text) {
    std::ofstream(file) << "[limits]\n" << text;
    return LoadConfig("/data", flags, {.cores = 2, .memory_mb = 64'000});
  };
  EXPECT_EQ(load("")->domain.max_vcpus, 8);
  EXPECT_EQ(load("max_vcpus = 32\n")->domain.max_vcpus, 32);
  EXPECT_EQ(load("cpu_overcommit = false\n")->domain.max_vcpus, 2);
  auto both = load("cpu_overcommit = false\nmax_vcpus = 4\n");
  ASSERT_FALSE(both);
  EXPECT_NE(both.error().message.find("cpu_overcommit"), std::string::npos) << both.error().message;
}

TEST(Config, Isolation) {
  Config c;
  EXPECT_EQ(c.domain.isolation, "auto");
  EXPECT_FALSE(c.domain.allow_tcg_as_class3);
  ASSERT_TRUE(ApplyToml("isolation = \"gvisor\"\nallow_tcg_as_class3 = true\n", "x.toml", &c));
  EXPECT_EQ(c.domain.isolation, "gvisor");
  EXPECT_TRUE(c.domain.allow_tcg_as_class3);
  EXPECT_FALSE(c.domain.allow_nesting_on_class1);
  ASSERT_TRUE(ApplyToml("allow_nesting_on_class1 = true\n", "x.toml", &c));
  EXPECT_TRUE(c.domain.allow_nesting_on_class1);
  EXPECT_THAT(ErrorOf("isolation = \"docker\"\n"), HasSubstr("microvm"));
  EXPECT_EQ(c.domain.resume, "disk");
  ASSERT_TRUE(ApplyToml("resume = \"memory\"\n", "x.toml", &c));
  EXPECT_EQ(c.domain.resume, "memory");
  EXPECT_THAT(ErrorOf("resume = \"ram\"\n"), HasSubstr("disk"));
  EXPECT_THAT(ErrorOf("allow_tcg_as_class3 = 1\n"), HasSubstr("true or false"));
  cli::ServeCommand flags;
  flags.isolation = "namespaces";
  EXPECT_EQ(LoadConfig("/data", flags, {})->domain.isolation, "namespaces");
}

TEST(Config, ReadsEveryKey) {
  Config c;
  auto r = ApplyToml(R"(
extra_ca = "/etc/ca.pem"
user = "nobody"
[server]
listen = "[::1]:9000"
public_url = "https://sandbox.example"
tls_cert = "/c.pem"
tls_key = "/k.pem"
insecure_http = true
[limits]
max_vcpus = 4
max_memory_mb = 2048
max_timeout = "2h"
default_timeout = "10m"
pids = 200
disk_mb = 64
logs_mb = 32
all_logs_mb = 900
drive_mb = 10240
max_running = 5
max_sandboxes = 50
max_ports = 3
stop_grace = "2s"
host_share = 50
[network]
default = "deny-all"
allow_addresses = ["10.0.0.0/8"]
resolver = "10.0.0.2:53"
strict = true
dns_for_subnets = true
allow_ech = true
bandwidth = 1000000
connections = 10
half_open_connections = 5
forward_issuer = "https://issuer.example"
[project]
disk_mb = 2048
logs_mb = 100
[prices]
currency = "EUR"
cpu_hour = 0.5
memory_gb_hour = 1
creation = 0.001
transfer_gb = 0.25
free_cpu_hours = 5
free_memory_gb_hours = 6
free_creations = 7
free_transfer_gb = 8
[images]
dir = "/images"
default = "sandbar/base"
default_runtime = "node22"
[images.aliases]
"registry.example/us/*" = "sandbar/data"
[pool]
node24 = 2
"vercel/sandbox/universal" = 1
bun = 0
[disk]
limit = "none"
pool_bytes = 1000000
[microvm]
kernel = "/k"
qemu = "/q"
start = "boot"
start_timeout = "30s"
[gvisor]
runsc = "/opt/runsc"
platform = "ptrace"
[snapshot]
verify = "strict"
scrub = "24h"
[retention]
unnamed = "2h"
)",
                     "sandbar.toml", &c);
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(c.host, "::1");
  EXPECT_EQ(c.port, 9000);
  EXPECT_EQ(c.domain.max_timeout_ms, 7'200'000);
  EXPECT_TRUE(c.domain.verify_strict);
  EXPECT_EQ(c.runsc, "/opt/runsc");
  EXPECT_EQ(c.gvisor_platform, "ptrace");
  EXPECT_EQ(c.kernel, "/k");
  EXPECT_EQ(c.qemu, "/q");
  EXPECT_EQ(c.vm_start, "boot");
  EXPECT_EQ(c.domain.kernel_start_ms, 30'000);
  EXPECT_EQ(c.domain.scrub_every_ms, 86'400'000);
  EXPECT_EQ(c.domain.collect_unnamed_ms, 7'200'000);
  ASSERT_EQ(c.image_aliases.size(), 1u);
  EXPECT_EQ(c.image_aliases[0].pattern, "registry.example/us/*");
  EXPECT_EQ(c.image_aliases[0].image, "sandbar/data");
  EXPECT_EQ(c.domain.default_timeout_ms, 600'000);
  EXPECT_EQ(c.domain.disk_bytes, 64ULL << 20);
  EXPECT_EQ(c.domain.log_session_bytes, 32ULL << 20);
  EXPECT_EQ(c.domain.log_total_bytes, 900ULL << 20);
  EXPECT_EQ(c.domain.drive_bytes, 10ULL << 30);
  EXPECT_EQ(c.domain.project.disk_bytes, 2ULL << 30);
  EXPECT_EQ(c.domain.project.log_bytes, 100ULL << 20);
  EXPECT_EQ(c.domain.pids_per_sandbox, 200u);
  EXPECT_EQ(c.domain.max_sandboxes, 50u);
  EXPECT_EQ(c.domain.max_ports, 3u);
  EXPECT_EQ(c.domain.stop_grace, std::chrono::seconds(2));
  EXPECT_EQ(c.prices.currency, "EUR");
  EXPECT_EQ(c.prices.cpu_hour.each, 0.5);
  EXPECT_EQ(c.prices.memory_gb_hour.each, 1.0);
  EXPECT_EQ(c.prices.transfer_gb.free, 8.0);
  EXPECT_EQ(c.domain.default_network_mode, "deny-all");
  EXPECT_THAT(c.egress.allow_addresses, ElementsAre("10.0.0.0/8"));
  EXPECT_TRUE(c.egress.strict && c.egress.dns_for_subnets && c.egress.allow_ech);
  EXPECT_EQ(c.egress.bytes_per_second, 1'000'000u);
  EXPECT_EQ(c.egress.max_connections, 10u);
  EXPECT_EQ(c.egress.max_half_open, 5u);
  EXPECT_EQ(c.forward_issuer, "https://issuer.example");
  EXPECT_EQ(c.disk_limit, "none");
  EXPECT_EQ(c.host_share, 50);
  ASSERT_EQ(c.domain.pools.size(), 2u);
  EXPECT_EQ(c.domain.pools[0].runtime, "node24");
  EXPECT_EQ(c.domain.pools[0].count, 2);
  EXPECT_EQ(c.domain.pools[1].image, "vercel/sandbox/universal");
}

TEST(Config, NamesAnUnknownKeyAndTheNearest) {
  EXPECT_EQ(ErrorOf("[limits]\nmax_vcpu = 2\n"),
            "sandbar.toml: line 2: unknown key `limits.max_vcpu`, did you mean `max_vcpus`?");
  EXPECT_THAT(ErrorOf("[limit]\n"), HasSubstr("unknown key `limit`, did you mean `limits`?"));
}

TEST(Config, NamesTheKeyWithAWrongValue) {
  EXPECT_EQ(ErrorOf("[limits]\n\nmax_vcpus = \"two\"\n"),
            "sandbar.toml: line 3: `limits.max_vcpus` must be a whole number from 1 to 1024");
  EXPECT_THAT(ErrorOf("[network]\ndefault = \"open\"\n"), HasSubstr("one of \"allow-all\", \"deny-all\""));
  EXPECT_THAT(ErrorOf("[limits]\nmax_timeout = \"soon\"\n"), HasSubstr("a duration such as"));
  EXPECT_THAT(ErrorOf("[server]\nlisten = \"8787\"\n"), HasSubstr("HOST:PORT"));
  EXPECT_THAT(ErrorOf("[pool]\nnode24 = -1\n"), HasSubstr("`pool.node24`"));
  EXPECT_THAT(ErrorOf("[images.aliases]\n\"a b\" = \"sandbar/data\"\n"),
              HasSubstr("`images.aliases` is wrong at \"a b\""));
  EXPECT_THAT(ErrorOf("[images.aliases]\nx = 3\n"), HasSubstr("leads to an image"));
  EXPECT_THAT(ErrorOf("[retention]\nunnamed = \"soon\"\n"), HasSubstr("or \"never\""));
  EXPECT_EQ(ErrorOf("[retention]\nunnamed = \"never\"\n"), "");
  EXPECT_THAT(ErrorOf("not toml"), HasSubstr("sandbar.toml: line 1"));
}

TEST(Config, NetworkSettingsAreCheckedAtStart) {
  const std::string path = ::testing::TempDir() + "sandbar-config-test.toml";
  cli::ServeCommand flags;
  flags.config = path;
  auto with = [&](const std::string& line) {
    std::ofstream(path) << "[network]\n" << line << "\n";
    auto c = LoadConfig("/data", flags, {});
    return c ? std::string("accepted") : c.error().message;
  };
  EXPECT_EQ(with("allow_addresses = [\"10.0.0.0/8\", \"192.0.2.1\"]"), "accepted");
  EXPECT_THAT(with("allow_addresses = [\"10.0.0.0/99\"]"), HasSubstr("network.allow_addresses: \"10.0.0.0/99\""));
  EXPECT_EQ(with("resolver = \"192.0.2.1:53\""), "accepted");
  EXPECT_THAT(with("resolver = \"dns.example\""), HasSubstr("network.resolver"));
  EXPECT_THAT(with("forward_issuer = \"http://x.example\""), HasSubstr("network.forward_issuer"));
  std::remove(path.c_str());
}

TEST(Config, TheEnvironmentsLogLevelWinsOverTheFiles) {
  const std::string path = ::testing::TempDir() + "sandbar-config-log-test.toml";
  std::ofstream(path) << "log = \"warn\"\n";
  cli::ServeCommand flags;
  EXPECT_EQ(LoadConfig("/data", flags, {})->log, "info");
  flags.config = path;
  EXPECT_EQ(LoadConfig("/data", flags, {})->log, "warn");
  ::setenv("SANDBAR_LOG", "debug", 1);
  EXPECT_EQ(LoadConfig("/data", flags, {})->log, "debug");
  ::setenv("SANDBAR_LOG", "loud", 1);
  auto refused = LoadConfig("/data", flags, {});
  ::unsetenv("SANDBAR_LOG");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("SANDBAR_LOG is \"loud\""));
  std::ofstream(path) << "log = \"loud\"\n";
  EXPECT_FALSE(LoadConfig("/data", flags, {}));
  std::remove(path.c_str());
}

TEST(Config, APublicAddressNeedsTlsOrTheFlag) {
  cli::ServeCommand flags;
  flags.listen = "0.0.0.0:8787";
  auto refused = LoadConfig("/data", flags, {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("--insecure-http"));
  flags.insecure_http = true;
  EXPECT_TRUE(LoadConfig("/data", flags, {}));
  flags.insecure_http = false;
  flags.tls_cert = "/c";
  EXPECT_FALSE(LoadConfig("/data", flags, {}));
  flags.tls_key = "/k";
  EXPECT_TRUE(LoadConfig("/data", flags, {}));
}

TEST(Config, PreviewDomains) {
  Config c;
  ASSERT_TRUE(
      ApplyToml("[server]\npublic_url = \"https://box.example.org\"\npreview_domain = \"p.example.org\"", "f", &c));
  EXPECT_THAT(PreviewRemark(c), HasSubstr("share a site"));
  c.preview_domain = "p.example.net";
  EXPECT_EQ(PreviewRemark(c), "");
  c.preview_domain = "localhost";
  EXPECT_EQ(PreviewRemark(c), "");
}

TEST(Config, LoopbackNeedsNothing) {
  for (const char* listen : {"127.0.0.1:1", "127.9.9.9:0", "localhost:80", "[::1]:8787"}) {
    cli::ServeCommand flags;
    flags.listen = listen;
    EXPECT_TRUE(LoadConfig("/data", flags, {})) << listen;
  }
  for (const char* listen : {"", "8787", ":1", "host:99999", "host:"}) {
    cli::ServeCommand flags;
    flags.listen = listen;
    EXPECT_FALSE(LoadConfig("/data", flags, {})) << listen;
  }
}

}  // namespace
}  // namespace sandbar::daemon
