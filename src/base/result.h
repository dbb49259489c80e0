// Errors as values. Every function that can fail returns Result<T>; nobody throws across a module border.
//
//   Result<int> Parse(std::string_view s);
//   Result<void> Use() {
//     SB_TRY(int n, Parse("42"));          // returns the error to the caller
//     SB_CHECK(n >= 0);                    // broken invariant: abort
//     return {};
//   }
//
// `Code` is closed: api/errors.cc maps each one to an HTTP status and the protocol's error code. The spawner sends
// codes to the server as numbers, and the two may be of different releases: a new code goes to the end.
#pragma once

#include <cerrno>
#include <expected>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace sandbar {

enum class Code {
  kBadRequest,          // the caller's input is wrong
  kTimeoutInvalid,      // extend-timeout beyond the maximum
  kExecutableNotFound,  // command is not on the sandbox's PATH
  kFileError,           // mkdir and friends: existing, missing parent
  kSnapshotMissing,     // resume of a sandbox that never had a snapshot
  kDriveEmpty,          // a drive that nobody has written to yet
  kNameTaken,           // a sandbox of that name exists
  kUnauthenticated,
  kForbidden,
  kNotFound,
  kMethodNotAllowed,
  kConflict,
  kStopped,       // the session is gone
  kSnapshotGone,  // snapshot deleted or expired
  kStopping,
  kSnapshotting,
  kUnsupported,  // valid request, but we cannot enforce it: refuse rather than echo
  kMisdirected,  // wrong Host
  kTooLarge,
  kTooMany,
  kQuota,
  kUnavailable,  // try again: the server or the machine is not ready
  kTimeout,      // a deadline of ours passed
  kCancelled,
  kClosed,    // the peer closed the stream
  kProtocol,  // the peer broke the framing
  kIo,        // a system call failed; see sys_errno
  kInternal,
  kNoSpace,  // a disk of this host is full
};
inline constexpr Code kLastCode = Code::kNoSpace;  // a test of api/errors.cc fails when it is not the last

// What a caller decides by where the code alone does not tell. Nobody decides by the text of a message.
enum class Cause {
  kUnspecified,
  kNetworkPolicy,  // kForbidden: the sandbox's own network policy denies the address, not the operator
  kOutputClosed,   // kClosed: the reader of this program's output is gone
  kNeedsRoot,      // kForbidden: only root may do it
};

struct Error {
  Code code = Code::kInternal;
  std::string message;
  int sys_errno = 0;
  std::source_location where = std::source_location::current();
  Cause cause = Cause::kUnspecified;

  // Prefixes what was being attempted: "mount overlay: " + message.
  Error&& Context(std::string_view doing) && {
    message.insert(0, std::string(doing) + ": ");
    return std::move(*this);
  }
};

template <class T = void>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> Fail(Code code, std::string message,
                                   std::source_location where = std::source_location::current()) {
  return std::unexpected(Error{code, std::move(message), 0, where});
}

inline std::unexpected<Error> Fail(Code code, Cause cause, std::string message,
                                   std::source_location where = std::source_location::current()) {
  return std::unexpected(Error{code, std::move(message), 0, where, cause});
}

// For a failed system call: message becomes "<what>: <strerror(errno)>".
std::unexpected<Error> FailErrno(std::string_view what, int err = errno,
                                 std::source_location where = std::source_location::current());

[[noreturn]] void CheckFailed(const char* condition, std::source_location where);
// Logs and counts a survivable bug; aborts when the environment has SANDBAR_FATAL_BUGS=1 (tests set it).
void ReportBug(std::string_view what, std::source_location where);

}  // namespace sandbar

#define SB_CAT2(a, b) a##b
#define SB_CAT(a, b) SB_CAT2(a, b)
#define SB_TRY(lhs, ...)                                                                            \
  auto SB_CAT(sb_r_, __LINE__) = __VA_ARGS__;                                                       \
  if (!SB_CAT(sb_r_, __LINE__)) return std::unexpected(std::move(SB_CAT(sb_r_, __LINE__)).error()); \
  lhs = *std::move(SB_CAT(sb_r_, __LINE__))
#define SB_TRYV(...) \
  if (auto sb_r = __VA_ARGS__; !sb_r) return std::unexpected(std::move(sb_r).error())
#define SB_CO_TRY(lhs, ...)                                                                            \
  auto SB_CAT(sb_r_, __LINE__) = __VA_ARGS__;                                                          \
  if (!SB_CAT(sb_r_, __LINE__)) co_return std::unexpected(std::move(SB_CAT(sb_r_, __LINE__)).error()); \
  lhs = *std::move(SB_CAT(sb_r_, __LINE__))
#define SB_CO_TRYV(...) \
  if (auto sb_r = __VA_ARGS__; !sb_r) co_return std::unexpected(std::move(sb_r).error())
#define SB_CHECK(cond)                                                           \
  do {                                                                           \
    if (!(cond)) ::sandbar::CheckFailed(#cond, std::source_location::current()); \
  } while (0)
#define SB_BUG(what) ::sandbar::ReportBug((what), std::source_location::current())
