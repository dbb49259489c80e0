#include "api/device_logins.h"

#include <algorithm>
#include <utility>

#include "api/native/key_bodies.h"
#include "base/ids.h"
#include "crypto/digest.h"

namespace sandbar::api {
namespace {

// No vowels, so that no code is a word; no letters that look like others.
constexpr std::string_view kLetters = "BCDFGHJKLMNPQRSTVWXZ";
constexpr size_t kCodeSize = 8;
constexpr size_t kLongestClient = 56;
constexpr std::chrono::minutes kMissWindow{1};

std::string NewUserCode() {
  std::string code;
  while (code.size() < kCodeSize) {
    unsigned char byte = 0;
    FillRandom(&byte, 1);
    // 240 is a multiple of the number of letters: no letter is more likely than another.
    if (byte < 240) code += kLetters[byte % kLetters.size()];
  }
  return code;
}

// What a person may have typed, as NewUserCode() wrote it.
std::string Canonical(std::string_view typed) {
  std::string out;
  for (char c : typed) {
    if (c == '-' || c == ' ') continue;
    out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return out;
}

std::string ForPeople(const std::string& code) {
  return code.substr(0, kCodeSize / 2) + "-" + code.substr(kCodeSize / 2);
}

// The program names itself, and the text becomes part of a key's name: every run of other characters becomes one space.
std::string Clean(std::string_view client) {
  std::string out;
  for (char c : client.substr(0, kLongestClient)) {
    if (c != ' ' && IsKeyNameChar(c))
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  while (out.ends_with(' ')) out.pop_back();
  return out.empty() ? "a program" : out;
}

}  // namespace

void DeviceLogins::DropOld() {
  const Clock::time_point now = Clock::now();
  std::erase_if(logins_, [&](const auto& item) { return now - item.second.started >= life_; });
  std::erase_if(misses_, [&](const auto& item) { return now - item.second.since >= kMissWindow; });
}

// Whoever floods the server from many addresses drives out logins of its own.
void DeviceLogins::DropOldestOfBusiest() {
  std::map<std::string_view, size_t> counts;
  for (const auto& [digest, login] : logins_) ++counts[login.address];
  auto worst = logins_.end();
  for (auto it = logins_.begin(); it != logins_.end(); ++it) {
    const size_t count = counts[it->second.address];
    const size_t most = worst == logins_.end() ? 0 : counts[worst->second.address];
    if (count > most || (count == most && it->second.started < worst->second.started)) worst = it;
  }
  if (worst != logins_.end()) logins_.erase(worst);
}

Result<StartedLogin> DeviceLogins::Start(std::string_view client, std::string address) {
  DropOld();
  const auto of_address =
      std::ranges::count_if(logins_, [&](const auto& item) { return item.second.address == address; });
  if (std::cmp_greater_equal(of_address, kMaxOfAddress))
    return Fail(Code::kTooMany, "too many logins wait for approval; try again in some minutes");
  if (logins_.size() >= kMax) DropOldestOfBusiest();
  StartedLogin started{NewId("sbd_", 40), ""};
  Login login;
  do login.user_code = NewUserCode();
  while (Waiting(login.user_code) != nullptr);
  started.user_code = ForPeople(login.user_code);
  login.client = Clean(client);
  login.address = std::move(address);
  login.started = Clock::now();
  logins_.emplace(crypto::Sha256(started.device_code), std::move(login));
  return started;
}

DeviceLogins::Login* DeviceLogins::Waiting(std::string_view user_code) {
  const std::string code = Canonical(user_code);
  auto found = std::ranges::find_if(logins_, [&](const auto& item) {
    return item.second.state == LoginAnswer::State::kWaiting && item.second.user_code == code;
  });
  return found == logins_.end() ? nullptr : &found->second;
}

Result<LoginRequest> DeviceLogins::Find(std::string_view user_code, const std::string& asker) {
  DropOld();
  auto missed = misses_.find(asker);
  if (missed != misses_.end() && missed->second.count >= kMaxMisses)
    return Fail(Code::kTooMany, "this key named too many unknown codes; try again in a minute");
  const Login* login = Waiting(user_code);
  if (login == nullptr) {
    Misses& misses = misses_.try_emplace(asker, Misses{Clock::now(), 0}).first->second;
    ++misses.count;
    return Fail(Code::kNotFound, "no login waits under this code: it is unknown, was decided, or is too old");
  }
  const auto left = life_ - (Clock::now() - login->started);
  return LoginRequest{login->client, login->address, std::chrono::duration_cast<std::chrono::seconds>(left)};
}

bool DeviceLogins::Approve(std::string_view user_code, LoginGrant grant) {
  DropOld();
  Login* login = Waiting(user_code);
  if (login == nullptr) return false;
  login->state = LoginAnswer::State::kApproved;
  login->grant = std::move(grant);
  return true;
}

bool DeviceLogins::Deny(std::string_view user_code) {
  DropOld();
  Login* login = Waiting(user_code);
  if (login == nullptr) return false;
  login->state = LoginAnswer::State::kDenied;
  return true;
}

LoginAnswer DeviceLogins::Poll(std::string_view device_code) {
  DropOld();
  auto found = logins_.find(crypto::Sha256(device_code));
  if (found == logins_.end()) return {};
  Login& login = found->second;
  if (login.state == LoginAnswer::State::kWaiting) {
    const Clock::time_point now = Clock::now();
    const auto before = std::exchange(login.polled, now);
    // A program that keeps to the interval may be a little early by the time that its call took to get here.
    const bool too_fast = before && now - *before < kInterval - std::chrono::seconds(1);
    return {too_fast ? LoginAnswer::State::kTooFast : LoginAnswer::State::kWaiting, {}};
  }
  LoginAnswer answer{login.state, std::move(login.grant)};
  logins_.erase(found);
  return answer;
}

}  // namespace sandbar::api
