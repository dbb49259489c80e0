// How messages between our own programs become bytes. Each message has one function Fields(a, m) that names its fields
// in the order of the wire; Put writes them, Get reads them and checks their bounds. No I/O.
//
//   struct Kill { std::string id; int32_t signal = 15; };
//   template <class A>
//   void Fields(A& a, Is<Kill> auto& m) {
//     a.Text(m.id, kMaxCommandId);
//     a(m.signal);
//     a.Require(m.signal > 0 && m.signal <= 64);
//   }
//
// Messages are append-only. A field is never changed or removed. A new field comes last, by Appended(), and a receiver
// that does not know it ignores it. A message that ends in Rest() cannot get new fields, and neither can an entry of a
// list. The oldest builds refuse fields that they do not know (guest_frames.h and spawner_messages.h name the
// versions). In a message to such a build, new fields must have their default value, which is not sent. Integers and
// strings are encoded as in base/bytes.h.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"

namespace sandbar::protocol {

// 1 in the programs that tests of upgrades use in place of the next build: they speak one version more.
#ifdef SB_PROTOCOL_AHEAD
inline constexpr uint32_t kAhead = 1;
#else
inline constexpr uint32_t kAhead = 0;
#endif

// For Fields(): M is the message T, const when it is written.
template <class M, class T>
concept Is = std::same_as<std::remove_const_t<M>, T>;

class Put {
 public:
  static constexpr bool kReads = false;

  void operator()(uint8_t v) { w_.U8(v); }
  void operator()(bool v) { w_.U8(v ? 1 : 0); }
  void operator()(uint32_t v) { w_.U32(v); }
  void operator()(uint64_t v) { w_.U64(v); }
  void operator()(int32_t v) { w_.I32(v); }
  void operator()(int64_t v) { w_.I64(v); }
  void Text(std::string_view v, size_t /*max*/) { w_.Str(v); }
  // A longer one is cut.
  void CutText(std::string_view v, size_t max) { w_.Str(v.substr(0, max)); }
  void List(const std::vector<std::string>& v, size_t /*max*/, size_t /*max_each*/) { w_.StrList(v); }
  template <class T, class F>
  void Each(const std::vector<T>& v, size_t /*max*/, F fields) {
    w_.U32(static_cast<uint32_t>(v.size()));
    for (const T& e : v) fields(e);
  }
  template <class E>
  void Enum(E v, E /*last*/) {
    w_.U8(static_cast<uint8_t>(v));
  }
  // All bytes up to the end of the message, at least one.
  void Rest(std::string_view v, size_t /*max*/) {
    w_.Raw(v);
    open_ended_ = true;
  }
  void Require(bool) {}
  // A field that came later: `field` writes it. Left out together with all that follow as long as each is as in T().
  template <class T, class F>
  void Appended(const T& v, F field) {
    ByteWriter before = std::exchange(w_, ByteWriter());
    field();
    omitted_ += std::exchange(w_, std::move(before)).Take();
    if (v == T()) return;
    w_.Raw(std::exchange(omitted_, {}));
  }

  std::string Take() {
    // As of a later build that has appended a field, for the tests of upgrades.
    if (kAhead > 0 && !open_ended_) w_.Raw(omitted_ + "appended later");
    return w_.Take();
  }

 private:
  ByteWriter w_;
  std::string omitted_;
  bool open_ended_ = false;
};

class Get {
 public:
  static constexpr bool kReads = true;

  explicit Get(std::string_view in) : r_(in) {}

  void operator()(uint8_t& v) { v = r_.U8(); }
  void operator()(bool& v) {
    const uint8_t b = r_.U8();
    Require(b <= 1);
    v = b == 1;
  }
  void operator()(uint32_t& v) { v = r_.U32(); }
  void operator()(uint64_t& v) { v = r_.U64(); }
  void operator()(int32_t& v) { v = r_.I32(); }
  void operator()(int64_t& v) { v = r_.I64(); }
  void Text(std::string& v, size_t max) { v = r_.Str(max); }
  void CutText(std::string& v, size_t max) { v = r_.Str(max); }
  void List(std::vector<std::string>& v, size_t max, size_t max_each) { v = r_.StrList(max, max_each); }
  template <class T, class F>
  void Each(std::vector<T>& v, size_t max, F fields) {
    v.clear();
    const uint32_t n = r_.U32();
    Require(n <= max);
    for (uint32_t i = 0; i < n && ok(); ++i) fields(v.emplace_back());
  }
  template <class E>
  void Enum(E& v, E last) {
    const uint8_t raw = r_.U8();
    Require(raw <= static_cast<uint8_t>(last));
    v = ok() ? static_cast<E>(raw) : last;
  }
  void Rest(std::string& v, size_t max) {
    Require(r_.remaining() > 0 && r_.remaining() <= max);
    if (ok()) v = r_.Rest();
  }
  void Require(bool holds) { ok_ = ok_ && holds; }
  template <class T, class F>
  void Appended(T& v, F field) {
    if (r_.remaining() > 0) return field();
    v = T();
  }

  // Every field was there and within its bounds. What is left over are fields of a later build.
  bool ok() const { return ok_ && r_.ok(); }

 private:
  ByteReader r_;
  bool ok_ = true;
};

// The position of a type in its variant is its number on the wire: append only. False: there is no such type, or its
// fields are not in `in`.
template <class Variant>
bool GetAlternative(size_t index, std::string_view in, Variant& out) {
  bool done = false;
  auto read = [&]<size_t I>(std::integral_constant<size_t, I>) {
    Get get(in);
    Fields(get, out.template emplace<I>());
    done = get.ok();
    return true;
  };
  [&]<size_t... I>(std::index_sequence<I...>) {
    [[maybe_unused]] bool found = ((I == index && read(std::integral_constant<size_t, I>())) || ...);
  }(std::make_index_sequence<std::variant_size_v<Variant>>());
  return done;
}

}  // namespace sandbar::protocol
