#include "egress/intercept_connection.h"

#include "egress/name_dialler.h"
#include "wire/text.h"

namespace sandbar::egress {

namespace {

constexpr size_t kLingerBytes = 1 << 20;
constexpr std::chrono::seconds kLingerTime{2};
constexpr uint64_t kDrainBytes = 256 << 10;  // of a body that nobody wanted

bool MayRepeat(const wire::HttpHead& head) {
  return (head.method == "GET" || head.method == "HEAD") && !head.chunked && head.content_length.value_or(0) == 0;
}

ErrorAnswer BadRequest(const Error& error) {
  const int status = error.code == Code::kTooLarge ? 431 : 400;
  return {.status = status, .code = "bad_request", .message = error.message, .close = true};
}

}  // namespace

InterceptConnection::InterceptConnection(InterceptJob job, InterceptShared* shared)
    : job_(std::move(job)),
      shared_(shared),
      deadline_(job_.guest->get_executor(), job_.state->config->head_timeout, job_.state->config->idle_timeout),
      meter_(job_.state) {}

RequestContext InterceptConnection::context() const {
  return {job_.policy.get(), job_.tls, job_.name, job_.target.port, job_.state->config->strict};
}

Task<> InterceptConnection::Run() {
  using namespace asio::experimental::awaitable_operators;
  auto serving = UntilCancelled(Serve());
  auto watching = UntilCancelled(deadline_.Passed());
  auto ended = co_await (std::move(serving) || std::move(watching));
  Result<> served = Fail(Code::kTimeout, "a deadline passed");
  if (ended.index() == 0) served = std::get<0>(std::move(ended));
  auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) co_return Fail(Code::kCancelled, "cancelled");
  upstream_.reset();
  const bool timed_out = !served && served.error().code == Code::kTimeout;
  const bool unanswered = timed_out && request_ && !exchange_.answered;
  const bool refused_handshake = !served && !timed_out && guest_ && !request_;  // its alert must arrive
  // The end of a stream may be the end of an answer: a guest must see that this one is broken.
  if (!served && !unanswered && !refused_handshake) {
    ResetOnClose(*job_.guest);
    co_return served;
  }
  if (unanswered && request_->parser().head_started()) {
    auto writing = SayTimeout();
    auto written = co_await WithTimeout(std::move(writing), kLingerTime);
    if (!written) co_return served;
  }
  auto bye = guest_->Linger(kLingerBytes);
  auto said = co_await WithTimeout(std::move(bye), kLingerTime);
  if (!said) ResetOnClose(*job_.guest);
  co_return served;
}

Task<> InterceptConnection::SayTimeout() {
  ErrorAnswer problem{.status = 408, .code = "request_timeout", .message = "the request did not arrive in time"};
  if (exchange_.serving)
    problem = {.status = 504, .code = "upstream_timeout", .message = "the upstream did not answer in time"};
  std::string answer = SerializeErrorAnswer(problem, false, true);
  http::Pieces pieces{answer};
  co_return co_await guest_->WriteAll(pieces);
}

// An error: the connection is beyond a polite goodbye.
Task<> InterceptConnection::Serve() {
  if (job_.tls) {
    SB_CO_TRY(SSL_CTX * leaf, shared_->ca->Leaf(job_.name));
    guest_ = http::BorrowTlsServer(job_.guest, std::move(job_.first_bytes), &meter_, leaf);
    SB_CO_TRYV(co_await ShakeHands());
  } else {
    guest_ = http::BorrowPlain(job_.guest, std::move(job_.first_bytes), &meter_);
  }
  request_.emplace(guest_.get(), http::ReaderOptions{.progress = &deadline_});
  exchange_ = {.guest = guest_.get(), .request = &*request_, .deadline = &deadline_};
  for (bool more = true; more;) {
    SB_CO_TRY(more, co_await ServeOne());
    request_->Next();
    exchange_ = {.guest = guest_.get(), .request = &*request_, .deadline = &deadline_};
    if (more) deadline_.StartIdle();
  }
  co_return Result<>{};
}

