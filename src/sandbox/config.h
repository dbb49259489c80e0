// The operator's settings for the domain, with their defaults. Plain values; daemon/ fills them from its config file.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "sandbox/project_limits.h"

namespace sandbar::sandbox {

// Machines kept ready for one kind of create: same image, same size.
struct PoolTarget {
  std::string image;    // image reference; or
  std::string runtime;  // runtime name
  int vcpus = 2;
  int count = 0;
};

struct Config {
  std::string data_dir;
  ProjectLimits project;  // of each project
  int max_vcpus = 8;
  int max_memory_mb = 16384;
  int64_t max_timeout_ms = 24LL * 3600 * 1000;
  int64_t default_timeout_ms = 300000;
  uint32_t pids_per_sandbox = 1024;
  uint64_t disk_bytes = 8ULL << 30;
  std::chrono::milliseconds stop_grace{5000};
  std::string isolation = "auto";    // the engine of sandboxes that demand none; "auto": a microVM where there is KVM
  bool allow_tcg_as_class3 = false;  // give an emulated microVM the class of one on KVM
  bool allow_nesting_on_class1 = false;  // containers in sandboxes that share the host's kernel, as class 0
  // A stop of a persistent sandbox keeps its files ("disk"), or also its memory ("memory") where the engine can, so
  // that its processes go on.
  std::string resume = "disk";
  std::string default_network_mode = "allow-all";  // for sandboxes that never set one
  std::string default_image = "vercel/sandbox/universal:latest";
  std::string default_runtime = "node24";  // v1
  size_t max_running = 1000;
  size_t max_sandboxes = 100'000;  // records, running or not
  size_t max_ports = 15;           // of one sandbox
  // A sandbox without a name of its own is removed this long after its end, unless it was claimed; 0: never.
  int64_t collect_unnamed_ms = 24LL * 3600 * 1000;
  size_t max_commands_per_session = 512;  // running at once

  // A command's output on disk: the first and the last part are kept, in segments.
  uint64_t log_head_bytes = 8ULL << 20;
  uint64_t log_tail_bytes = 8ULL << 20;
  uint64_t log_segment_bytes = 1ULL << 20;
  // Of a session's commands together (and an eighth more): beyond it, output of those that ended first is dropped.
  uint64_t log_session_bytes = 256ULL << 20;
  uint64_t log_total_bytes = 8ULL << 30;  // of all sessions together

  uint64_t drive_bytes = 1ULL << 40;  // the size limit of a drive whose creator sets none

  // The pause before a round of the housekeeper, so that one round serves many deletions.
  std::chrono::milliseconds tidy_pause{1000};

  size_t flatten_at = 12;  // a snapshot that stands on this many layers is made into one in the background

  bool verify_strict = false;                       // read and check every layer of a snapshot before it is used
  int64_t scrub_every_ms = 7LL * 24 * 3600 * 1000;  // how old the last check of a layer may become

  std::vector<PoolTarget> pools;
  // An emulated kernel on a busy host starts slowly; a machine that ends meanwhile is noticed at once.
  int64_t kernel_start_ms = 180'000;
  std::chrono::milliseconds agent_timeout{30000};  // longest wait for an answer of an agent that must be alive
};

}  // namespace sandbar::sandbox
