// The device rule of version 2 groups is a BPF program that the kernel runs on every open of a device and every mknod.
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "os/cgroup_trees.h"

namespace sandbar::os {
namespace {

bpf_insn Insn(uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm) {
  return bpf_insn{.code = code, .dst_reg = dst, .src_reg = src, .off = off, .imm = imm};
}

struct Device {
  int32_t major, minor;  // minor -1: any
};
constexpr Device kAllowed[] = {{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}, {5, 2}, {136, -1}};

// r2 = type | access << 16, r3 = major, r4 = minor; returns 1 to allow.
std::vector<bpf_insn> DeviceProgram(bool kvm) {
  constexpr uint8_t kLoad = BPF_LDX | BPF_MEM | BPF_W, kJne = BPF_JMP | BPF_JNE | BPF_K, kMove = BPF_ALU64 | BPF_MOV;
  std::vector<bpf_insn> p;
  p.push_back(Insn(kLoad, 2, 1, offsetof(bpf_cgroup_dev_ctx, access_type), 0));
  p.push_back(Insn(kLoad, 3, 1, offsetof(bpf_cgroup_dev_ctx, major), 0));
  p.push_back(Insn(kLoad, 4, 1, offsetof(bpf_cgroup_dev_ctx, minor), 0));
  // mknod is refused for everything; the machine's /dev is made outside.
  p.push_back(Insn(kMove | BPF_X, 5, 2, 0, 0));
  p.push_back(Insn(BPF_ALU64 | BPF_AND | BPF_K, 5, 0, 0, BPF_DEVCG_ACC_MKNOD << 16));
  p.push_back(Insn(kJne, 5, 0, 0, 0));
  const size_t jump_mknod = p.size() - 1;
  p.push_back(Insn(BPF_ALU64 | BPF_AND | BPF_K, 2, 0, 0, 0xffff));
  p.push_back(Insn(kJne, 2, 0, 0, BPF_DEVCG_DEV_CHAR));
  const size_t jump_type = p.size() - 1;
  std::vector<Device> allowed(std::begin(kAllowed), std::end(kAllowed));
  if (kvm) allowed.push_back({10, 232});
  for (const Device& d : allowed) {
    const int16_t rest = d.minor < 0 ? 2 : 3;
    p.push_back(Insn(kJne, 3, 0, rest, d.major));
    if (d.minor >= 0) p.push_back(Insn(kJne, 4, 0, 2, d.minor));
    p.push_back(Insn(kMove | BPF_K, 0, 0, 0, 1));
    p.push_back(Insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
  }
  const auto deny = static_cast<int16_t>(p.size());
  p[jump_mknod].off = static_cast<int16_t>(deny - static_cast<int16_t>(jump_mknod) - 1);
  p[jump_type].off = static_cast<int16_t>(deny - static_cast<int16_t>(jump_type) - 1);
  p.push_back(Insn(kMove | BPF_K, 0, 0, 0, 0));
  p.push_back(Insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
  return p;
}

long Bpf(int command, bpf_attr& attr) {
  return ::syscall(SYS_bpf, command, &attr, sizeof attr);
}

}  // namespace

Result<> AttachDeviceFilter(int cgroup_dir, bool kvm) {
  const std::vector<bpf_insn> program = DeviceProgram(kvm);
  bpf_attr load;
  std::memset(&load, 0, sizeof load);
  load.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  load.insn_cnt = static_cast<uint32_t>(program.size());
  load.insns = reinterpret_cast<uintptr_t>(program.data());
  load.license = reinterpret_cast<uintptr_t>("");
  Fd fd(static_cast<int>(Bpf(BPF_PROG_LOAD, load)));
  if (!fd) return FailErrno("load the device program");
  bpf_attr attach;
  std::memset(&attach, 0, sizeof attach);
  attach.target_fd = static_cast<uint32_t>(cgroup_dir);
  attach.attach_bpf_fd = static_cast<uint32_t>(fd.get());
  attach.attach_type = BPF_CGROUP_DEVICE;
  // Flags 0: nothing below may replace it, and attaching again replaces ours.
  if (Bpf(BPF_PROG_ATTACH, attach) != 0) return FailErrno("attach the device program");
  return {};
}

}  // namespace sandbar::os