Task<> InterceptConnection::ShakeHands() {
  auto shaken = co_await guest_->Handshake();
  if (!shaken && shaken.error().code == Code::kUnsupported) {
    job_.state->Deny("tls", job_.name + ":" + std::to_string(job_.target.port),
                     "the client speaks only HTTP/2, and this domain has rules", "let the client offer HTTP/1.1");
  }
  if (!shaken) co_return shaken;
  // What was decided on by whoever read the ClientHello first is what OpenSSL read in it.
  auto name = CanonicalName(guest_->server_name());
  if (!name || *name != job_.name) co_return Fail(Code::kProtocol, "the handshake is for another name");
  deadline_.StartHead();
  co_return Result<>{};
}

// False: no (further) request, or the connection has to end after what was answered.
Task<bool> InterceptConnection::ServeOne() {
  auto got = co_await request_->ReadHead();
  if (!got) {
    const Code code = got.error().code;
    if (code != Code::kBadRequest && code != Code::kTooLarge) co_return std::unexpected(std::move(got).error());
    co_return co_await Refuse(BadRequest(got.error()));
  }
  if (!*got && request_->parser().head_started())
    co_return Fail(Code::kClosed, "the connection was closed in the middle of a head");
  if (!*got) co_return false;
  exchange_.serving = true;
  const wire::HttpHead& head = request_->head();
  exchange_.owes_continue = head.expect_continue && head.version == 11 && !request_->parser().done();
  auto allowed = DecideRequest(head, context());
  if (!allowed && allowed.error().too_costly) SB_CO_TRYV(co_await DecideElsewhere(&allowed));
  if (!allowed) co_return co_await Refuse(std::move(allowed).error());
  auto cut = [&] { return job_.on_host && !job_.on_host(allowed->host); };
  exchange_.websocket = allowed->websocket;
  const auto* respond = allowed->rule == nullptr ? nullptr : std::get_if<RespondAction>(&allowed->rule->action);
  if (respond != nullptr) {
    if (cut()) co_return Fail(Code::kClosed, "cut by policy");
    exchange_.keep = MayKeepAlive();
    std::string answer = RuleAnswer(*respond, exchange_.keep, head.method != "HEAD");
    co_return co_await Answer(std::move(answer));
  }
  // Framing that is wrong from its first byte is refused before anything is sent on.
  auto early = request_->BufferedBody();
  if (!early) co_return co_await Refuse(BadRequest(early.error()));
  exchange_.first_piece = *std::move(early);
  auto out = PlanUpstream(head, *allowed, context(), shared_->options);
  if (!out) co_return co_await Refuse(std::move(out).error());
  if (cut()) co_return Fail(Code::kClosed, "cut by policy");
  co_return co_await Forward(std::move(*out));
}

// On the thread for requests whose matchers take long, when it is this machine's turn.
Task<> InterceptConnection::DecideElsewhere(OrErrorAnswer<AllowedRequest>* allowed) {
  if (shared_->options.matching == nullptr) co_return Result<>{};
  InterceptShared::Turn* turn = shared_->turn.get();
  while (turn->taken) SB_CO_TRYV(co_await turn->freed.Wait());
  turn->taken = true;
  auto free = [](InterceptShared::Turn* mine) {
    mine->taken = false;
    mine->freed.Notify();
  };
  std::unique_ptr<InterceptShared::Turn, decltype(free)> held(turn, free);
  // Copies: this connection may end while the other thread works.
  auto decide = [head = request_->head(), policy = job_.policy, name = job_.name, context = context()]() mutable {
    context.policy = policy.get();
    context.sni = name;
    context.match_steps = kMaxMatchSteps;
    return DecideRequest(head, context);
  };
  *allowed = co_await Offload(*shared_->options.matching, std::move(decide));
  co_return Result<>{};
}

