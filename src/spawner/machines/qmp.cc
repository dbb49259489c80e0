#include "spawner/machines/qmp.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "os/process.h"

namespace sandbar::spawner {
namespace {

constexpr size_t kMaxLine = 64 << 10;
constexpr size_t kMaxSaid = 1 << 20;

// The end of the string that begins at `at`; npos when it has none.
size_t StringEnd(std::string_view text, size_t at) {
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      return i + 1;
  }
  return std::string_view::npos;
}

// The end of the value that begins at `at`: where a comma or a bracket of the object around it stands.
size_t ValueEnd(std::string_view text, size_t at) {
  int depth = 0;
  for (size_t i = at; i < text.size();) {
    const char c = text[i];
    if (c == '"') {
      i = StringEnd(text, i);
      if (i == std::string_view::npos) return i;
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) return i;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    ++i;
  }
  return std::string_view::npos;
}

size_t SkipSpace(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\r' || text[at] == '\t')) ++at;
  return at;
}

}  // namespace

std::string_view QmpField(std::string_view object, std::string_view key) {
  size_t at = SkipSpace(object, 0);
  if (at >= object.size() || object[at] != '{') return {};
  for (++at;;) {
    at = SkipSpace(object, at);
    if (at >= object.size() || object[at] != '"') return {};
    const size_t name_end = StringEnd(object, at);
    if (name_end == std::string_view::npos) return {};
    const std::string_view name = object.substr(at + 1, name_end - at - 2);
    at = SkipSpace(object, name_end);
    if (at >= object.size() || object[at] != ':') return {};
    at = SkipSpace(object, at + 1);
    const size_t end = ValueEnd(object, at);
    if (end == std::string_view::npos) return {};
    if (name == key) return object.substr(at, end - at);
    if (object[end] != ',') return {};
    at = end + 1;
  }
}

Result<> Qmp::WaitFor(short events) const {
  for (;;) {
    pollfd p{socket_, events, 0};
    const int64_t left = deadline_ - os::BootTimeMs();
    if (left <= 0) return Fail(Code::kTimeout, "QEMU does not answer");
    const int n = ::poll(&p, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (n < 0 && errno != EINTR) return FailErrno("wait for QEMU");
    if (n > 0) return {};
  }
}

Result<> Qmp::Tell(std::string_view command, std::string_view arguments, int pass) {
  std::string line = "{\"execute\":\"" + std::string(command) + "\",\"id\":\"s" + std::to_string(++asked_) +
                     "\",\"arguments\":" + std::string(arguments) + "}\n";
  iovec part{line.data(), line.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (pass >= 0) {
    message.msg_control = space.data();
    message.msg_controllen = space.size();
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &pass, sizeof pass);
  }
  for (;;) {
    const ssize_t n = ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == static_cast<ssize_t>(line.size())) return {};
    // A line is short: one that fits in part means that it does not read.
    if (n >= 0) return Fail(Code::kIo, "QEMU does not read");
    if (errno == EAGAIN) {
      SB_TRYV(WaitFor(POLLOUT));
    } else if (errno != EINTR) {
      return FailErrno("tell QEMU");
    }
  }
}

Result<std::optional<std::string>> Qmp::NextLine() {
  for (;;) {
    if (size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (buffer_.size() >= kMaxLine) return Fail(Code::kProtocol, "QEMU says too much at once");
    std::array<char, 4096> piece{};
    const ssize_t n = ::recv(socket_, piece.data(), piece.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return std::nullopt;
    if (n < 0) return FailErrno("hear QEMU");
    if (n == 0) return Fail(Code::kClosed, "QEMU ended");
    // What it has to say to us is little; one that never stops would hold us for ever.
    said_ += static_cast<size_t>(n);
    if (said_ > kMaxSaid) return Fail(Code::kProtocol, "QEMU says too much");
    buffer_.append(piece.data(), static_cast<size_t>(n));
  }
}

Result<std::string> Qmp::AwaitLine() {
  for (;;) {
    SB_TRY(auto line, NextLine());
    if (line) return *std::move(line);
    SB_TRYV(WaitFor(POLLIN));
  }
}

Result<> Qmp::Ask(std::string_view command, std::string_view arguments, int pass) {
  SB_TRYV(Tell(command, arguments, pass));
  const std::string mine = "\"s" + std::to_string(asked_) + "\"";
  for (;;) {
    SB_TRY(std::string line, AwaitLine());
    if (QmpField(line, "id") != mine) continue;
    if (!QmpField(line, "return").empty()) return {};
    std::string why(QmpField(QmpField(line, "error"), "desc").substr(0, 200));
    for (char& c : why)
      if (c < ' ' || c > '~') c = ' ';
    return Fail(Code::kIo, "QEMU refused " + std::string(command) + ": " + why);
  }
}

}  // namespace sandbar::spawner
