// The bytes of every message, frozen: agents in live machines and in memory snapshots, and a spawner that an earlier
// server left, speak them. A message may get further fields at its end (protocol/codec.h); what is here stays.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "protocol/guest_frames.h"
#include "protocol/machine_init.h"
#include "protocol/spawner_messages.h"
#include "protocol/vm_config.h"

namespace sandbar::protocol {
namespace {

const std::map<std::string, std::string>& Golden() {
  static const std::map<std::string, std::string> golden = {
#include "protocol/golden_bytes.inc"
  };
  return golden;
}

std::string Hex(std::string_view bytes) {
  std::string out;
  for (char c : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    out += digits;
  }
  return out;
}

std::vector<HostFrame> HostFrames() {
  Exec exec{"cmd_1", {"sh", "-c", ""}, {"A=b", ""}, "/tmp", 1000, 1001, "user", 123456789012, Channel::kNone};
  Exec channel = exec;
  channel.channel = Channel::kStandardInput;
  Exec input = exec, terminal = exec;
  input.standard_input = true;
  terminal.terminal = TerminalSize{132, 43};
  return {Hello{1, 0x1122334455667788},
          exec,
          channel,
          Ack{"cmd_1", 99},
          ExitAck{"cmd_1"},
          Kill{"cmd_1", 9},
          Credit{7, 65536},
          ReadFile{7, "a/b", "/", 1, 2, "u"},
          WriteTar{8, "/", 1, 2, "u", false},
          MakeDir{{9, "d", "/x", 1, 2, "u"}, true, {}},
          Data{8, std::string("\0\xff\x7f", 3)},
          End{8},
          Abort{7},
          Quiesce{5000, true},
          Input{"cmd_1", "run\n"},
          Gone{},
          Dial{10, 3000},
          PackTree{11, "/data"},
          UnpackTree{12, "/"},
          Rekey{"entropy", 1234567890123456789, {{"cmd_1", "cmd_2"}, {"a", "b"}}, "k3y"},
          input,
          terminal,
          Stdin{"cmd_1", 5, "text"},
          StdinEnd{"cmd_1", 9},
          Resize{"cmd_1", {80, 24}},
          ReadFile{7, "a/b", "/", 1, 2, "u", 5, 6},
          MakeDir{{9, "d", "/x", 1, 2, "u"}, true, 0750},
          ListDir{{10, "d", "/x", 1, 2, "u"}, "after", 100},
          StatFile{{11, "d", "/x", 1, 2, "u"}, false},
          WriteFile{{12, "d", "/x", 1, 2, "u"}, 5, true, true, false, true, true, 0640},
          SetAttributes{{13, "d", "/x", 1, 2, "u"}, true, 9, 1, std::nullopt, 0644, std::nullopt, -5},
          RenameFile{{14, "d", "/x", 1, 2, "u"}, "e", true},
          RemoveFile{{15, "d", "/x", 1, 2, "u"}, RemoveFile::What::kTree},
          MakeLink{{16, "d", "/x", 1, 2, "u"}, "target", false}};
}

std::vector<GuestFrame> GuestFrames() {
  return {HelloAck{1, 42, {{"cmd_1", 5, false}, {"cmd_2", 0, true}}, ""},
          HelloAck{1, 42, {}, "k3y"},
          ExecStarted{"cmd_1", 77},
          ExecFailed{"cmd_1", ExecFailure::kBadCwd, "no such directory"},
          Output{"cmd_1", 10, 2, "text"},
          Gap{"cmd_1", 14, 1000},
          Exit{"cmd_1", 137, true, 12345, 1014, true},
          Credit{3, 1},
          Data{3, "x"},
          End{3},
          FileError{4, FileErrorKind::kNoSpace, "full"},
          Quiesced{true, 3},
          Dialed{10},
          Rekeyed{},
          HelloAck{1, 42, {{"cmd_1", 5, false}}, "", 0, {{"cmd_1", 7, 3, true, false}}},
          StdinTaken{"cmd_1", 3},
          StdinClosed{"cmd_1"}};
}

std::vector<SpawnerRequest> Requests() {
  const MachineLimits limits{2, 3ULL << 30, 400, 5ULL << 40};
  const DriveMount mount{"drv_1", "/data", true, 1000, 1001};
  return {HelloReq{7},
          BootReq{"m1", limits, 123456789012, kGvisorEngine, true, 11, 12},
          ConfigureReq{"m1", {"a", "b"}, "sha256:x", "host", {"snap_1"}, {mount}, true, "own", 13},
          ListReq{},
          AttachReq{"m1"},
          SetLimitsReq{"m1", limits, 14},
          SetDeadlineReq{"m1", -5},
          UsageReq{"m1", true},
          PauseReq{"m1", false},
          DestroyReq{"m1", "snap_1"},
          DialReq{"m1", 8080, true},
          ShutdownReq{},
          ListSnapshotsReq{"snap_1"},
          RemoveSnapshotReq{"snap_1", true},
          FlattenReq{{"snap_2", "snap_1"}, "flat_1", "own"},
          CreateDriveReq{"drv_1", 5ULL << 40, 15, 16},
          SnapshotDriveReq{"drv_1", "drv_1-1", "own"},
          RemoveDriveReq{"drv_1"},
          ListDrivesReq{"drv_1"},
          ManifestReq{"snap_1", true, "own"},
          DiffReq{{"a", "b"}, {"c"}, {"i"}, {"j"}, "own"},
          ToBlockReq{"snap_1", "snap_1-block", true, 5ULL << 40, "own"},
          DriveFormatReq{"drv_1"},
          ReplaceDriveReq{"drv_1", "drv_1-new"},
          MemorySnapshotReq{"m1", "snap_1", false},
          AssignReq{"m1", 7, 5ULL << 40}};
}

std::vector<SpawnerResponse> Responses() {
  return {OkResp{},
          HelloResp{7, "inst", "btrfs", "v2", true, {{kMicrovmEngine, "microvm", 3, false, "no /dev/kvm", "no"}}},
          ErrorResp{3, "no", 13},
          BootResp{"/a/b.sock", "c0ffee"},
          ListResp{{{"m1", 2, 77, 9999999999ULL, kGvisorEngine}, {"m2", 0, 0, 0, kNamespacesEngine}}},
          UsageResp{1, 2, 3, 4, 5, 6, 7},
          ExitedEvent{"m1", 137, true},
          SnapshotsResp{{"snap_1", "snap_2"}},
          MemorySnapshotResp{17, 5ULL << 40}};
}

VmConfig Config() {
  VmConfig c;
  c.hostname = "sandbox";
  c.clock_ns = 1234567890123456789;
  c.entropy = std::string("\0\1\2", 3);
  c.pids = 1000;
  c.key = "k3y";
  c.restored = true;
  c.files = {{"etc/hosts", 0644, "127.0.0.1 x\n"}, {"bin/x", 0755, ""}};
  c.drives = {{"/data", true, 1000, 1001}, {"/ro", false, 0, 0}};
  c.nesting = true;
  return c;
}

InitSetup Start() {
  InitSetup setup;
  setup.join = {10, 11};
  setup.netns = 12;
  setup.proc_at = "/mnt/proc";
  setup.covers = {{"/mnt/empty", "kcore"}, {"/mnt/nothing", "acpi"}};
  setup.read_only = {"sys", "irq"};
  setup.open_files = 4096;
  setup.filter = {sock_filter{6, 1, 2, 0x7fff0000}, sock_filter{5, 0, 0, 1}};
  setup.capabilities = 0x1234;
  setup.nesting = true;
  setup.group_root = {13};
  setup.group_home = {14, 15};
  return setup;
}

InitPlan Plan() {
  InitPlan plan;
  plan.userns = 20;
  plan.root = 21;
  plan.dev = 22;
  plan.mounts = {{23, "/data"}};
  plan.mount_point = "/mnt/mp";
  plan.covers = {{"/mnt/sizes/proc/stat", "stat"}};
  plan.hostname = "sandbox";
  CPU_ZERO(&plan.cpus.emplace());
  CPU_SET(3, &*plan.cpus);
  plan.keep = {24, 25};
  plan.agent = 26;
  plan.argv = {"agent", "--x"};
  return plan;
}

std::vector<std::pair<std::string, std::string>> Everything() {
  std::vector<std::pair<std::string, std::string>> out;
  auto add = [&out](const std::string& kind, size_t n, const std::string& bytes) {
    out.emplace_back(kind + " " + std::to_string(n), bytes);
  };
  size_t n = 0;
  for (const HostFrame& f : HostFrames()) add("host", n++, Encode(f));
  n = 0;
  for (const GuestFrame& f : GuestFrames()) add("guest", n++, Encode(f));
  add("stream", 0, EncodeForStream(HostFrame(Data{8, "\x7fSANDBAR"})));
  add("stream", 1, EncodeForStream(GuestFrame(HelloAck{1, 42, {}, "\x7f"})));
  n = 0;
  for (const SpawnerRequest& r : Requests()) add("request", n++, Encode(TaggedRequest{42, r}));
  n = 0;
  for (const SpawnerResponse& r : Responses()) add("response", n++, Encode(TaggedResponse{43, r}));
  add("vm", 0, EncodeVmConfig(Config()));
  add("vm", 1, EncodeVmConfig({}));
  add("init", 0, Encode(Start()).bytes);
  add("init", 1, Encode(InitSetup{}).bytes);
  add("init", 2, Encode(Plan()).bytes);
  add("init", 3, Encode(InitPlan{}).bytes);
  return out;
}

TEST(Golden, EveryMessageHasTheBytesThatItHadBefore) {
  const auto all = Everything();
  for (const auto& [name, bytes] : all) {
    auto it = Golden().find(name);
    EXPECT_TRUE(it != Golden().end() && it->second == Hex(bytes))
        << "the message has other bytes now:\n{\"" << name << "\",\n \"" << Hex(bytes) << "\"},";
  }
  EXPECT_EQ(all.size(), Golden().size());
}

}  // namespace
}  // namespace sandbar::protocol