Task<bool> InterceptConnection::Refuse(ErrorAnswer problem) {
  if (problem.denied) {
    Denial denial{.kind = "http", .host = problem.host, .port = job_.target.port, .rule = problem.rule};
    denial.target = problem.host + ":" + std::to_string(job_.target.port);
    denial.reason = problem.reason;
    denial.hint = problem.hint;
    job_.state->Deny(std::move(denial));
  }
  exchange_.keep = !problem.close && MayKeepAlive();
  std::string answer = SerializeErrorAnswer(problem, exchange_.keep, request_->head().method != "HEAD");
  co_return co_await Answer(std::move(answer));
}

// Sends a whole answer of our own.
Task<bool> InterceptConnection::Answer(std::string answer) {
  exchange_.answered = true;
  http::Pieces pieces{answer};
  SB_CO_TRYV(co_await guest_->WriteAll(pieces));
  deadline_.Touch();
  if (!exchange_.keep) co_return false;
  co_return co_await Drain();
}

bool InterceptConnection::MayKeepAlive() {
  if (!request_->parser().head_done() || !request_->head().keep_alive) return false;
  if (request_->parser().done()) return true;
  // Whether a client that waits for "100 Continue" sends its body after our answer is its own guess.
  return !exchange_.owes_continue && request_->head().content_length.value_or(0) <= kDrainBytes;
}

// Reads the rest of a body that nobody wanted, so that the next request can follow.
Task<bool> InterceptConnection::Drain() {
  deadline_.StartHead();
  auto drained = co_await request_->Drain(kDrainBytes);
  co_return drained.value_or(false);
}

Task<bool> InterceptConnection::Forward(OutgoingRequest out) {
  for (;;) {
    const bool reused = MayReuse(out);
    if (!reused) {
      auto connected = co_await Connect(&out);
      if (!connected && connected.error().code == Code::kCancelled)
        co_return std::unexpected(std::move(connected).error());
      if (!connected) co_return co_await Refuse(Unreachable(out, connected.error()));
    }
    auto exchanged = co_await Exchange(&out);
    if (exchanged) break;
    upstream_.reset();
    if (exchange_.guest_failed && !exchange_.answered && exchanged.error().code == Code::kBadRequest)
      co_return co_await Refuse(BadRequest(exchanged.error()));
    const bool hopeless = exchange_.answered || exchange_.guest_failed || exchanged.error().code == Code::kCancelled;
    if (hopeless) co_return std::unexpected(std::move(exchanged).error());
    // The upstream may have closed a kept connection just when we used it.
    if (reused && MayRepeat(request_->head())) continue;
    ErrorAnswer problem{.status = 502, .code = "upstream_failed", .message = "the upstream gave no usable answer"};
    problem.message += ": " + exchanged.error().message;
    problem.host = out.host;
    problem.close = !request_->parser().done();
    co_return co_await Refuse(std::move(problem));
  }
  if (upstream_->reader.head().status == 101) {
    SB_CO_TRYV(co_await Pipe());
    co_return false;
  }
  const bool reusable =
      exchange_.uploaded && upstream_->reader.head().keep_alive && upstream_->reader.buffered().empty();
  if (reusable) {
    upstream_->reader.Next();
  } else {
    upstream_.reset();
  }
  co_return exchange_.keep;
}

bool InterceptConnection::MayReuse(const OutgoingRequest& out) const {
  return upstream_ && upstream_->origin == out.Origin() && upstream_->stream->Quiet();
}

Task<Stream> InterceptConnection::Dial(const OutgoingRequest* out) {
  const EgressConfig* config = job_.state->config;
  if (out->address) {
    Endpoint target{*out->address, out->port};
    const bool denied = out->own_policy && job_.policy->DecideAddress(*out->address) == AddressDecision::kDenied;
    if (denied) co_return std::unexpected(AddressDeniedByPolicy());
    co_return co_await GuardedConnect(target, config);
  }
  SB_CO_TRY(std::string name, CanonicalName(out->host));
  PolicyRef policy = out->own_policy ? job_.policy : nullptr;
  co_return co_await DialName(std::move(name), out->port, std::move(policy), config);
}

