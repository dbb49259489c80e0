#include "cli/output_sink.h"

#include "cli/output.h"
#include "wire/ndjson.h"

namespace sandbar::cli {

using wire::OutputKind;

Result<> OutputSink::Line(OutputKind kind, const wire::OutputText::Piece& piece) {
  if (piece.text.empty()) return {};
  json::object line{{"stream", kind == OutputKind::kStdout ? "stdout" : "stderr"}, {"data", piece.text}};
  if (piece.replaced) line["replaced"] = true;
  return Out(wire::NdjsonLine(line));
}

Result<> OutputSink::Bytes(OutputKind kind, std::string_view bytes) {
  const bool out = kind == OutputKind::kStdout;
  if (!as_json_) return WriteAll(out ? 1 : 2, bytes);
  return Line(kind, (out ? out_ : err_).Feed(bytes));
}

Result<> OutputSink::Gap(uint64_t missing) {
  if (!as_json_) {
    Note(std::to_string(missing) + " bytes of the output are missing here");
    return {};
  }
  json::object line{{"gap", missing}};
  return Out(wire::NdjsonLine(line));
}

Result<> OutputSink::Command(const json::object& command) {
  if (!as_json_) return {};
  SB_TRYV(Line(OutputKind::kStdout, out_.Flush()));
  SB_TRYV(Line(OutputKind::kStderr, err_.Flush()));
  json::object line{{"command", command}};
  return Out(wire::NdjsonLine(line));
}

}  // namespace sandbar::cli
