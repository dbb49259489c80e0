#include "spawner/disk/memory_file.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"

namespace sandbar::spawner {
namespace {

constexpr std::string_view kMagic = "SANDBAR MEMORY 1";
constexpr size_t kMaxField = 256;
constexpr size_t kPiece = 1 << 20;
constexpr uint64_t kOdd = 0x9e3779b97f4a7c15ULL;  // multiplying by an odd number can be undone

std::unexpected<Error> Damaged() {
  return Fail(Code::kConflict, "the saved memory is damaged: it is not what was written");
}

}  // namespace

void Checksum::Word(uint64_t word) {
  uint64_t& lane = lanes_[(size_ / 8) % lanes_.size()];
  lane = std::rotl((lane ^ word) * kOdd, 29);
  size_ += 8;
}

void Checksum::Add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t have = size_ % 8;
    if (have == 0 && bytes.size() >= 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data(), 8);
      Word(word);
      bytes.remove_prefix(8);
      continue;
    }
    const size_t n = std::min(8 - have, bytes.size());
    std::memcpy(part_.data() + have, bytes.data(), n);
    bytes.remove_prefix(n);
    size_ += n;
    if (have + n < 8) break;
    size_ -= 8;
    uint64_t word = 0;
    std::memcpy(&word, part_.data(), 8);
    Word(word);
  }
}

std::string Checksum::Hex() const {
  Checksum last = *this;
  ByteWriter end;
  end.U64(size_);
  // To a whole word, so that the length is one of its own.
  last.Add(std::string((8 - size_ % 8) % 8, '\0'));
  last.Add(end.str());
  ByteWriter out;
  for (uint64_t lane : last.lanes_) out.U64(lane);
  return sandbar::Hex(out.str());
}

std::string EncodeMemoryHeader(const MemoryHeader& h) {
  ByteWriter w;
  w.Raw(kMagic);
  for (const std::string* text :
       {&h.needs.engine, &h.needs.qemu, &h.needs.cpu, &h.needs.kernel, &h.needs.devices, &h.sum})
    w.Str(std::string_view(*text).substr(0, kMaxField));
  w.U64(h.needs.memory_mib);
  w.U32(h.needs.vcpus);
  w.U64(h.bytes);
  Checksum own;
  own.Add(w.str());
  w.Str(own.Hex());
  std::string page = w.Take();
  page.resize(kMemoryHeader);
  return page;
}

Result<MemoryHeader> DecodeMemoryHeader(std::string_view page) {
  if (page.size() != kMemoryHeader || !page.starts_with(kMagic)) return Damaged();
  ByteReader r(page.substr(kMagic.size()));
  MemoryHeader h;
  for (std::string* text : {&h.needs.engine, &h.needs.qemu, &h.needs.cpu, &h.needs.kernel, &h.needs.devices, &h.sum})
    *text = r.Str(kMaxField);
  h.needs.memory_mib = r.U64();
  h.needs.vcpus = r.U32();
  h.bytes = r.U64();
  const size_t length = page.size() - r.remaining();
  const std::string_view sum = r.Str(kMaxField);
  const std::string_view rest = r.Rest();
  Checksum own;
  own.Add(page.substr(0, length));
  if (!r.ok() || sum != own.Hex() || rest.find_first_not_of('\0') != std::string_view::npos) return Damaged();
  return h;
}

Result<MemoryHeader> ReadMemoryHeader(int file) {
  std::string page(kMemoryHeader, '\0');
  const ssize_t n = ::pread(file, page.data(), page.size(), 0);
  if (n < 0) return FailErrno("read the saved memory");
  return DecodeMemoryHeader(std::string_view(page).substr(0, static_cast<size_t>(n)));
}

Result<> CheckNeeds(const MemoryNeeds& needs, const MemoryNeeds& have) {
  auto differ = [](std::string_view what, const std::string& saved, const std::string& here) {
    return Fail(Code::kConflict, "the saved memory cannot go on here: it needs the " + std::string(what) + " " + saved +
                                     ", and this machine has " + here);
  };
  if (needs.engine != have.engine) return differ("engine", needs.engine, have.engine);
  if (needs.qemu != have.qemu) return differ("QEMU", needs.qemu, have.qemu);
  if (needs.cpu != have.cpu) return differ("processor", needs.cpu, have.cpu);
  if (needs.kernel != have.kernel) return differ("guest kernel", needs.kernel.substr(0, 12), have.kernel.substr(0, 12));
  if (needs.memory_mib != have.memory_mib)
    return differ("memory size", std::to_string(needs.memory_mib) + " MiB", std::to_string(have.memory_mib) + " MiB");
  if (needs.vcpus != have.vcpus)
    return differ("number of vcpus", std::to_string(needs.vcpus), std::to_string(have.vcpus));
  if (needs.devices != have.devices)
    return Fail(Code::kConflict,
                "the saved memory cannot go on here: it needs other devices than this version of the server gives");
  return {};
}

Result<> CheckMemory(int file, const MemoryHeader& header) {
  Checksum sum;
  std::vector<char> piece(kPiece);
  uint64_t at = 0;
  for (;;) {
    const ssize_t n = ::pread(file, piece.data(), piece.size(), static_cast<off_t>(kMemoryHeader + at));
    if (n < 0 && errno == EINTR) continue;
    // The filesystem may have found out before we do.
    if (n < 0) return Damaged();
    if (n == 0) break;
    at += static_cast<uint64_t>(n);
    if (at > header.bytes) return Damaged();
    sum.Add(std::string_view(piece.data(), static_cast<size_t>(n)));
  }
  if (at != header.bytes || sum.Hex() != header.sum) return Damaged();
  if (::lseek(file, kMemoryHeader, SEEK_SET) != static_cast<off_t>(kMemoryHeader)) return FailErrno("seek");
  return {};
}

}  // namespace sandbar::spawner
