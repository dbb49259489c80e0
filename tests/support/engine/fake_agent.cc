#include "support/engine/fake_agent.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <cstdlib>

namespace sandbar::engine {

using std::chrono::milliseconds;

FakeAgent::FakeAgent(const asio::any_io_executor& ex) : ex_(ex), writable_(ex), credited_(ex), tasks_(ex) {}

size_t FakeAgent::kept_bytes() const {
  size_t n = 0;
  for (const auto& [id, c] : commands_) {
    for (const auto& p : c->kept) n += p.bytes.size();
  }
  return n;
}

size_t FakeAgent::unacked_exits() const {
  return static_cast<size_t>(
      std::count_if(commands_.begin(), commands_.end(), [](const auto& c) { return c.second->exited; }));
}

void FakeAgent::Serve(asio::local::stream_protocol::socket socket) {
  Drop();
  socket_ = std::make_shared<Socket>(std::move(socket));
  greeted_ = false;
  out_.clear();
  tasks_.Spawn(ReadLoop(socket_));
  tasks_.Spawn(WriteLoop(socket_));
}

void FakeAgent::Drop() {
  if (!socket_) return;
  boost::system::error_code ec;
  socket_->close(ec);
  socket_ = nullptr;
  writable_.Notify();
}

void FakeAgent::SendGarbage() {
  out_ += std::string("\xff\xff\xff\xff garbage", 12);
  writable_.Notify();
}

asio::awaitable<void> FakeAgent::Close() {
  Drop();
  co_await tasks_.Close();
}

Task<> FakeAgent::ReadLoop(std::shared_ptr<Socket> socket) {
  co_await asio::this_coro::throw_if_cancelled(false);
  protocol::FrameDecoder<protocol::HostFrame> decoder;
  std::vector<char> buffer(64 << 10);
  while (socket == socket_) {
    auto [ec, n] = co_await socket->async_read_some(asio::buffer(buffer), kToken);
    if (ec) break;
    decoder.Feed(std::string_view(buffer.data(), n));
    for (;;) {
      protocol::HostFrame frame;
      auto got = decoder.Next(frame);
      if (!got || !*got) break;
      Handle(frame);
    }
  }
  if (socket == socket_) Drop();
  co_return Result<>{};
}

Task<> FakeAgent::WriteLoop(std::shared_ptr<Socket> socket) {
  co_await asio::this_coro::throw_if_cancelled(false);
  while (socket == socket_) {
    if (out_.empty()) {
      auto r = co_await writable_.Wait();
      if (!r) break;
      continue;
    }
    std::string bytes = std::exchange(out_, {});
    auto [ec, n] = co_await asio::async_write(*socket, asio::buffer(bytes), kToken);
    if (ec) break;
  }
  co_return Result<>{};
}

void FakeAgent::Send(const protocol::GuestFrame& frame) {
  if (!socket_ || !greeted_) return;
  out_ += protocol::Encode(frame);
  writable_.Notify();
}

void FakeAgent::Handle(const protocol::HostFrame& frame) {
  if (deaf) return;
  if (const auto* f = std::get_if<protocol::Hello>(&frame)) OnHello(*f);
  if (const auto* f = std::get_if<protocol::Exec>(&frame)) OnExec(*f);
  if (const auto* f = std::get_if<protocol::Ack>(&frame)) OnAck(*f);
  if (const auto* f = std::get_if<protocol::ExitAck>(&frame)) commands_.erase(f->id);
  if (const auto* f = std::get_if<protocol::Kill>(&frame)) {
    if (auto it = commands_.find(f->id); it != commands_.end()) Signal(*it->second, f->signal);
  }
  if (const auto* f = std::get_if<protocol::Stdin>(&frame)) OnStdin(*f);
  if (const auto* f = std::get_if<protocol::StdinEnd>(&frame)) {
    if (auto it = commands_.find(f->id); it != commands_.end()) {
      it->second->state.ended = true;
      it->second->changed.Notify();
    }
  }
  if (const auto* f = std::get_if<protocol::Resize>(&frame)) resizes.push_back(*f);
  if (const auto* f = std::get_if<protocol::Credit>(&frame)) {
    credit_[f->stream] += f->bytes;
    credited_.Notify();
  }
  if (const auto* f = std::get_if<protocol::ReadFile>(&frame); f != nullptr && files_hang) {
    ++hung;
  } else if (f != nullptr) {
    auto it = files.find(f->path.starts_with('/') ? f->path : f->cwd + "/" + f->path);
    if (it == files.end()) {
      Send(protocol::FileError{f->stream, protocol::FileErrorKind::kNotFound, "no such file"});
    } else {
      credit_[f->stream] = protocol::kStreamWindow;
      tasks_.Spawn(SendFile(f->stream, it->second));
    }
  }
  if (const auto* f = std::get_if<protocol::PackTree>(&frame)) {
    credit_[f->stream] = protocol::kStreamWindow;
    tasks_.Spawn(SendFile(f->stream, "the tree of " + f->path));
  }
  if (const auto* f = std::get_if<protocol::UnpackTree>(&frame)) uploads_[f->stream] = {f->path + "/.tree", {}};
  if (const auto* f = std::get_if<protocol::WriteTar>(&frame)) uploads_[f->stream] = {f->cwd + "/.upload", {}};
  if (const auto* f = std::get_if<protocol::MakeDir>(&frame)) OnMakeDir(*f);
  if (const auto* f = std::get_if<protocol::Data>(&frame)) OnData(*f);
  if (const auto* f = std::get_if<protocol::End>(&frame)) OnEnd(f->stream);
  if (const auto* f = std::get_if<protocol::Abort>(&frame)) uploads_.erase(f->stream);
  if (const auto* f = std::get_if<protocol::Quiesce>(&frame)) {
    if (f->go_on) return Send(protocol::Quiesced{true, 0});
    tasks_.Spawn(DoQuiesce(milliseconds(f->grace_ms)));
  }
}

void FakeAgent::OnHello(const protocol::Hello& hello) {
  greeted_ = true;
  protocol::HelloAck ack;
  ack.nonce = hello.nonce;
  ack.newest = newest;
  const bool with_input = std::min(newest, hello.versions().newest) >= protocol::kStandardInput.since;
  for (const auto& [id, c] : commands_) {
    ack.commands.push_back({id, c->produced, c->exited});
    if (with_input && c->request.TakesInput()) ack.stdins.push_back(c->state);
  }
  out_ += protocol::kGuestMagic;
  Send(std::move(ack));
  for (const auto& [id, c] : commands_) {
    for (const auto& p : c->kept) Send(protocol::Output{id, p.offset, p.stream, p.bytes});
    if (c->exited) Send(c->exit);
  }
}

void FakeAgent::OnExec(const protocol::Exec& exec) {
  static const std::set<std::string> kPrograms = {"echo",     "err",  "env", "pwd", "id",  "true", "exit", "sleep",
                                                  "stubborn", "spew", "gap", "oom", "die", "cat",  "head"};
  execs.push_back(exec);
  const std::string program = exec.argv.empty() ? "" : exec.argv[0].substr(exec.argv[0].rfind('/') + 1);
  if (quiescing_) return Send(protocol::ExecFailed{exec.id, protocol::ExecFailure::kQuiescing, "quiescing"});
  if (!kPrograms.contains(program)) {
    return Send(protocol::ExecFailed{exec.id, protocol::ExecFailure::kNotFound, "not found: " + program});
  }
  auto command = std::make_shared<Command>(ex_);
  command->request = exec;
  command->request.argv[0] = program;
  command->state.id = exec.id;
  commands_[exec.id] = command;
  Send(protocol::ExecStarted{exec.id, 100});
  tasks_.Spawn(Run(command));
}

void FakeAgent::OnAck(const protocol::Ack& ack) {
  auto it = commands_.find(ack.id);
  if (it == commands_.end()) return;
  Command& c = *it->second;
  c.acked = std::max(c.acked, std::min(ack.offset, c.produced));
  while (!c.kept.empty() && c.kept.front().offset + c.kept.front().bytes.size() <= c.acked) c.kept.pop_front();
  c.changed.Notify();
}

void FakeAgent::OnStdin(const protocol::Stdin& input) {
  auto it = commands_.find(input.id);
  if (it == commands_.end() || !it->second->request.TakesInput()) return;
  Command& c = *it->second;
  const uint64_t end = input.offset + input.bytes.size();
  // As the real one: it is the server that broke the protocol.
  if (input.offset > c.state.accepted || end > c.state.taken + protocol::kStdinWindow) return Drop();
  if (end <= c.state.accepted) return;
  c.input += input.bytes.substr(c.state.accepted - input.offset);
  c.state.accepted = end;
  if (c.state.closed) CloseStdin(c);
  c.changed.Notify();
}

void FakeAgent::CloseStdin(Command& command) {
  command.input.clear();
  if (command.state.taken < command.state.accepted && !command.exited)
    Send(protocol::StdinTaken{command.request.id, command.state.accepted});
  command.state.taken = command.state.accepted;
  if (!std::exchange(command.state.closed, true)) Send(protocol::StdinClosed{command.request.id});
}

void FakeAgent::Terminate() {
  for (auto& [id, command] : commands_) Signal(*command, SIGTERM);
}

void FakeAgent::Signal(Command& command, int signal) {
  command.signal = signal;
  command.changed.Notify();
}

Task<> FakeAgent::Emit(std::shared_ptr<Command> command, uint8_t stream, std::string bytes) {
  for (size_t at = 0; at < bytes.size();) {
    std::string piece = bytes.substr(at, protocol::kMaxData);
    while (command->produced + piece.size() > command->acked + protocol::kOutputWindow) {
      SB_CO_TRYV(co_await command->changed.Wait());
      if (command->signal == 9) co_return Fail(Code::kClosed, "killed");
    }
    command->kept.push_back({command->produced, stream, piece});
    Send(protocol::Output{command->request.id, command->produced, stream, piece});
    command->produced += piece.size();
    at += piece.size();
  }
  co_return Result<>{};
}

Task<int> FakeAgent::SleepFor(std::shared_ptr<Command> command, milliseconds time, bool stubborn) {
  const auto until = std::chrono::steady_clock::now() + time;
  for (;;) {
    if (command->signal == 9 || (command->signal != 0 && !stubborn)) co_return 128 + command->signal;
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) co_return 0;
    auto wait = command->changed.Wait();
    const auto left = until - now;
    auto r = co_await WithTimeout(std::move(wait), left);
    if (!r && r.error().code == Code::kCancelled) co_return std::unexpected(std::move(r).error());
  }
}

