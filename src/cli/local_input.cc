#include "cli/local_input.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/fd.h"

namespace sandbar::cli {
namespace {

constexpr size_t kAhead = 512 << 10;
constexpr size_t kPiece = 64 << 10;

}  // namespace

// Shared with the thread, which may outlive the LocalInput: when another program takes the bytes between poll and read,
// the thread waits in read until this program ends.
struct LocalInput::State {
  int fd = -1;
  Fd stop;  // readable: the reader is not wanted any more
  asio::any_io_executor ex;
  std::function<void()> changed;  // of the loop

  std::mutex mutex;
  std::condition_variable room;
  std::string bytes;
  bool ended = false;
  bool wanted = true;
};

bool IsReadable(int fd) {
  struct stat st{};
  if (::fstat(fd, &st) != 0) return false;
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY) return false;
  return !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
}

LocalInput::LocalInput(const asio::any_io_executor& ex, int fd, std::function<void()> changed)
    : state_(std::make_shared<State>()) {
  state_->fd = fd;
  state_->stop = Fd(::eventfd(0, EFD_CLOEXEC));
  SB_CHECK(state_->stop.get() >= 0);
  state_->ex = ex;
  state_->changed = std::move(changed);
  // Signals are for the main thread.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { Read(state); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LocalInput::~LocalInput() {
  const std::scoped_lock lock(state_->mutex);
  state_->wanted = false;
  state_->changed = nullptr;
  state_->ex = {};
  state_->room.notify_all();
  const uint64_t one = 1;
  static_cast<void>(::write(state_->stop.get(), &one, sizeof one) == sizeof one);
}

void LocalInput::Read(const std::shared_ptr<State>& state) {
  std::array<char, kPiece> piece;
  for (bool ended = false; !ended;) {
    {
      std::unique_lock lock(state->mutex);
      state->room.wait(lock, [&] { return !state->wanted || state->bytes.size() < kAhead; });
      if (!state->wanted) return;
    }
    std::array<pollfd, 2> ready{{{state->fd, POLLIN, 0}, {state->stop.get(), POLLIN, 0}}};
    if (::poll(ready.data(), ready.size(), -1) < 0 && errno == EINTR) continue;
    if (ready[1].revents != 0) return;
    const ssize_t n = ::read(state->fd, piece.data(), piece.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    // A terminal that hung up, a descriptor of another kind: what cannot be read has ended.
    ended = n <= 0;
    const std::scoped_lock lock(state->mutex);
    if (!state->wanted) return;
    if (n > 0) state->bytes.append(piece.data(), static_cast<size_t>(n));
    state->ended = ended;
    asio::post(state->ex, [state] {
      if (state->changed) state->changed();
    });
  }
}

std::string LocalInput::Take(size_t most) {
  const std::scoped_lock lock(state_->mutex);
  std::string out = state_->bytes.substr(0, most);
  state_->bytes.erase(0, out.size());
  if (!out.empty()) state_->room.notify_all();
  return out;
}

bool LocalInput::ended() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->ended && state_->bytes.empty();
}

}  // namespace sandbar::cli
