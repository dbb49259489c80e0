// Bounded binary encoding used by the guest frames and the spawner's messages: little-endian integers and
// length-prefixed strings. A Reader never reads past its input and latches the first failure; check ok() once.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sandbar {

class ByteWriter {
 public:
  void U8(uint8_t v) { out_.push_back(static_cast<char>(v)); }
  void U32(uint32_t v) { Int(v); }
  void U64(uint64_t v) { Int(v); }
  void I32(int32_t v) { Int(static_cast<uint32_t>(v)); }
  void I64(int64_t v) { Int(static_cast<uint64_t>(v)); }
  void Str(std::string_view s) {
    U32(static_cast<uint32_t>(s.size()));
    out_.append(s);
  }
  void StrList(const std::vector<std::string>& v) {
    U32(static_cast<uint32_t>(v.size()));
    for (const auto& s : v) Str(s);
  }
  void Raw(std::string_view s) { out_.append(s); }

  const std::string& str() const { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  template <class T>
  void Int(T v) {
    for (size_t i = 0; i < sizeof(T); ++i) out_.push_back(static_cast<char>(v >> (8 * i)));
  }
  std::string out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view in) : in_(in) {}

  uint8_t U8() { return static_cast<uint8_t>(Int<uint8_t>()); }
  uint32_t U32() { return Int<uint32_t>(); }
  uint64_t U64() { return Int<uint64_t>(); }
  int32_t I32() { return static_cast<int32_t>(Int<uint32_t>()); }
  int64_t I64() { return static_cast<int64_t>(Int<uint64_t>()); }
  // View into the input; empty and !ok() when it does not fit or exceeds max.
  std::string_view Str(size_t max = 1 << 20) {
    uint32_t n = U32();
    if (n > max || n > in_.size()) return Bad(), std::string_view{};
    auto s = in_.substr(0, n);
    in_.remove_prefix(n);
    return s;
  }
  std::vector<std::string> StrList(size_t max_items = 65536, size_t max_each = 1 << 20) {
    uint32_t n = U32();
    // Each item costs at least its four length bytes: a huge count cannot make us reserve.
    if (n > max_items || n > in_.size() / 4) return Bad(), std::vector<std::string>{};
    std::vector<std::string> out;
    out.reserve(n);
    for (uint32_t i = 0; i < n && ok_; ++i) out.emplace_back(Str(max_each));
    return out;
  }
  std::string_view Rest() { return std::exchange(in_, {}); }
  size_t remaining() const { return in_.size(); }
  bool ok() const { return ok_; }
  // True when everything parsed and nothing is left over.
  bool Done() const { return ok_ && in_.empty(); }

 private:
  template <class T>
  T Int() {
    if (in_.size() < sizeof(T)) return Bad(), T{0};
    T v = 0;
    for (size_t i = 0; i < sizeof(T); ++i)
      v = static_cast<T>(v | static_cast<T>(static_cast<T>(static_cast<uint8_t>(in_[i])) << (8 * i)));
    in_.remove_prefix(sizeof(T));
    return v;
  }
  void Bad() {
    ok_ = false;
    in_ = {};
  }
  std::string_view in_;
  bool ok_ = true;
};

}  // namespace sandbar
