#include "guest/command_input.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "guest/terminal.h"

namespace sandbar::guest {
namespace {

constexpr std::chrono::milliseconds kEndAgain{500};
constexpr int kMostEnds = 20;

}  // namespace

CommandInput::CommandInput(Loop* loop, Fd fd, Kind kind, std::function<void()> on_change)
    : loop_(loop), fd_(std::move(fd)), kind_(kind), on_change_(std::move(on_change)) {
  watch_ = loop->Add(fd_.get(), 0, [this](uint32_t events) {
    // A pipe without readers. A terminal has one as long as the command runs.
    if (kind_ == Kind::kPipe && (events & EPOLLERR) != 0) return Close();
    Pump();
  });
  Arm();
}

const char* CommandInput::Accept(uint64_t offset, std::string_view bytes) {
  if (offset > accepted_) return "input with a gap";
  const uint64_t known = accepted_ - offset;
  if (known >= bytes.size()) return nullptr;
  bytes.remove_prefix(known);
  if (ended_) return "input after its end";
  if (accepted_ + bytes.size() > taken_ + protocol::kStdinWindow) return "input beyond the window";
  accepted_ += bytes.size();
  if (closed_) {
    taken_ = accepted_;
    on_change_();
    return nullptr;
  }
  buffer_ += bytes;
  Pump();
  return nullptr;
}

const char* CommandInput::End(uint64_t offset) {
  if (offset > accepted_) return "an end of input with a gap";
  if (offset < accepted_) return "an end of input before its last byte";
  if (ended_) return nullptr;
  ended_ = true;
  if (!closed_) Pump();
  return nullptr;
}

void CommandInput::Close() {
  CloseFd();
  // The command got all of its input: there is nobody to tell.
  if (closed_ || end_passed_on_) return;
  closed_ = true;
  std::string().swap(buffer_);
  start_ = 0;
  taken_ = accepted_;
  on_change_();
}

void CommandInput::CloseFd() {
  end_again_.Reset();
  watch_.Reset();
  fd_.Reset();
  signals_.Reset();
}

bool CommandInput::Write() {
  auto next = std::string_view(buffer_).substr(start_);
  if (signals_) {
    const SignalKey key = FindSignalKey(fd_.get(), next);
    if (key.at == 0) {
      Signal(key.signal);
      TookBytes(1);
      return true;
    }
    next = next.substr(0, key.at);
  }
  const ssize_t n = ::write(fd_.get(), next.data(), next.size());
  if (n < 0 && errno == EINTR) return true;
  if (n == 0 || (n < 0 && errno == EAGAIN)) return false;
  if (n < 0) {
    Close();
    return false;
  }
  TookBytes(static_cast<size_t>(n));
  return true;
}

void CommandInput::TookBytes(size_t n) {
  start_ += n;
  last_ = buffer_[start_ - 1];
  // The end-of-file characters of a terminal are no input.
  taken_ = std::min(taken_ + n, accepted_);
}

void CommandInput::Signal(int signal) {
  const auto number = static_cast<unsigned char>(signal);
  // A signaller that does not keep up, or is gone, is the guest's own doing.
  if (!signals_) return;
  [[maybe_unused]] ssize_t n = ::write(signals_.get(), &number, 1);
}

void CommandInput::Pump() {
  while (fd_) {
    if (buffered() > 0) {
      if (!Write()) break;
      continue;
    }
    if (!ended_ || end_passed_on_) break;
    end_passed_on_ = true;
    if (kind_ == Kind::kPipe) {
      CloseFd();
    } else {
      buffer_ = EndOfFileCharacters(fd_.get(), last_ != '\n' && last_ != '\r');
      start_ = 0;
      RepeatEnd(kMostEnds);
    }
  }
  if (buffered() == 0) {
    std::string().swap(buffer_);
    start_ = 0;
  } else if (start_ > buffer_.size() / 2) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  Arm();
  on_change_();
}

// A program that changes the terminal from lines to keys loses the end of file that waited there. So the character is
// typed again while the terminal is read by keys.
void CommandInput::RepeatEnd(int left) {
  if (left == 0) return;
  end_again_ = loop_->After(kEndAgain, [this, left] {
    const bool typed = buffered() == 0 && ReadsKeys(fd_.get());
    RepeatEnd(typed ? left - 1 : left);
    if (!typed) return;
    buffer_ = EndOfFileCharacters(fd_.get(), false);
    start_ = 0;
    Pump();
  });
}

void CommandInput::Arm() {
  if (!fd_) return;
  // An idle pipe is watched for the end of its last reader. An idle terminal needs no watch.
  const uint32_t idle = kind_ == Kind::kPipe ? static_cast<uint32_t>(EPOLLERR) : 0;
  watch_.Set(buffered() > 0 ? static_cast<uint32_t>(EPOLLOUT) : idle);
}

}  // namespace sandbar::guest
