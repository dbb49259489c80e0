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
Task<bool> ReadMore(Stream* guest, FirstBytes* first_bytes) {
  auto piece = co_await ReadSome(guest, kPiece);
  if (!piece && piece.error().code == Code::kCancelled) co_return std::unexpected(std::move(piece).error());
  if (!piece || piece->empty()) {
    first_bytes->problem = "the client closed the connection";
    co_return false;
  }
  first_bytes->bytes += *piece;
  co_return true;
}

// A byte more than the request would be read before encryption starts and taken as if it came after.
Task<bool> AnswerPostgres(Stream* guest, FirstBytes* first_bytes) {
  bool ssl = first_bytes->bytes == kPostgresSslRequest;
  if (!ssl && first_bytes->bytes != kPostgresGssRequest) {
    first_bytes->problem = "bytes after a request for encryption";
    co_return false;
  }
  first_bytes->bytes.clear();
  first_bytes->postgres = ssl;
  std::string answer = ssl ? "S" : "N";
  auto written = co_await WriteAll(guest, std::move(answer));
  if (!written) first_bytes->problem = "the client closed the connection";
  co_return written.has_value();
}

// Whether the ClientHello is whole; otherwise how many bytes it takes, or a problem.
bool HelloDone(FirstBytes& first_bytes, size_t& need) {
  auto progress = wire::ParseClientHello(first_bytes.bytes);
  if (!progress) {
    first_bytes.problem = progress.error().message;
    return true;
  }
  need = progress->need;
  first_bytes.hello = std::move(progress->hello);
  return first_bytes.hello.has_value();
}

Task<> ReadAll(Stream* guest, FirstBytes* first_bytes) {
  size_t need = 1;
  for (;;) {
    while (first_bytes->bytes.size() < need) {
      auto more = co_await ReadMore(guest, first_bytes);
      if (!more) co_return std::unexpected(std::move(more).error());
      if (!*more) co_return Result<>{};
    }
    first_bytes->protocol = Classify(first_bytes->bytes);
    if (first_bytes->postgres && first_bytes->protocol != AppProtocol::kTls &&
        first_bytes->protocol != AppProtocol::kUnknownYet) {
      first_bytes->problem = "not TLS after a request for encryption";
      co_return Result<>{};
    }
    if (first_bytes->protocol == AppProtocol::kPostgres) {
      auto answered = co_await AnswerPostgres(guest, first_bytes);
      if (!answered) co_return std::unexpected(std::move(answered).error());
      if (!*answered) co_return Result<>{};
      need = 1;
    } else if (first_bytes->protocol == AppProtocol::kUnknownYet) {
      need = first_bytes->bytes.size() + 1;
    } else if (first_bytes->protocol != AppProtocol::kTls || HelloDone(*first_bytes, need)) {
      co_return Result<>{};
    }
  }
}

Task<> ReadUntilProtocol(Stream* guest, FirstBytes* first_bytes) {
  for (;;) {
    first_bytes->protocol = Classify(first_bytes->bytes);
    // A request is read to the end of its head: an answer before that confuses clients.
    bool whole = first_bytes->bytes.contains("\r\n\r\n") || first_bytes->bytes.size() >= kEnoughHttp;
    bool enough =
        first_bytes->protocol == AppProtocol::kHttp ? whole : first_bytes->protocol != AppProtocol::kUnknownYet;
    if (enough) co_return Result<>{};
    auto more = co_await ReadMore(guest, first_bytes);
    if (!more) co_return std::unexpected(std::move(more).error());
    if (!*more) co_return Result<>{};
  }
}

Task<> Limit(Task<> reading, FirstBytes* first_bytes, std::chrono::milliseconds timeout) {
  auto read = co_await WithTimeout(std::move(reading), timeout);
  first_bytes->done = true;
  if (read) co_return read;
  if (read.error().code != Code::kTimeout) co_return read;
  bool silent = first_bytes->bytes.empty() && !first_bytes->postgres;
  first_bytes->problem = silent ? "the client waits for the server to speak first" : "the client took too long";
  co_return Result<>{};
}

}  // namespace

AppProtocol Classify(std::string_view in) {
  if (in.empty()) return AppProtocol::kUnknownYet;
  if (in[0] == 0x16) {
    if (in.size() < 3) return AppProtocol::kUnknownYet;
    return in[1] == 0x03 && in[2] >= 0 && in[2] <= 4 ? AppProtocol::kTls : AppProtocol::kOther;
  }
  for (std::string_view request : {kPostgresSslRequest, kPostgresGssRequest}) {
    if (in.starts_with(request)) return AppProtocol::kPostgres;
    if (request.starts_with(in)) return AppProtocol::kUnknownYet;
  }
  if (in.starts_with(kHttp2Preface)) return AppProtocol::kHttp2;
  if (kHttp2Preface.starts_with(in)) return AppProtocol::kUnknownYet;
  for (std::string_view method : kHttpMethods) {
    if (in.starts_with(method)) return AppProtocol::kHttp;
    if (method.starts_with(in)) return AppProtocol::kUnknownYet;
  }
  return AppProtocol::kOther;
}

std::string_view KindName(AppProtocol protocol) {
  if (protocol == AppProtocol::kTls || protocol == AppProtocol::kPostgres) return "tls";
  return protocol == AppProtocol::kHttp || protocol == AppProtocol::kHttp2 ? "http" : "tcp";
}

Task<> ReadFirstBytes(Stream* guest, FirstBytes* first_bytes, std::chrono::milliseconds timeout) {
  auto reading = ReadAll(guest, first_bytes);
  auto read = co_await Limit(std::move(reading), first_bytes, timeout);
  co_return read;
}

Task<> ReadProtocol(Stream* guest, FirstBytes* first_bytes, std::chrono::milliseconds timeout) {
  auto reading = ReadUntilProtocol(guest, first_bytes);
  auto read = co_await Limit(std::move(reading), first_bytes, timeout);
  co_return read;
}

}  // namespace sandbar::egress
