#include "egress/intercept_response.h"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "wire/http_hops.h"
#include "wire/text.h"

namespace sandbar::egress {

namespace {

using wire::EqualsIgnoreCase;
using wire::HttpField;

constexpr std::string_view kRedacted = "<redacted>";
constexpr int kMaxInformational = 16;

// In one pass for each secret: an upstream can repeat one as often as a head has room.
std::string Redact(std::string value, const std::vector<std::string>& secrets) {
  for (const std::string& secret : secrets) {
    std::string out;
    size_t done = 0;
    for (size_t at = value.find(secret); at != value.npos; at = value.find(secret, done)) {
      out.append(value, done, at - done).append(kRedacted);
      done = at + secret.size();
    }
    if (done == 0) continue;
    value = out.append(value, done);
  }
  return value;
}

}  // namespace

std::string ResponseHead(const wire::HttpHead& response, BodyFraming framing, bool keep_alive,
                         const std::vector<std::string>& secrets) {
  std::string out;
  wire::AppendStatusLine(out, response.status);
  for (const HttpField& f : wire::EndToEndFields(response.fields)) {
    // Another way to the same service is none that leads through here.
    if (EqualsIgnoreCase(f.name, "alt-svc")) continue;
    wire::AppendField(out, f.name, Redact(f.value, secrets));
  }
  if (framing == BodyFraming::kChunked) wire::AppendField(out, "transfer-encoding", "chunked");
  // Without a body it is what the length would be (HEAD, 304).
  const bool length = framing == BodyFraming::kLength ||
                      (framing == BodyFraming::kNone && response.status >= 200 && response.status != 204);
  if (length && response.content_length)
    wire::AppendField(out, "content-length", std::to_string(*response.content_length));
  if (response.status == 101) {
    wire::AppendField(out, "connection", "Upgrade");
    wire::AppendField(out, "upgrade", "websocket");
  } else if (!keep_alive) {
    wire::AppendField(out, "connection", "close");
  }
  out.append("\r\n");
  return out;
}

std::string SerializeErrorAnswer(const ErrorAnswer& problem, bool keep_alive, bool body) {
  boost::json::object error{{"code", problem.code}, {"message", problem.message}};
  if (!problem.host.empty()) error["host"] = problem.host;
  if (!problem.rule.empty()) error["rule"] = problem.rule;
  if (!problem.hint.empty()) error["hint"] = problem.hint;
  boost::json::object answer{{"error", std::move(error)}};
  RespondAction action{.status = problem.status,
                       .headers = {{"cache-control", "no-store"}},
                       .body = boost::json::serialize(answer) + "\n",
                       .content_type = "application/json"};
  return RuleAnswer(action, keep_alive, body);
}

std::string RuleAnswer(const RespondAction& action, bool keep_alive, bool body) {
  std::string out;
  wire::AppendStatusLine(out, action.status);
  if (!action.content_type.empty()) wire::AppendField(out, "content-type", action.content_type);
  for (const auto& [name, value] : action.headers)
    if (!EqualsIgnoreCase(name, "content-type") || action.content_type.empty()) wire::AppendField(out, name, value);
  const bool bodiless = action.status == 204 || action.status == 304;
  if (!bodiless) wire::AppendField(out, "content-length", std::to_string(action.body.size()));
  if (!keep_alive) wire::AppendField(out, "connection", "close");
  out.append("\r\n");
  if (body && !bodiless) out.append(action.body);
  return out;
}

Task<> ResponseDownload::Run(const OutgoingRequest* out) {
  SB_CO_TRYV(co_await ReadFinalHead());
  const wire::HttpHead& head = reader_->head();
  BodyFraming framing = BodyFraming::kUntilClose;
  if (exchange_->request->head().version == 11) framing = BodyFraming::kChunked;
  if (head.content_length) framing = BodyFraming::kLength;
  const bool bodiless = exchange_->request->head().method == "HEAD" || head.status == 204 || head.status == 304;
  if (bodiless || head.status == 101) framing = BodyFraming::kNone;
  // While the upload runs on, nobody knows where the next request begins.
  exchange_->keep = exchange_->request->head().keep_alive && exchange_->uploaded && framing != BodyFraming::kUntilClose;
  std::string text = ResponseHead(head, framing, exchange_->keep, out->secrets);
  exchange_->answered = true;
  http::Pieces pieces{text};
  SB_CO_TRYV(co_await exchange_->guest->WriteAll(pieces));
  exchange_->deadline->Touch();
  if (framing == BodyFraming::kNone) co_return Result<>{};
  co_return co_await SendBody(framing);
}

Task<> ResponseDownload::ReadFinalHead() {
  for (int informational = 0; informational < kMaxInformational; ++informational) {
    if (exchange_->request->head().method == "HEAD") reader_->parser().ExpectNoBody();
    SB_CO_TRY(bool got, co_await reader_->ReadHead());
    if (!got && reader_->parser().head_started())
      co_return Fail(Code::kClosed, "the connection was closed in the middle of a head");
    if (!got) co_return Fail(Code::kClosed, "it closed the connection");
    const wire::HttpHead& head = reader_->head();
    if (head.status >= 200) co_return Result<>{};
    if (head.status == 101) {
      const bool asked = exchange_->websocket && wire::EqualsIgnoreCase(head.Get("upgrade"), "websocket");
      if (!asked) co_return Fail(Code::kProtocol, "it switched protocols unasked");
      co_return Result<>{};
    }
    // "100 Continue" was said already; the others are hints that a client can do without.
    reader_->Next();
  }
  co_return Fail(Code::kProtocol, "it sent too many informational responses");
}

Task<> ResponseDownload::SendBody(BodyFraming framing) {
  const bool chunked = framing == BodyFraming::kChunked;
  for (;;) {
    SB_CO_TRY(std::string piece, co_await reader_->ReadBody());
    if (piece.empty()) break;
    std::string size = chunked ? wire::ChunkHeader(piece.size()) : "";
    http::Pieces pieces{size, piece, chunked ? "\r\n" : ""};
    SB_CO_TRYV(co_await exchange_->guest->WriteAll(pieces));
    exchange_->deadline->Touch();
  }
  http::Pieces last{chunked ? "0\r\n\r\n" : ""};
  co_return co_await exchange_->guest->WriteAll(last);
}

}  // namespace sandbar::egress
