#include "protocol/machine_init.h"

#include <cstring>
#include <utility>

#include "protocol/codec.h"

namespace sandbar::protocol {
namespace {

constexpr uint8_t kStart = 1, kPlan = 2;
constexpr size_t kMaxInitPath = 4096;
constexpr size_t kMaxItems = 256;

// Descriptors travel beside the bytes; on the wire is their place there.
class PutWithFds : public Put {
 public:
  void Descriptor(int fd) {
    (*this)(fd < 0 ? int32_t{-1} : static_cast<int32_t>(fds_.size()));
    if (fd >= 0) fds_.push_back(fd);
  }
  InitMessage TakeMessage() { return {Take(), std::move(fds_)}; }

 private:
  std::vector<int> fds_;
};

class GetWithFds : public Get {
 public:
  GetWithFds(std::string_view in, const std::vector<Fd>& fds) : Get(in), fds_(fds) {}
  void Descriptor(int& fd) {
    int32_t at = -1;
    (*this)(at);
    Require(at < static_cast<int32_t>(fds_.size()));
    fd = at < 0 || !ok() ? -1 : fds_[static_cast<size_t>(at)].get();
  }

 private:
  const std::vector<Fd>& fds_;
};

template <class A>
void Descriptors(A& a, Is<std::vector<int>> auto& fds) {
  a.Each(fds, kMaxItems, [&](auto& fd) { a.Descriptor(fd); });
}

// Plain values of the same kernel on both sides, as a string of their bytes.
template <class A, class T>
void Plain(A& a, std::vector<T>& values, size_t max) {
  std::string bytes;
  a.Text(bytes, max);
  values.resize(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
}
template <class A, class T>
void Plain(A& a, const std::vector<T>& values, size_t max) {
  a.Text(std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)), max);
}

template <class A>
void Cpus(A& a, Is<std::optional<cpu_set_t>> auto& cpus) {
  std::vector<cpu_set_t> values;
  if (cpus) values.push_back(*cpus);
  if constexpr (A::kReads) {
    Plain(a, values, sizeof(cpu_set_t));
    if (!values.empty()) cpus = values[0];
  } else {
    Plain(a, std::as_const(values), sizeof(cpu_set_t));
  }
}

}  // namespace

template <class A>
void Fields(A& a, Is<ProcCover> auto& m) {
  a.Text(m.source, kMaxInitPath), a.Text(m.target, kMaxInitPath);
}
template <class A>
void Fields(A& a, Is<GuestMount> auto& m) {
  a.Descriptor(m.mount), a.Text(m.path, kMaxInitPath);
}
template <class A>
void Fields(A& a, Is<InitSetup> auto& m) {
  a.Descriptor(m.netns), a.Text(m.proc_at, kMaxInitPath);
  a.Each(m.covers, kMaxItems, [&](auto& e) { Fields(a, e); });
  a.List(m.read_only, kMaxItems, kMaxInitPath);
  a(m.open_files), Plain(a, m.filter, kMaxInitBytes), a(m.capabilities), a(m.nesting);
  Descriptors(a, m.group_root), Descriptors(a, m.group_home);
  a.Appended(m.figures, [&] { a.Descriptor(m.figures.page), a.Descriptor(m.figures.ask); });
}
template <class A>
void Fields(A& a, Is<InitPlan> auto& m) {
  a.Descriptor(m.userns), a.Descriptor(m.root), a.Descriptor(m.dev), a.Descriptor(m.pts), a.Descriptor(m.shm);
  a.Descriptor(m.sys), a.Descriptor(m.hidden), a.Descriptor(m.agent);
  a.Each(m.mounts, kMaxItems, [&](auto& e) { Fields(a, e); });
  a.Text(m.mount_point, kMaxInitPath);
  a.Each(m.covers, kMaxItems, [&](auto& e) { Fields(a, e); });
  a.Text(m.hostname, kMaxInitPath), Cpus(a, m.cpus);
  Descriptors(a, m.keep);
  a.List(m.argv, kMaxItems, kMaxInitPath);
}

namespace {

template <class M>
InitMessage EncodeInit(uint8_t kind, const M& message) {
  PutWithFds put;
  put(kind);
  Fields(put, message);
  return put.TakeMessage();
}

template <class M>
Result<M> DecodeInit(uint8_t kind, std::string_view bytes, const std::vector<Fd>& fds) {
  GetWithFds get(bytes, fds);
  uint8_t got = 0;
  get(got);
  get.Require(got == kind);
  M message;
  Fields(get, message);
  if (!get.ok()) return Fail(Code::kProtocol, "bad message to an init");
  return message;
}

}  // namespace

InitMessage Encode(const InitSetup& setup) {
  return EncodeInit(kStart, setup);
}

InitMessage Encode(const InitPlan& plan) {
  return EncodeInit(kPlan, plan);
}

Result<InitSetup> DecodeInitSetup(std::string_view bytes, const std::vector<Fd>& fds) {
  return DecodeInit<InitSetup>(kStart, bytes, fds);
}

Result<InitPlan> DecodeInitPlan(std::string_view bytes, const std::vector<Fd>& fds) {
  return DecodeInit<InitPlan>(kPlan, bytes, fds);
}

}  // namespace sandbar::protocol
