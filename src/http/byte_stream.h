// A connected byte stream, TCP or TLS (http/tls.h), as the HTTP server and client use it. Single loop; at most one read
// and one write under way at a time. Cancelling a read loses no bytes; a cancelled write leaves the stream unusable.
#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>
#include <string_view>

#include "async/task.h"
#include "base/fd.h"

namespace sandbar::http {

using Pieces = std::array<std::string_view, 3>;  // written in order, as one gather write where possible

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // TLS; nothing for TCP.
  virtual Task<> Handshake() = 0;
  // At least one byte, or 0 at the end of the stream. `data` outlives the call.
  virtual Task<size_t> ReadSome(char* data, size_t n) = 0;
  // Completes when the socket took everything. The viewed bytes outlive the call.
  virtual Task<> WriteAll(Pieces pieces) = 0;
  // Says goodbye and discards up to `max_bytes` of what the peer still sends, so that the kernel does not turn our
  // close into a reset that destroys the answer before the peer read it. Ends at the peer's end of stream.
  virtual Task<> Linger(size_t max_bytes) = 0;
  // Tells the peer that nothing more comes, while reading goes on. False where that cannot be said (TLS).
  virtual bool ShutdownSend() { return false; }
  // Fails everything under way with kCancelled.
  virtual void Close() = 0;
  virtual int fd() const = 0;
};

std::unique_ptr<ByteStream> MakeTcpStream(asio::ip::tcp::socket socket);

// Bytes that streams of one owner have moved.
struct Traffic {
  uint64_t read = 0, written = 0;
};
// Takes over a connected socket of any family. What it moves is added to `traffic`.
Result<std::unique_ptr<ByteStream>> MakeFdStream(const asio::any_io_executor& ex, Fd fd,
                                                 std::shared_ptr<Traffic> traffic = nullptr);

// The part of Linger() below any TLS.
Task<> LingerSocket(asio::ip::tcp::socket* socket, size_t max_bytes);
// True when the peer has closed its side (or the connection broke), without reading anything.
bool PeerClosed(int fd);

}  // namespace sandbar::http
