#include "egress/intercept_request.h"

#include <algorithm>

#include "base/printable.h"
#include "wire/http_hops.h"
#include "wire/request_path.h"
#include "wire/text.h"
#include "wire/url.h"

namespace sandbar::egress {

namespace {

using wire::EqualsIgnoreCase;
using wire::HttpField;
using wire::HttpHead;

constexpr size_t kMinSecret = 4;  // shorter values occur everywhere
constexpr std::chrono::milliseconds kGonePoll{250};

// One spelling of a field's name: CGI and its like make one variable of "X-Key", "x-key" and "X_Key".
std::string Folded(std::string_view name) {
  std::string out(name);
  for (char& c : out) c = c == '_' ? '-' : wire::AsciiLower(c);
  return out;
}

ErrorAnswer Bad(std::string message, int status = 400, std::string code = "bad_request") {
  return {.status = status, .code = std::move(code), .message = std::move(message), .close = true};
}

ErrorAnswer Denied(std::string host, std::string rule, std::string why, std::string hint) {
  return {.message = "request to " + host + " denied: " + why,
          .reason = why,
          .host = std::move(host),
          .rule = std::move(rule),
          .hint = std::move(hint),
          .denied = true};
}

struct HostPort {
  std::string_view host;
  std::optional<uint16_t> port;
};
std::optional<HostPort> SplitHost(std::string_view text) {
  HostPort out{text, std::nullopt};
  size_t colon = text.rfind(':');
  if (text.starts_with('[')) {
    size_t end = text.find(']');
    if (end == text.npos) return std::nullopt;
    out.host = text.substr(1, end - 1);
    if (!out.host.contains(':')) return std::nullopt;  // brackets are for IPv6 only
    if (end + 1 == text.size()) return out;
    if (text[end + 1] != ':') return std::nullopt;
    colon = end + 1;
  }
  if (colon == text.npos) return out;
  if (!text.starts_with('[')) out.host = text.substr(0, colon);
  std::string_view digits = text.substr(colon + 1);
  bool clean =
      !digits.empty() && digits.size() <= 5 && std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  if (!clean) return std::nullopt;
  unsigned port = 0;
  for (char c : digits) port = port * 10 + static_cast<unsigned>(c - '0');
  if (port == 0 || port > 65535) return std::nullopt;
  out.port = static_cast<uint16_t>(port);
  return out;
}

OrErrorAnswer<void> DecideHost(std::string_view text, const RequestContext& context, AllowedRequest& out) {
  auto split = SplitHost(text);
  if (!split) return std::unexpected(Bad("the Host is malformed"));
  if (auto address = ParseAddress(split->host)) {
    out.address = *address;
    out.host = ToString(*address);
  } else {
    auto name = CanonicalName(split->host);
    if (!name)
      return std::unexpected(Denied(Printable(std::string_view(split->host).substr(0, 253)), "not a host name",
                                    name.error().message, "use a host name, or an address in its usual form"));
    out.host = *std::move(name);
  }
  if (context.tls && out.host != context.sni) {
    ErrorAnswer problem = Bad("the Host is not the name that TLS was set up for", 421, "misdirected_request");
    problem.host = out.host;
    return std::unexpected(std::move(problem));
  }
  if (split->port && *split->port != context.port) {
    ErrorAnswer problem = Bad("the Host's port is not the one of this connection", 421, "misdirected_request");
    problem.host = out.host;
    return std::unexpected(std::move(problem));
  }
  if (out.address) {
    if (context.policy->DecideAddress(*out.address) == AddressDecision::kAllowed) return {};
    return std::unexpected(Denied(out.host, "no rule allows it",
                                  "the sandbox's network policy does not allow this address",
                                  "add \"" + out.host + "\" to networkPolicy.subnets.allow"));
  }
  out.entry = context.policy->FindName(out.host);
  if (out.entry != nullptr) return {};
  return std::unexpected(Denied(out.host, "no rule allows it", "the sandbox's network policy does not allow this name",
                                "add \"" + out.host + "\" to networkPolicy.allow"));
}

bool IsReserved(std::string_view name) {
  std::string folded = Folded(name);
  return folded.starts_with("vercel-forwarded-") || folded == "vercel-sandbox-oidc-token" ||
         folded.starts_with("proxy-");
}

bool NamedByConnection(const std::vector<HttpField>& fields, std::string_view name) {
  return std::ranges::any_of(fields, [&](const HttpField& f) {
    return EqualsIgnoreCase(f.name, "connection") && wire::ListHasToken(f.value, name);
  });
}

// The fields of a guest's request that go on to its server. The proxy sets Host itself and answers Expect.
std::vector<HttpField> EndToEnd(const HttpHead& head) {
  std::vector<HttpField> out = wire::EndToEndFields(head.fields);
  std::erase_if(out, [](const HttpField& f) {
    return EqualsIgnoreCase(f.name, "host") || EqualsIgnoreCase(f.name, "expect") || IsReserved(f.name);
  });
  return out;
}

// A WebSocket upgrade is carried; others (h2c above all) would let requests pass that nobody checks.
bool AsksForWebSocket(const HttpHead& head) {
  return head.method == "GET" && !head.chunked && head.content_length.value_or(0) == 0 && head.version == 11 &&
         EqualsIgnoreCase(head.Get("upgrade"), "websocket") && NamedByConnection(head.fields, "upgrade");
}

// The rule of a request whose path has these readings.
Result<const Rule*> RuleFor(const std::vector<std::string>& readings, RequestView view, const RequestContext& context,
                            const DomainEntry& entry) {
  StepBudget budget(context.match_steps);
  view.path = readings.front();
  SB_TRY(const Rule* rule, context.policy->FindRule(entry, view, budget));
  for (size_t i = 1; i < readings.size(); ++i) {
    view.path = readings[i];
    SB_TRY(const Rule* other, context.policy->FindRule(entry, view, budget));
    // A path that two servers read in two ways must not choose between two rules.
    if (other != rule) return Fail(Code::kForbidden, "can be read in two ways, and these have different rules");
  }
  return rule;
}

ErrorAnswer UnclearPath(const AllowedRequest& decided, const std::string& why) {
  return Denied(decided.host, decided.entry->pattern, "this domain has rules about paths, and the path " + why,
                "send the path without escapes that are not needed, dot segments, backslashes and empty segments");
}

OrErrorAnswer<void> DecideRules(const HttpHead& head, const RequestContext& context, AllowedRequest& out) {
  auto query = wire::ParseQuery(std::string_view(out.query).substr(out.query.empty() ? 0 : 1));
  if (!query) return std::unexpected(Bad("the query is malformed"));
  std::vector<NameValue> headers;
  for (HttpField& f : EndToEnd(head)) headers.emplace_back(std::move(f.name), std::move(f.value));
  std::vector<std::string> readings{out.path};
  if (context.policy->HasPathRules(*out.entry)) {
    auto read = wire::ReadPath(out.path);
    if (!read && read.error().code == Code::kForbidden) return std::unexpected(UnclearPath(out, read.error().message));
    if (!read) return std::unexpected(Bad(read.error().message));
    readings = *std::move(read);
  }
  auto rule = RuleFor(readings, {head.method, {}, &query->pairs, &headers}, context, *out.entry);
  if (!rule && rule.error().code == Code::kForbidden) return std::unexpected(UnclearPath(out, rule.error().message));
  if (!rule) {
    ErrorAnswer problem = Denied(out.host, out.entry->pattern, rule.error().message,
                                 "send a shorter path, query or headers, or use simpler matchers in the policy");
    problem.too_costly = true;
    return std::unexpected(std::move(problem));
  }
  out.rule = *rule;
  if (out.rule != nullptr) return {};
  if (!context.strict) return {};
  return std::unexpected(Denied(out.host, out.entry->pattern, "no rule of this domain matches the request",
                                "add a rule that matches it to networkPolicy.allow[\"" + out.entry->pattern + "\"]"));
}

std::string HostText(std::string_view host, bool v6, uint16_t port, bool tls) {
  std::string out = v6 ? "[" + std::string(host) + "]" : std::string(host);
  if (port != (tls ? 443 : 80)) out += ":" + std::to_string(port);
  return out;
}

void SetField(std::vector<HttpField>& fields, const std::string& name, const std::string& value) {
  std::erase_if(fields, [&](const HttpField& f) { return Folded(f.name) == Folded(name); });
  fields.push_back({name, value});
}

void AddFraming(const HttpHead& head, bool websocket, std::vector<HttpField>& fields) {
  if (head.chunked) fields.push_back({"transfer-encoding", "chunked"});
  if (head.content_length) fields.push_back({"content-length", std::to_string(*head.content_length)});
  if (!websocket) return;
  fields.push_back({"connection", "Upgrade"});
  fields.push_back({"upgrade", "websocket"});
}

OrErrorAnswer<void> ApplyTransform(const TransformAction& action, const AllowedRequest& decided, bool tls,
                                   std::vector<HttpField>& fields, OutgoingRequest& out) {
  if (!tls && !action.headers.empty()) {
    return std::unexpected(Denied(decided.host, decided.entry->pattern,
                                  "its rule adds headers, and these are never sent without TLS", "use https"));
  }
  for (const auto& [name, value] : action.headers) {
    SetField(fields, name, value);
    out.secrets.push_back(value);
    // "Bearer x" may come back as "x".
    if (size_t space = value.rfind(' '); space != value.npos) out.secrets.push_back(value.substr(space + 1));
  }
  std::erase_if(out.secrets, [](const std::string& s) { return s.size() < kMinSecret; });
  for (size_t i = 0, plain = out.secrets.size(); i < plain; ++i) {
    std::string encoded = wire::EncodeComponent(out.secrets[i]);
    if (encoded != out.secrets[i]) out.secrets.push_back(std::move(encoded));
  }
  // A longer one may contain a shorter one, and is to be replaced as a whole.
  std::ranges::sort(out.secrets, std::ranges::greater(), &std::string::size);
  return {};
}

OrErrorAnswer<std::string> ApplyForward(const ForwardAction& action, const AllowedRequest& decided,
                                        const RequestContext& context, const InterceptorOptions& options,
                                        std::vector<HttpField>& fields, OutgoingRequest& out) {
  auto url = wire::ParseUrl(action.url);
  auto address = url ? ParseAddress(url->host) : Fail(Code::kBadRequest, "not a URL");
  auto name = url ? CanonicalName(url->host) : Fail(Code::kBadRequest, "not a URL");
  if (options.signer == nullptr || (!address && !name)) {
    const char* why =
        options.signer == nullptr ? "forwarding is not set up on this server" : "forwardURL has no host name";
    ErrorAnswer problem = Bad(why, 502, "forward_unavailable");
    problem.close = false;
    return std::unexpected(std::move(problem));
  }
  if (name) url->host = *std::move(name);
  size_t mark = std::min(url->target.find('?'), url->target.size());
  std::string base = url->target.substr(0, mark);
  while (base.ends_with('/')) base.pop_back();
  std::string query = url->target.substr(mark);
  const std::string given = decided.path + decided.query;
  fields.insert(fields.begin(), {"host", url->HostHeader()});
  SetField(fields, "vercel-forwarded-host", decided.host);
  SetField(fields, "vercel-forwarded-scheme", context.tls ? "https" : "http");
  SetField(fields, "vercel-forwarded-port", std::to_string(context.port));
  SetField(fields, "vercel-forwarded-path", given);
  const std::string audience = url->scheme + "://" + url->HostHeader() + base;
  std::string token = options.signer->Token(options.identity, audience);
  SetField(fields, "vercel-sandbox-oidc-token", token);
  out.secrets.push_back(std::move(token));
  out.tls = url->scheme == "https";
  out.host = url->host;
  out.port = url->port;
  out.own_policy = false;
  if (address) out.address = *address;
  if (!query.empty() && !decided.query.empty()) return base + decided.path + query + "&" + decided.query.substr(1);
  return base + given + query;
}

}  // namespace

OrErrorAnswer<AllowedRequest> DecideRequest(const HttpHead& head, const RequestContext& context) {
  if (head.method == "TRACE" || head.method == "CONNECT") return std::unexpected(Bad(head.method + " is not served"));
  if (!wire::HasField(head.fields, "host")) return std::unexpected(Bad("no Host"));
  AllowedRequest out;
  auto host = DecideHost(head.Get("host"), context, out);
  if (!host) return std::unexpected(std::move(host).error());
  const size_t mark = std::min(head.target.find('?'), head.target.size());
  out.query = head.target.substr(mark);
  auto path = wire::NormalizePath(std::string_view(head.target).substr(0, mark));
  if (!path) return std::unexpected(Bad(path.error().message));
  out.path = *std::move(path);
  out.websocket = AsksForWebSocket(head);
  if (out.entry == nullptr || out.entry->rules.empty()) return out;
  auto ruled = DecideRules(head, context, out);
  if (!ruled) return std::unexpected(std::move(ruled).error());
  return out;
}

std::string OutgoingRequest::Origin() const {
  return (tls ? "https://" : "http://") + host + ":" + std::to_string(port) + (own_policy ? "" : " forward");
}

OrErrorAnswer<OutgoingRequest> PlanUpstream(const HttpHead& head, const AllowedRequest& decided,
                                            const RequestContext& context, const InterceptorOptions& options) {
  OutgoingRequest out{.tls = context.tls, .host = decided.host, .port = context.port, .address = decided.address};
  std::vector<HttpField> fields = EndToEnd(head);
  std::string target = decided.path + decided.query;
  const auto* forward = decided.rule == nullptr ? nullptr : std::get_if<ForwardAction>(&decided.rule->action);
  if (forward != nullptr) {
    auto forwarded = ApplyForward(*forward, decided, context, options, fields, out);
    if (!forwarded) return std::unexpected(std::move(forwarded).error());
    target = *std::move(forwarded);
  } else {
    const bool v6 = decided.address && !decided.address->is_v4();
    fields.insert(fields.begin(), {"host", HostText(decided.host, v6, context.port, context.tls)});
  }
  if (const auto* t = decided.rule == nullptr ? nullptr : std::get_if<TransformAction>(&decided.rule->action)) {
    auto applied = ApplyTransform(*t, decided, context.tls, fields, out);
    if (!applied) return std::unexpected(std::move(applied).error());
  }
  AddFraming(head, decided.websocket, fields);
  out.head = wire::SerializeRequestHead(head.method, target, fields);
  return out;
}

// Ends only when the guest went away or sent nonsense: otherwise the answer is what is waited for.
Task<> RequestUpload::Run(const OutgoingRequest* out) {
  auto sent = co_await Send(out);
  if (!sent && exchange_->guest_failed) co_return sent;
  exchange_->uploaded = sent.has_value();
  for (;;) {
    SB_CO_TRYV(co_await Sleep(kGonePoll));
    if (exchange_->uploaded && http::PeerClosed(exchange_->guest->fd()))
      co_return Fail(Code::kClosed, "the client went away");
  }
}

Task<> RequestUpload::Send(const OutgoingRequest* out) {
  http::MessageReader* request = exchange_->request;
  http::Pieces head{out->head};
  SB_CO_TRYV(co_await upstream_->WriteAll(head));
  const bool chunked = request->head().chunked;
  std::string piece = std::move(exchange_->first_piece);
  for (;;) {
    if (!piece.empty()) {
      std::string size = chunked ? wire::ChunkHeader(piece.size()) : "";
      http::Pieces pieces{size, piece, chunked ? "\r\n" : ""};
      SB_CO_TRYV(co_await upstream_->WriteAll(pieces));
      exchange_->deadline->Touch();
    }
    if (request->parser().done()) break;
    auto next = co_await request->ReadBody();
    exchange_->guest_failed = !next;
    if (!next) co_return std::unexpected(std::move(next).error());
    piece = *std::move(next);
  }
  http::Pieces last{chunked ? "0\r\n\r\n" : ""};
  co_return co_await upstream_->WriteAll(last);
}

}  // namespace sandbar::egress
