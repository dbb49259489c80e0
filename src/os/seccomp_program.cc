#include "os/seccomp_program.h"

#include <linux/audit.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace sandbar::os {
namespace {

using Code = std::vector<sock_filter>;

sock_filter Statement(uint16_t code, uint32_t k) {
  return sock_filter{code, 0, 0, k};
}
sock_filter Jump(uint16_t op, uint32_t k, size_t if_true, size_t if_false) {
  return sock_filter{static_cast<uint16_t>(BPF_JMP | op | BPF_K), static_cast<uint8_t>(if_true),
                     static_cast<uint8_t>(if_false), k};
}
sock_filter Return(SyscallAction action) {
  return Statement(BPF_RET | BPF_K, action.value);
}
sock_filter Load(size_t offset) {
  return Statement(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}

// Little-endian: the low half of a 64-bit argument comes first.
size_t ArgOffset(uint8_t arg) {
  return offsetof(seccomp_data, args) + sizeof(uint64_t) * arg;
}

Code RuleCode(const ArgRule& rule) {
  Code out;
  std::vector<size_t> exits;  // jumps to behind the rule, taken when a check does not hold
  for (const ArgCheck& c : rule.checks) {
    out.push_back(Load(ArgOffset(c.arg)));
    if (c.op == ArgCheck::kEqual && c.mask != 0xffffffff) out.push_back(Statement(BPF_ALU | BPF_AND | BPF_K, c.mask));
    const uint16_t op = c.op == ArgCheck::kEqual ? BPF_JEQ : c.op == ArgCheck::kAnyBit ? BPF_JSET : BPF_JGE;
    exits.push_back(out.size());
    out.push_back(Jump(op, c.value, 0, 0));
  }
  out.push_back(Return(rule.action));
  for (size_t at : exits) out[at].jf = static_cast<uint8_t>(out.size() - at - 1);
  return out;
}

Code EntryCode(const SyscallEntry& entry) {
  Code out;
  for (const ArgRule& rule : entry.rules) {
    Code code = RuleCode(rule);
    out.insert(out.end(), code.begin(), code.end());
  }
  out.push_back(Return(entry.action));
  return out;
}

// Everything from `first` up to the next segment's first.
struct Segment {
  uint32_t first = 0;
  Code code;
};

bool SameCode(const Code& a, const Code& b) {
  auto same = [](const sock_filter& x, const sock_filter& y) {
    return x.code == y.code && x.jt == y.jt && x.jf == y.jf && x.k == y.k;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

void AddSegment(std::vector<Segment>& out, uint32_t first, Code code) {
  if (!out.empty() && SameCode(out.back().code, code)) return;
  out.push_back({first, std::move(code)});
}

Code SearchTree(const std::vector<Segment>& segments, size_t begin, size_t end) {
  if (end - begin == 1) return segments[begin].code;
  const size_t middle = begin + (end - begin) / 2;
  Code low = SearchTree(segments, begin, middle);
  Code high = SearchTree(segments, middle, end);
  Code out;
  if (low.size() <= 255) {
    out.push_back(Jump(BPF_JGE, segments[middle].first, low.size(), 0));
  } else {
    // Conditional jumps reach 255 instructions, unconditional ones any distance.
    out.push_back(Jump(BPF_JGE, segments[middle].first, 0, 1));
    out.push_back(Statement(BPF_JMP | BPF_JA, static_cast<uint32_t>(low.size())));
  }
  out.insert(out.end(), low.begin(), low.end());
  out.insert(out.end(), high.begin(), high.end());
  return out;
}

}  // namespace

std::vector<ArgRule> StoreRules() {
  constexpr uint32_t kBtrfsMagic = 0x94;
  std::vector<ArgRule> out;
  auto refuse = [&out](uint32_t request, int error, uint32_t mask = 0xffffffff) {
    out.push_back({{{.arg = 1, .op = ArgCheck::kEqual, .value = request, .mask = mask}}, Errno(error)});
  };
  for (uint32_t request : {FICLONE, FICLONERANGE, FIDEDUPERANGE}) refuse(request, EOPNOTSUPP);
  for (uint32_t request : {FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_FSSETXATTR}) refuse(request, EOPNOTSUPP);
  refuse(kBtrfsMagic << 8, ENOTTY, 0xff00);
  return out;
}

Result<std::vector<sock_filter>> AssembleFilter(std::vector<SyscallEntry> entries, SyscallAction other) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
  std::vector<Segment> segments;
  AddSegment(segments, 0, {Return(other)});
  int64_t last = -1;
  for (const SyscallEntry& entry : entries) {
    if (entry.number <= last) return Fail(sandbar::Code::kInternal, "system call listed twice or negative");
    if (entry.number > last + 1) AddSegment(segments, static_cast<uint32_t>(last + 1), {Return(other)});
    AddSegment(segments, static_cast<uint32_t>(entry.number), EntryCode(entry));
    last = entry.number;
  }
  AddSegment(segments, static_cast<uint32_t>(last + 1), {Return(other)});

  Code out;
  out.push_back(Load(offsetof(seccomp_data, arch)));
  out.push_back(Jump(BPF_JEQ, AUDIT_ARCH_X86_64, 1, 0));
  out.push_back(Return(kKill));
  out.push_back(Load(offsetof(seccomp_data, nr)));
  // A tracer skips a call by setting the number to -1; everything else from bit 30 up is x32.
  out.push_back(Jump(BPF_JEQ, 0xffffffff, 0, 1));
  out.push_back(Return(Errno(ENOSYS)));
  out.push_back(Jump(BPF_JGE, 0x40000000, 0, 1));
  out.push_back(Return(kKill));
  Code tree = SearchTree(segments, 0, segments.size());
  out.insert(out.end(), tree.begin(), tree.end());
  if (out.size() > BPF_MAXINSNS) return Fail(sandbar::Code::kInternal, "system-call filter too long");
  return out;
}

}  // namespace sandbar::os
