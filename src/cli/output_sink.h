// Where a command's output goes: its bytes to our stdout and stderr, unchanged; or with --json one line per piece, as
// text. Blocks while the reader of our output does. Single loop.
//
//   OutputSink sink(options->json);
//   SB_TRYV(sink.Bytes(wire::OutputKind::kStdout, bytes));
#pragma once

#include <cstdint>
#include <string_view>

#include "cli/server_endpoint.h"
#include "wire/output_frames.h"
#include "wire/output_text.h"

namespace sandbar::cli {

class OutputSink {
 public:
  explicit OutputSink(bool as_json) : as_json_(as_json) {}
  Result<> Bytes(wire::OutputKind kind, std::string_view bytes);
  Result<> Gap(uint64_t missing);
  // How the command is now: at its start and at its end.
  Result<> Command(const json::object& command);

 private:
  Result<> Line(wire::OutputKind kind, const wire::OutputText::Piece& piece);

  bool as_json_;
  wire::OutputText out_, err_;
};

}  // namespace sandbar::cli
