// Lines of a QEMU that a guest may have taken over: fields lie within the line, and however much it says, the
// conversation ends with an error and every line is what was sent.
#include "spawner/machines/qmp.h"

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/fd.h"
#include "os/process.h"

using namespace sandbar;
using namespace sandbar::spawner;

namespace {

void CheckField(std::string_view line, std::string_view key) {
  const std::string_view value = QmpField(line, key);
  if (value.empty()) return;
  if (value.data() < line.data() || value.data() + value.size() > line.data() + line.size()) std::abort();
  // A value that is an object is read in its turn, as answers are.
  const std::string_view inner = QmpField(value, key);
  if (inner.size() >= value.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 32 << 10) return 0;  // what a socket takes at once
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  for (std::string_view key : {"id", "event", "return", "error", "desc", "data", "status", ""}) CheckField(in, key);

  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
  Fd ours(ends[0]), theirs(ends[1]);
  if (::send(theirs.get(), data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) std::abort();
  ::shutdown(theirs.get(), SHUT_WR);
  Qmp qmp(ours.get(), os::BootTimeMs() + 5000);
  std::string said;
  for (;;) {
    auto line = qmp.AwaitLine();
    if (!line) break;
    said += *line + "\n";
  }
  if (!in.starts_with(said) || in.substr(said.size()).contains('\n')) std::abort();

  // The same bytes as the answer to a question: it ends, too.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
  Fd asking(ends[0]), answering(ends[1]);
  if (::send(answering.get(), data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) std::abort();
  ::shutdown(answering.get(), SHUT_WR);
  Qmp question(asking.get(), os::BootTimeMs() + 5000);
  (void)question.Ask("cont");
  return 0;
}
