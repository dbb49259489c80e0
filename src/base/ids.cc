#include "base/ids.h"

#include <sys/random.h>

#include <array>
#include <chrono>

#include "base/result.h"

namespace sandbar {
namespace {

std::string FromAlphabet(std::string_view prefix, std::string_view alphabet, size_t n) {
  std::string out(prefix);
  // Rejection sampling keeps the distribution flat.
  const unsigned limit = 256 - 256 % static_cast<unsigned>(alphabet.size());
  while (out.size() < prefix.size() + n) {
    std::array<unsigned char, 32> buf{};
    FillRandom(buf.data(), buf.size());
    for (unsigned char b : buf) {
      if (b >= limit) continue;
      out += alphabet[b % alphabet.size()];
      if (out.size() == prefix.size() + n) break;
    }
  }
  return out;
}

}  // namespace

void FillRandom(void* out, size_t n) {
  auto* p = static_cast<char*>(out);
  while (n > 0) {
    ssize_t r = ::getrandom(p, n, 0);
    if (r < 0 && errno == EINTR) continue;
    SB_CHECK(r > 0);
    p += r;
    n -= static_cast<size_t>(r);
  }
}

std::string NewId(std::string_view prefix, size_t n) {
  return FromAlphabet(prefix, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", n);
}

std::string NewLabel(std::string_view prefix, size_t n) {
  return FromAlphabet(prefix, "0123456789abcdefghijklmnopqrstuvwxyz", n);
}

std::string NewSandboxName() {
  static constexpr std::array<std::string_view, 16> kFirst = {"amber", "brisk",  "calm",  "coral", "dusky", "early",
                                                              "fresh", "gentle", "hazel", "ivory", "lucid", "misty",
                                                              "quiet", "rapid",  "sunny", "tidal"};
  static constexpr std::array<std::string_view, 16> kSecond = {"bay",  "beach",  "cove",   "delta", "dune",   "fjord",
                                                               "gulf", "harbor", "island", "kelp",  "lagoon", "marsh",
                                                               "reef", "shoal",  "strand", "wave"};
  std::array<unsigned char, 2> pick{};
  FillRandom(pick.data(), pick.size());
  std::string name(kFirst.at(pick[0] % kFirst.size()));
  name += '-';
  name += kSecond.at(pick[1] % kSecond.size());
  return NewLabel(name + "-", 8);
}

std::string Hex(std::string_view bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (char c : bytes) {
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace sandbar
