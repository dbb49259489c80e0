// What an interpreter's driver and program say, on its way to run_code's events: whatever the bytes and however they
// are cut, the events are lines of JSON of known kinds, the last is the one end, and there are no more bytes than the
// caps allow.
#include <boost/asio/io_context.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "sandbox/code/code_context.h"

using namespace sandbar;
using namespace sandbar::sandbox;

namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

std::string ReadAll(asio::io_context& io, CodeCell& cell) {
  std::string text;
  asio::co_spawn(io, cell.Next(), [&](std::exception_ptr e, Result<std::string> r) {
    Check(!e && r);
    text = *std::move(r);
  });
  io.run();
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  asio::io_context io(1);
  CodeContext context;
  auto cell = std::make_shared<CodeCell>(io.get_executor(), "ctx", 1, true, std::chrono::seconds(1));
  context.Begin(cell);
  std::string_view in(reinterpret_cast<const char*>(data), size);
  uint64_t offset = 0;
  // Each piece: where it comes from, its length, its bytes.
  while (in.size() > 2) {
    const auto kind = static_cast<uint8_t>(in[0]);
    const size_t n = std::min<size_t>(static_cast<uint8_t>(in[1]), in.size() - 2);
    const std::string_view bytes = in.substr(2, n);
    in.remove_prefix(2 + n);
    if (kind % 8 == 7) {
      context.Gap(offset, n);
    } else if (n > 0) {
      context.Take(offset - std::min<uint64_t>(offset, kind / 8 % 4), static_cast<uint8_t>(kind % 3 + 1), bytes);
    }
    offset = context.received();
  }
  cell->End("killed", "over");
  const std::string text = ReadAll(io, *cell);
  static const std::set<std::string_view> kKinds{"started", "stdout",   "stderr", "display",
                                                 "result",  "artifact", "error",  "end"};
  size_t ends = 0;
  for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    Check(end != std::string::npos && ends == 0);
    boost::system::error_code ec;
    const auto value = boost::json::parse(std::string_view(text).substr(at, end - at), ec);
    Check(!ec && kKinds.contains(value.at("type").as_string()));
    ends += value.at("type") == "end" ? 1 : 0;
  }
  Check(ends == 1);
  Check(text.size() < 32 * size + (64 << 10));
  return 0;
}
