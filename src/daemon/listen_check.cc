#include "daemon/listen_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

#include "base/files.h"
#include "cli/output.h"
#include "cli/server_endpoint.h"

namespace sandbar::daemon {
namespace {

Result<Fd> InMemory(const std::string& path, std::string* name) {
  SB_TRY(std::string text, ReadFile(path));
  Fd copy(::memfd_create("sandbar-tls", MFD_CLOEXEC));
  if (!copy) return FailErrno("memfd_create");
  SB_TRYV(cli::WriteAll(copy.get(), text));
  *name = fmt::format("/proc/self/fd/{}", copy.get());
  return copy;
}

}  // namespace

Result<> CheckListen(const Config& config) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  int r = ::getaddrinfo(config.host.c_str(), std::to_string(config.port).c_str(), &hints, &found);
  if (r != 0) return Fail(Code::kBadRequest, fmt::format("cannot listen on {}: {}", config.host, ::gai_strerror(r)));
  Fd probe(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int one = 1;
  ::setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  bool bound = ::bind(probe.get(), found->ai_addr, found->ai_addrlen) == 0;
  int err = errno;
  ::freeaddrinfo(found);
  if (!bound && err == EADDRINUSE)
    return cli::FailWithFix(Code::kConflict, fmt::format("port {} of {} is taken", config.port, config.host),
                            fmt::format("--listen {}:{}", config.host, config.port + 1));
  if (!bound) return FailErrno(fmt::format("listen on {}:{}", config.host, config.port), err);
  if (config.port != 0 && config.port < 1024)
    return cli::FailWithFix(Code::kBadRequest,
                            fmt::format("port {} needs rights that the server gives up", config.port),
                            "listen on 1024 or above and put a proxy in front");
  return {};
}

Result<TlsFiles> LoadTlsFiles(Config* config) {
  TlsFiles files;
  if (!config->tls()) return files;
  SB_TRY(files.cert, InMemory(config->tls_cert, &config->tls_cert));
  SB_TRY(files.key, InMemory(config->tls_key, &config->tls_key));
  return files;
}

Result<> WriteReplacing(const std::string& path, const std::string& text) {
  std::string aside = path + ".new";
  ::unlink(aside.c_str());
  Fd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return FailErrno("make " + aside);
  SB_TRYV(cli::WriteAll(file.get(), text));
  if (::rename(aside.c_str(), path.c_str()) != 0) return FailErrno("rename " + aside);
  return {};
}

}  // namespace sandbar::daemon
