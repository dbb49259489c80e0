// Command output on its way into NDJSON: whatever the bytes and however they are cut, the text is valid UTF-8, the same
// for every cut, and the line is ASCII that a JSON parser reads back as that text.
#include "wire/ndjson.h"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "wire/text.h"

using namespace sandbar::wire;

namespace {

std::string Decode(std::string_view in, size_t step) {
  Utf8Stream stream;
  std::string all;
  while (!in.empty()) {
    const std::string piece = stream.Feed(in.substr(0, step));
    if (!IsUtf8(piece)) std::abort();
    all += piece;
    in.remove_prefix(std::min(step, in.size()));
  }
  all += stream.Flush();
  if (!stream.Flush().empty()) std::abort();
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view in(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = Decode(in, in.size() + 1);
  if (whole != Decode(in, 1 + data[0] % 8)) std::abort();
  std::string line;
  AppendOutputLine(line, "stdout", whole);
  if (line.find('\n') != line.size() - 1) std::abort();
  for (char c : line)
    if (c < 0x20 && c != '\n') std::abort();
  boost::system::error_code ec;
  const auto value = boost::json::parse(line, ec);
  if (ec || std::string_view(value.at("data").as_string()) != whole) std::abort();
  // Raw bytes straight into a string give the same as the decoder.
  std::string raw, decoded;
  AppendJsonAscii(raw, in);
  AppendJsonAscii(decoded, whole);
  if (raw != decoded) std::abort();
  return 0;
}
