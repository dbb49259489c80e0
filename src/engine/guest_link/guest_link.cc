#include "engine/guest_link/guest_link.h"

#include "engine/guest_link/core.h"

namespace sandbar::engine {
namespace {

constexpr std::chrono::seconds kWriteOut{20};

class Link : public GuestLink {
 public:
  explicit Link(std::shared_ptr<LinkCore> core) : core_(std::move(core)), tasks_(core_->executor()) {
    core_->tasks = &tasks_;
    tasks_.Spawn(core_->ReadLoop());
    tasks_.Spawn(core_->WriteLoop());
    tasks_.Spawn(core_->WatchFrames());
  }

  Result<> Require(const protocol::Feature& feature) const override { return core_->Require(feature); }
  const std::vector<protocol::CommandState>& known_commands() const override { return core_->known; }
  const std::vector<protocol::StdinState>& known_stdins() const override { return core_->known_stdins; }
  Task<> Exec(protocol::Exec request) override { return CallExec(core_, std::move(request)); }
  void Ack(const std::string& command, uint64_t offset) override { core_->Ack(command, offset); }
  void AckExit(const std::string& command) override { core_->AckExit(command); }
  void Kill(const std::string& command, int signal) override { core_->Kill(command, signal); }
  Task<> Input(std::string command, std::string bytes) override {
    return CallInput(core_, std::move(command), std::move(bytes));
  }
  Task<> WriteStdin(std::string command, uint64_t offset, std::string bytes) override {
    return CallWriteStdin(core_, std::move(command), offset, std::move(bytes));
  }
  Task<> EndStdin(std::string command, uint64_t offset) override {
    return CallEndStdin(core_, std::move(command), offset);
  }
  std::optional<protocol::StdinState> Stdin(const std::string& command) const override { return core_->Stdin(command); }
  Task<> Resize(std::string command, protocol::TerminalSize size) override {
    return CallResize(core_, std::move(command), size);
  }

  Task<std::unique_ptr<FileStream>> ReadFile(std::string path, std::string cwd, GuestUser user,
                                             FileRange range) override {
    protocol::ReadFile request{0,        std::move(path),      std::move(cwd), user.uid,
                               user.gid, std::move(user.name), range.offset,   range.length};
    return CallReadFile(core_, std::move(request));
  }
  Task<std::unique_ptr<FileStream>> PackTree(std::string path) override {
    protocol::PackTree request{0, std::move(path)};
    return CallPackTree(core_, std::move(request));
  }
  Task<> UnpackTree(std::string path, ByteSource* source) override {
    protocol::UnpackTree request{0, std::move(path)};
    return CallUnpackTree(core_, std::move(request), source);
  }
  Task<> WriteTar(std::string cwd, GuestUser user, ByteSource* source) override {
    protocol::WriteTar request{0, std::move(cwd), user.uid, user.gid, std::move(user.name), true};
    return CallWriteTar(core_, std::move(request), source);
  }
  Task<> WritePlainTar(std::string cwd, GuestUser user, ByteSource* source) override {
    protocol::WriteTar request{0, std::move(cwd), user.uid, user.gid, std::move(user.name), false};
    return CallWriteTar(core_, std::move(request), source);
  }
  Task<> MakeDir(std::string path, std::string cwd, GuestUser user, bool recursive) override {
    protocol::MakeDir request{
        {0, std::move(path), std::move(cwd), user.uid, user.gid, std::move(user.name)}, recursive, std::nullopt};
    return CallMakeDir(core_, std::move(request));
  }
  Task<std::vector<protocol::FileEntry>> ListDir(protocol::ListDir request) override {
    return CallListDir(core_, std::move(request));
  }
  Task<protocol::FileEntry> StatFile(protocol::StatFile request) override {
    return CallStatFile(core_, std::move(request));
  }
  Task<> WriteFile(protocol::WriteFile request, ByteSource* source) override {
    return CallWriteFile(core_, std::move(request), source);
  }
  Task<> EditFile(FileEdit change) override { return CallEditFile(core_, std::move(change)); }
  Task<Fd> Dial(uint16_t port) override { return CallDial(core_, port); }
  Task<protocol::Quiesced> Quiesce(std::chrono::milliseconds grace, std::chrono::milliseconds silence) override {
    return CallQuiesce(core_, {grace, silence, false});
  }
  Task<protocol::Quiesced> WriteOut() override { return CallQuiesce(core_, {kWriteOut, {}, true}); }

  Task<> Rekey(protocol::Rekey request) override { return CallRekey(core_, std::move(request)); }

  void SetPaused(bool paused) override { core_->SetPaused(paused); }

  asio::awaitable<void> Close() override {
    core_->ShutByOwner();
    co_await tasks_.Close();
  }

 private:
  std::shared_ptr<LinkCore> core_;  // with pending calls and open file streams, which may outlive the link
  TaskGroup tasks_;
};

}  // namespace

Task<std::unique_ptr<GuestLink>> OpenGuestLink(asio::local::stream_protocol::socket socket, GuestEvents* events,
                                               LinkDeadlines limits, std::string key) {
  auto core = std::make_shared<LinkCore>(std::move(socket), events, limits);
  auto handshake = core->Handshake(std::move(key));
  auto hello = co_await WithTimeout(std::move(handshake), limits.hello);
  if (!hello) co_return std::unexpected(std::move(hello).error());
  co_return std::unique_ptr<GuestLink>(std::make_unique<Link>(std::move(core)));
}

}  // namespace sandbar::engine
