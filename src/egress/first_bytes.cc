#include "egress/first_bytes.h"

#include <array>

#include "egress/stream_io.h"

namespace sandbar::egress {

namespace {

constexpr size_t kPiece = 16 << 10;
constexpr size_t kEnoughHttp = 8 << 10;  // of a request that is refused anyway
constexpr std::array<std::string_view, 9> kHttpMethods = {"GET ",     "POST ",  "PUT ",     "HEAD ", "DELETE ",
                                                          "OPTIONS ", "PATCH ", "CONNECT ", "TRACE "};
constexpr std::string_view kHttp2Preface = "PRI * HTTP/2";

// One more piece; false when there is none and `problem` says why.
Task<bool> ReadMore(Stream* guest, Opening* opening) {
  auto piece = co_await ReadSome(guest, kPiece);
  if (!piece && piece.error().code == Code::kCancelled) co_return std::unexpected(std::move(piece).error());
  if (!piece || piece->empty()) {
    opening->problem = "the client closed the connection";
    co_return false;
  }
  opening->bytes += *piece;
  co_return true;
}

// A byte more than the request would be read before encryption starts and taken as if it came after.
Task<bool> AnswerPostgres(Stream* guest, Opening* opening) {
  bool ssl = opening->bytes == kPostgresSslRequest;
  if (!ssl && opening->bytes != kPostgresGssRequest) {
    opening->problem = "bytes after a request for encryption";
    co_return false;
  }
  opening->bytes.clear();
  opening->postgres = ssl;
  std::string answer = ssl ? "S" : "N";
  auto written = co_await WriteAll(guest, std::move(answer));
  if (!written) opening->problem = "the client closed the connection";
  co_return written.has_value();
}

// Whether the ClientHello is whole; otherwise how many bytes it takes, or a problem.
bool HelloDone(Opening& opening, size_t& need) {
  auto progress = wire::ParseClientHello(opening.bytes);
  if (!progress) {
    opening.problem = progress.error().message;
    return true;
  }
  need = progress->need;
  opening.hello = std::move(progress->hello);
  return opening.hello.has_value();
}

Task<> ReadAll(Stream* guest, Opening* opening) {
  size_t need = 1;
  for (;;) {
    while (opening->bytes.size() < need) {
      auto more = co_await ReadMore(guest, opening);
      if (!more) co_return std::unexpected(std::move(more).error());
      if (!*more) co_return Result<>{};
    }
    opening->speech = Classify(opening->bytes);
    if (opening->postgres && opening->speech != Speech::kTls && opening->speech != Speech::kUnknownYet) {
      opening->problem = "not TLS after a request for encryption";
      co_return Result<>{};
    }
    if (opening->speech == Speech::kPostgres) {
      auto answered = co_await AnswerPostgres(guest, opening);
      if (!answered) co_return std::unexpected(std::move(answered).error());
      if (!*answered) co_return Result<>{};
      need = 1;
    } else if (opening->speech == Speech::kUnknownYet) {
      need = opening->bytes.size() + 1;
    } else if (opening->speech != Speech::kTls || HelloDone(*opening, need)) {
      co_return Result<>{};
    }
  }
}

Task<> ReadLanguage(Stream* guest, Opening* opening) {
  for (;;) {
    opening->speech = Classify(opening->bytes);
    // A request is read to the end of its head: an answer before that confuses clients.
    bool whole = opening->bytes.contains("\r\n\r\n") || opening->bytes.size() >= kEnoughHttp;
    bool enough = opening->speech == Speech::kHttp ? whole : opening->speech != Speech::kUnknownYet;
    if (enough) co_return Result<>{};
    auto more = co_await ReadMore(guest, opening);
    if (!more) co_return std::unexpected(std::move(more).error());
    if (!*more) co_return Result<>{};
  }
}

Task<> Limit(Task<> reading, Opening* opening, std::chrono::milliseconds timeout) {
  auto read = co_await WithTimeout(std::move(reading), timeout);
  opening->done = true;
  if (read) co_return read;
  if (read.error().code != Code::kTimeout) co_return read;
  bool silent = opening->bytes.empty() && !opening->postgres;
  opening->problem = silent ? "the client waits for the server to speak first" : "the client took too long";
  co_return Result<>{};
}

}  // namespace

Speech Classify(std::string_view in) {
  if (in.empty()) return Speech::kUnknownYet;
  if (in[0] == 0x16) {
    if (in.size() < 3) return Speech::kUnknownYet;
    return in[1] == 0x03 && in[2] >= 0 && in[2] <= 4 ? Speech::kTls : Speech::kOther;
  }
  for (std::string_view request : {kPostgresSslRequest, kPostgresGssRequest}) {
    if (in.starts_with(request)) return Speech::kPostgres;
    if (request.starts_with(in)) return Speech::kUnknownYet;
  }
  if (in.starts_with(kHttp2Preface)) return Speech::kHttp2;
  if (kHttp2Preface.starts_with(in)) return Speech::kUnknownYet;
  for (std::string_view method : kHttpMethods) {
    if (in.starts_with(method)) return Speech::kHttp;
    if (method.starts_with(in)) return Speech::kUnknownYet;
  }
  return Speech::kOther;
}

std::string_view KindName(Speech speech) {
  if (speech == Speech::kTls || speech == Speech::kPostgres) return "tls";
  return speech == Speech::kHttp || speech == Speech::kHttp2 ? "http" : "tcp";
}

Task<> ReadOpening(Stream* guest, Opening* opening, std::chrono::milliseconds timeout) {
  auto reading = ReadAll(guest, opening);
  auto read = co_await Limit(std::move(reading), opening, timeout);
  co_return read;
}

Task<> ReadSpeech(Stream* guest, Opening* opening, std::chrono::milliseconds timeout) {
  auto reading = ReadLanguage(guest, opening);
  auto read = co_await Limit(std::move(reading), opening, timeout);
  co_return read;
}

}  // namespace sandbar::egress
