// Logins of programs that cannot show a page, as OAuth's device flow has them (RFC 8628). A program asks for a login
// and shows a person a short code; somebody who has a key approves the code; the program, which polls meanwhile, gets a
// key of its own. Nothing of this is stored: a server that restarts has forgotten who was waiting. Loop thread; owned
// by Api.
//
//   SB_TRY(StartedLogin started, logins.Start(client, address));        // the program
//   SB_TRY(LoginRequest request, logins.Find(started.user_code, key));  // the approver looks, then makes a key
//   logins.Approve(started.user_code, {secret, expires_at_ms});
//   LoginAnswer answer = logins.Poll(started.device_code);              // the program
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sandbar::api {

struct LoginRequest {
  std::string client;   // what the program says of itself, cleaned for display
  std::string address;  // that it asked from
  std::chrono::seconds left{0};
};

struct StartedLogin {
  std::string device_code;  // the program's secret
  std::string user_code;    // for people, such as BCDF-GHJK
};

struct LoginGrant {
  std::string secret;
  std::optional<int64_t> expires_at_ms;
};

struct LoginAnswer {
  enum class State { kWaiting, kTooFast, kDenied, kApproved, kUnknown };
  State state = State::kUnknown;
  LoginGrant grant;  // of kApproved; handed out once
};

class DeviceLogins {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::seconds kLife{600};
  static constexpr std::chrono::seconds kInterval{5};  // between two polls; a program that is faster must slow down
  static constexpr size_t kMax = 1000;
  static constexpr size_t kMaxOfAddress = 20;
  static constexpr size_t kMaxMisses = 10;  // unknown codes that one key may name in a minute

  explicit DeviceLogins(std::chrono::milliseconds life = kLife) : life_(life) {}

  // kTooMany when too many logins of this address wait already. When too many wait in all, the oldest one of the
  // address with the most is dropped.
  Result<StartedLogin> Start(std::string_view client, std::string address);
  // The login that waits under this code; case and dashes do not matter. `asker` is the key of who looks: kTooMany when
  // it named too many unknown codes. kNotFound: unknown, decided or too old.
  Result<LoginRequest> Find(std::string_view user_code, const std::string& asker);
  // False when the login does not wait any more.
  bool Approve(std::string_view user_code, LoginGrant grant);
  bool Deny(std::string_view user_code);
  LoginAnswer Poll(std::string_view device_code);

 private:
  struct Login {
    std::string user_code;  // without the dash
    std::string client, address;
    Clock::time_point started;
    std::optional<Clock::time_point> polled;
    LoginAnswer::State state = LoginAnswer::State::kWaiting;
    LoginGrant grant;
  };
  struct Misses {
    Clock::time_point since;
    size_t count = 0;
  };

  void DropOld();
  void DropOldestOfBusiest();
  Login* Waiting(std::string_view user_code);

  std::chrono::milliseconds life_;
  std::map<std::string, Login> logins_;   // by the digest of the device code
  std::map<std::string, Misses> misses_;  // by the asker
};

}  // namespace sandbar::api