Task<int> FakeAgent::Cat(std::shared_ptr<Command> command, uint64_t most) {
  while (most > 0) {
    if (command->signal != 0) co_return 128 + command->signal;
    if (command->input.empty() && command->state.ended) co_return 0;
    if (command->input.empty()) {
      SB_CO_TRYV(co_await command->changed.Wait());
      continue;
    }
    std::string piece = command->input.substr(0, most);
    command->input.erase(0, piece.size());
    command->state.taken += piece.size();
    most -= piece.size();
    Send(protocol::StdinTaken{command->request.id, command->state.taken});
    SB_CO_TRYV(co_await Emit(command, 1, std::move(piece)));
  }
  CloseStdin(*command);
  const milliseconds time(3600000);
  co_return co_await SleepFor(command, time, false);
}

Task<int> FakeAgent::Program(std::shared_ptr<Command> command) {
  const protocol::Exec& request = command->request;
  const std::string program = request.argv[0];
  const std::string first = request.argv.size() > 1 ? request.argv[1] : "";
  const uint64_t number = std::strtoull(first.c_str(), nullptr, 10);
  std::string text;
  if (program == "sleep" || program == "stubborn") {
    const milliseconds time(first.empty() ? 3600000 : number);
    const bool stubborn = program == "stubborn";
    co_return co_await SleepFor(command, time, stubborn);
  }
  if (program == "exit") co_return static_cast<int>(number);
  if (program == "cat" || program == "head") {
    const uint64_t most = program == "cat" ? UINT64_MAX : number;
    co_return co_await Cat(command, most);
  }
  if (program == "oom") {
    if (on_oom) on_oom();
    co_return 137;
  }
  if (program == "die") {
    if (on_die) on_die();
    const milliseconds time(3600000);
    co_return co_await SleepFor(command, time, true);
  }
  if (program == "gap") {
    Send(protocol::Gap{request.id, command->produced, number});
    command->produced += number;
    command->acked = command->produced;
    text = "after\n";
  }
  if (program == "spew") {
    const uint8_t stream = request.argv.size() > 2 ? 2 : 1;
    for (uint64_t at = 0; at < number;) {
      std::string piece(std::min<uint64_t>(number - at, protocol::kMaxData), ' ');
      for (auto& c : piece) c = FakeSpewByte(at++);
      SB_CO_TRYV(co_await Emit(command, stream, std::move(piece)));
    }
    co_return 0;
  }
  if (program == "env") {
    for (const auto& e : request.env) text += e + "\n";
  }
  if (program == "pwd") text = request.cwd + "\n";
  if (program == "id") text = std::to_string(request.uid) + " " + request.user + "\n";
  if (program == "echo" || program == "err") {
    for (size_t i = 1; i < request.argv.size(); ++i) text += (i > 1 ? " " : "") + request.argv[i];
    text += "\n";
  }
  const uint8_t stream = program == "err" ? 2 : 1;
  SB_CO_TRYV(co_await Emit(command, stream, std::move(text)));
  co_return 0;
}

