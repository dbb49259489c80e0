// What the operator decided: flags over the TOML file over defaults. One value, made once at start, passed down.
// An unknown key is an error that names it and the nearest known one; a setting is never silently ignored.
//
//   auto config = LoadConfig(data_dir, serve_flags, host);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/api.h"
#include "base/result.h"
#include "cli/host_options.h"
#include "egress/egress.h"
#include "images/images.h"
#include "mcp/tools.h"
#include "sandbox/config.h"

namespace sandbar::daemon {

// What the defaults depend on; a value, so that tests can have any host.
struct HostSize {
  int cores = 2;
  int memory_mb = 4096;
};
HostSize ThisHost();

struct Config {
  std::string data, images;
  std::vector<sandbar::images::Alias> image_aliases;  // other names of images
  std::string host = "127.0.0.1";
  uint16_t port = 8787;
  std::string public_url;
  std::string tls_cert, tls_key;  // both or none
  std::string preview_domain = "localhost";
  std::string preview_tls_cert, preview_tls_key;  // for names under preview_domain; empty: the server's own
  bool insecure_http = false;
  bool ephemeral = false;
  std::string user = "sandbar";
  std::string log = "info";    // the lowest level of lines that server and spawner write
  std::string extra_ca;        // PEM bundle that every machine trusts in addition
  bool cpu_overcommit = true;  // one sandbox may have more vCPUs than the host has cores
  int host_share = 80;         // per cent of the host that all machines together may use
  std::string disk_limit = "btrfs";
  uint64_t disk_pool_bytes = 0;          // 0: most of what is free
  std::string runsc;                     // gVisor's program; empty: looked for; "none": not used
  std::string gvisor_platform = "auto";  // of runsc
  std::string kernel, qemu;              // of microVMs: directory, program; empty: beside the images, Debian's
  std::string vm_start = "restore";      // of microVMs: from templates, or "boot"
  std::string force_fallback;            // for tests: mechanisms to pretend this kernel lacks
  sandbox::Config domain;
  api::Prices prices;  // for `sandbar usage`
  egress::EgressConfig egress;
  std::string forward_issuer = "https://oidc.vercel.com";  // of the tokens that forwarded requests carry
  mcp::Settings mcp;
  int ready_fd = -1, lifeline_fd = -1;

  bool tls() const { return !tls_cert.empty(); }
};

Result<Config> LoadConfig(const std::string& data, const cli::ServeCommand& flags, const HostSize& host);
// The file's part alone: over what `config` already says.
Result<> ApplyToml(const std::string& text, const std::string& name, Config* config);
// "127.0.0.1:8787", "[::1]:0", "localhost:80".
Result<> ParseListen(const std::string& text, Config* config);
// What the operator should know about the preview domain; empty: nothing.
std::string PreviewRemark(const Config& config);

}  // namespace sandbar::daemon
