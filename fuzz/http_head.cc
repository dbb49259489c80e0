// HTTP heads and bodies from anywhere: the parser must bound everything, must not care how the bytes were cut into
// pieces, and what it accepts must mean the same after it was written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "wire/http1.h"

using namespace sandbar;
using namespace sandbar::wire;

namespace {

struct Outcome {
  bool failed = false;
  bool done = false;
  size_t used = 0;
  HttpHead head;
  std::string body;
};

Outcome Parse(std::string_view in, size_t step, HttpKind kind) {
  Outcome out;
  HttpParser parser(kind, HttpLimits{.head_bytes = 2048, .fields = 16, .trailer_bytes = 256});
  size_t offered = 0;
  while (!parser.done() && out.used < in.size()) {
    if (offered == out.used) offered = std::min(in.size(), offered + step);
    auto used = parser.Feed(in.substr(out.used, offered - out.used), &out.body);
    if (!used) {
      out.failed = true;
      break;
    }
    if (*used == 0 || *used > offered - out.used) std::abort();
    out.used += *used;
  }
  out.done = parser.done();
  out.head = parser.head();
  return out;
}

bool Same(const HttpHead& a, const HttpHead& b) {
  if (a.method != b.method || a.target != b.target || a.status != b.status || a.chunked != b.chunked) return false;
  if (a.content_length != b.content_length || a.fields.size() != b.fields.size()) return false;
  for (size_t i = 0; i < a.fields.size(); ++i)
    if (a.fields[i].name != b.fields[i].name || a.fields[i].value != b.fields[i].value) return false;
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const HttpKind kind = (data[0] & 1) != 0 ? HttpKind::kResponse : HttpKind::kRequest;
  const size_t step = 1 + (data[0] >> 1) % 16;
  const std::string_view in(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = Parse(in, in.size(), kind);
  const Outcome pieces = Parse(in, step, kind);
  if (whole.failed != pieces.failed || whole.done != pieces.done) std::abort();
  if (!whole.failed && (whole.used != pieces.used || whole.body != pieces.body || !Same(whole.head, pieces.head)))
    std::abort();
  if (kind == HttpKind::kRequest && !whole.failed && whole.done && whole.head.version == 11) {
    const std::string again = SerializeRequestHead(whole.head.method, whole.head.target, whole.head.fields);
    const Outcome second = Parse(again, again.size(), kind);
    // Folded values and lost blanks may change the length, and with it what the limits say.
    if (second.failed && again.size() <= 2048) std::abort();
    if (!second.failed && !Same(whole.head, second.head)) std::abort();
  }
  return 0;
}