Task<> FakeAgent::Run(std::shared_ptr<Command> command) {
  co_await asio::this_coro::throw_if_cancelled(false);
  const auto begin = std::chrono::steady_clock::now();
  auto program = Program(command);
  Result<int> code;
  if (command->request.timeout_ms > 0) {
    const milliseconds limit(command->request.timeout_ms);
    code = co_await WithTimeout(std::move(program), limit);
  } else {
    code = co_await std::move(program);
  }
  if (!code && code.error().code == Code::kCancelled) co_return Result<>{};
  command->exit.id = command->request.id;
  command->exit.timed_out = !code && code.error().code == Code::kTimeout;
  command->exit.code = code ? *code : 137;
  command->exit.final_offset = command->produced;
  command->exit.duration_ms =
      static_cast<uint64_t>(std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin).count());
  const bool read_all = command->state.ended && command->state.taken == command->state.accepted;
  if (command->request.TakesInput() && !read_all) CloseStdin(*command);
  command->exited = true;
  Send(command->exit);
  credited_.Notify();
  co_return Result<>{};
}

bool FakeAgent::AllExited() const {
  return std::all_of(commands_.begin(), commands_.end(), [](const auto& c) { return c.second->exited; });
}

Task<> FakeAgent::DoQuiesce(milliseconds grace) {
  co_await asio::this_coro::throw_if_cancelled(false);
  quiescing_ = true;
  protocol::Quiesced done;
  done.clean = true;
  for (int signal : {15, 9}) {
    auto commands = commands_;
    for (auto& [id, c] : commands) {
      if (c->exited) continue;
      if (signal == 9) ++done.killed;
      Signal(*c, signal);
    }
    const auto until = std::chrono::steady_clock::now() + grace;
    while (!AllExited() && std::chrono::steady_clock::now() < until) {
      auto wait = credited_.Wait();
      const auto left = until - std::chrono::steady_clock::now();
      auto r = co_await WithTimeout(std::move(wait), left);
      if (!r && r.error().code == Code::kCancelled) co_return Result<>{};
    }
  }
  done.clean = done.killed == 0;
  Send(done);
  co_return Result<>{};
}

