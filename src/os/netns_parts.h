// What the kinds of machine networks share: visits to a namespace, settings, rules, the sockets on port 1. Only for the
// netns_*.cc files; the spawner's only thread.
//
//   SB_TRY(Fd home, OpenOwnNetns());
//   if (::unshare(CLONE_NEWNET) != 0) return FailErrno("new network namespace");
//   NetnsVisit visit(std::move(home));                  // back home at the end of the scope
//   SB_TRYV(RunNft("table inet t { … }"));
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

inline constexpr uint16_t kListenPort = 1;

// In another network namespace until it goes out of scope. Not coming back would make every later socket of the
// process a guest's, so that is the end of the process.
class NetnsVisit {
 public:
  explicit NetnsVisit(Fd home) : home_(std::move(home)) {}
  NetnsVisit(const NetnsVisit&) = delete;
  NetnsVisit& operator=(const NetnsVisit&) = delete;
  ~NetnsVisit();

 private:
  Fd home_;
};

// A file under /proc/sys/net, which shows the namespace of the thread that opens it.
struct Setting {
  const char* path;
  const char* value;
  bool required;  // else it may fail: a kernel without the feature has no file
};

// Between a machine and its listener nothing is ever lost or late. An algorithm that paces (bbr, where the host chose
// it) would spend more on timers than on data; this one is in every kernel.
inline constexpr Setting kUnpaced = {"/proc/sys/net/ipv4/tcp_congestion_control", "reno", false};

Result<Fd> OpenOwnNetns();
Result<> WriteSettings(std::span<const Setting> settings);
// Runs an nftables script as one transaction; the answer is what it printed.
Result<std::string> RunNft(const char* script);
// Non-blocking; listens when type is SOCK_STREAM.
Result<Fd> BindPortOne(int type, uint32_t address);
// A socket of the namespace for a caller who is elsewhere, on its way to address:port.
Result<Fd> TcpSocketIn(int netns, int family);

}  // namespace sandbar::os