Task<> InterceptConnection::Connect(const OutgoingRequest* out) {
  upstream_.reset();
  tls_failed_ = false;
  SB_CO_TRY(Stream socket, co_await Dial(out));
  std::unique_ptr<http::SocketStream> stream;
  if (out->tls) {
    if (!shared_->upstream_tls) {
      SB_CO_TRY(shared_->upstream_tls, http::MakeClientTls(shared_->options.upstream_ca_file));
    }
    const http::TlsClientOptions options{.host = out->host, .offer_http11 = true, .partial_wildcards = false};
    SB_CO_TRY(stream, http::OwnTlsClient(std::move(socket), shared_->upstream_tls->native_handle(), options));
    auto shaking = stream->Handshake();
    auto shaken = co_await WithTimeout(std::move(shaking), job_.state->config->connect_timeout);
    tls_failed_ = !shaken;
    if (!shaken) co_return shaken;
  } else {
    stream = http::OwnPlain(std::move(socket));
  }
  upstream_ = std::make_unique<Upstream>(std::move(stream), out->Origin(), &deadline_);
  co_return Result<>{};
}

ErrorAnswer InterceptConnection::Unreachable(const OutgoingRequest& out, const Error& error) {
  ErrorAnswer problem{.status = 502, .code = "upstream_unreachable", .message = error.message, .host = out.host};
  if (tls_failed_) {
    problem.code = "upstream_tls_failed";
  } else if (error.code == Code::kForbidden) {
    problem = {.message = error.message, .reason = error.message, .host = out.host, .rule = "server", .denied = true};
    problem.hint = "the server's operator can add the address to network.allow_addresses";
    if (error.cause == Cause::kNetworkPolicy) {
      problem.rule = "subnets.deny";
      problem.hint = "change networkPolicy.subnets.deny";
    }
  } else if (error.code == Code::kTimeout) {
    problem.status = 504;
  }
  return problem;
}

// Both directions at once: an answer may come before the request's end, and often does when it is an error.
Task<> InterceptConnection::Exchange(const OutgoingRequest* out) {
  using namespace asio::experimental::awaitable_operators;
  exchange_.uploaded = exchange_.guest_failed = false;
  deadline_.StartIdle();
  if (exchange_.owes_continue) {
    exchange_.owes_continue = false;
    http::Pieces go_on{"HTTP/1.1 100 Continue\r\n\r\n"};
    auto said = co_await guest_->WriteAll(go_on);
    exchange_.guest_failed = !said;
    if (!said) co_return said;
  }
  RequestUpload upload(&exchange_, upstream_->stream.get());
  ResponseDownload download(&exchange_, &upstream_->reader);
  auto up = UntilCancelled(upload.Run(out));
  auto down = UntilCancelled(download.Run(out));
  auto first = co_await (std::move(up) || std::move(down));
  if (first.index() == 1) co_return std::get<1>(std::move(first));
  exchange_.guest_failed = true;
  co_return std::get<0>(std::move(first));
}

// After an upgrade: bytes both ways until one side ends.
Task<> InterceptConnection::Pipe() {
  using namespace asio::experimental::awaitable_operators;
  deadline_.StartIdle();
  auto up = UntilCancelled(Pump(&*request_, guest_.get(), upstream_->stream.get(), &deadline_));
  auto down = UntilCancelled(Pump(&upstream_->reader, upstream_->stream.get(), guest_.get(), &deadline_));
  auto first = co_await (std::move(up) || std::move(down));
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  co_return std::get<1>(std::move(first));
}

Task<> InterceptConnection::Pump(http::MessageReader* rest, http::ByteStream* from, http::ByteStream* to,
                                 Deadline* deadline) {
  std::string buffer(rest->buffered());
  size_t n = buffer.size();
  buffer.resize(64 << 10);
  for (;;) {
    http::Pieces pieces{std::string_view(buffer).substr(0, n)};
    SB_CO_TRYV(co_await to->WriteAll(pieces));
    deadline->Touch();
    SB_CO_TRY(n, co_await from->ReadSome(buffer.data(), buffer.size()));
    deadline->Touch();
    if (n == 0) co_return Result<>{};
  }
}

}  // namespace sandbar::egress