void FakeAgent::OnMakeDir(const protocol::MakeDir& request) {
  const std::string path = request.path.starts_with('/') ? request.path : request.cwd + "/" + request.path;
  if (!dirs.insert(path).second && !request.recursive) {
    return Send(protocol::FileError{request.stream, protocol::FileErrorKind::kExists, "File exists"});
  }
  Send(protocol::End{request.stream});
}

void FakeAgent::OnData(const protocol::Data& data) {
  auto it = uploads_.find(data.stream);
  if (it == uploads_.end()) return;
  it->second.bytes += data.bytes;
  Send(protocol::Credit{data.stream, static_cast<uint32_t>(data.bytes.size())});
}

void FakeAgent::OnEnd(uint32_t stream) {
  auto it = uploads_.find(stream);
  if (it == uploads_.end()) return;
  files[it->second.path] = std::move(it->second.bytes);
  uploads_.erase(it);
  Send(protocol::End{stream});
}

Task<> FakeAgent::SendFile(uint32_t stream, std::string bytes) {
  co_await asio::this_coro::throw_if_cancelled(false);
  for (size_t at = 0; at < bytes.size();) {
    while (credit_[stream] == 0) {
      SB_CO_TRYV(co_await credited_.Wait());
    }
    const size_t n = std::min<size_t>({bytes.size() - at, protocol::kMaxData, credit_[stream]});
    credit_[stream] -= n;
    Send(protocol::Data{stream, bytes.substr(at, n)});
    at += n;
  }
  Send(protocol::End{stream});
  co_return Result<>{};
}

}  // namespace sandbar::engine
