#include "api/web/preview_secrets.h"

#include <algorithm>

#include "api/auth.h"
#include "base/base64.h"
#include "sandbox/ports/routes.h"
#include "wire/percent.h"
#include "wire/text.h"

namespace sandbar::api {
namespace {

constexpr size_t kShortest = 20;  // of a token
constexpr size_t kLongest = 4096;
constexpr size_t kMaxWords = 1024;  // of one request: every one costs a hash

bool IsWordChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == '~';
}

bool IsBase64Char(char c) {
  return IsWordChar(c) || c == '+' || c == '/';
}

// Only we make these. Whether they are still good is not the guest's business either.
bool HasOurPrefix(std::string_view word) {
  return std::ranges::any_of(std::initializer_list<std::string_view>{"sbt_", "sbr_", "sbp_", "sbk_"},
                             [&](std::string_view prefix) {
                               const size_t at = word.find(prefix);
                               return at != std::string_view::npos && word.size() - at >= kShortest;
                             });
}

// Maximal runs of characters that a token can have.
template <class Allowed>
std::vector<std::string> Runs(std::string_view text, Allowed allowed) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t n = static_cast<size_t>(std::ranges::find_if_not(text, allowed) - text.begin());
    if (n >= kShortest) out.emplace_back(text.substr(0, n));
    text.remove_prefix(std::min(n + 1, text.size()));
  }
  return out;
}

std::vector<std::string> Split(std::string_view text) {
  constexpr std::string_view kBlanks = " \t,;=\"";
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(kBlanks), text.size());
    if (end > 0 && end <= kLongest) out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// What in a run may be a token: all of it, each part between dots, and each three neighbours, which may be a JWT.
void AddWords(const std::string& run, std::vector<std::string>* words) {
  if (run.size() <= kLongest) words->push_back(run);
  std::vector<size_t> begins{0};
  for (size_t i = 0; i < run.size(); ++i)
    if (run[i] == '.') begins.push_back(i + 1);
  if (begins.size() == 1) return;
  begins.push_back(run.size() + 1);
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    const size_t part = begins[i + 1] - begins[i] - 1;
    if (part >= kShortest && part <= kLongest) words->push_back(run.substr(begins[i], part));
    if (i + 3 >= begins.size() || begins.size() == 4) continue;
    const size_t three = begins[i + 3] - begins[i] - 1;
    if (three <= kLongest && run.compare(begins[i], 3, "eyJ") == 0) words->push_back(run.substr(begins[i], three));
  }
}

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  for (const std::string& run : Runs(text, IsWordChar)) AddWords(run, &words);
  return words;
}

}  // namespace

bool PreviewSecrets::Is(const std::string& word) const {
  if (HasOurPrefix(word)) return true;
  if (LooksLikeJwt(word)) return SignedByUs(jwt_key_, word);
  if (!route_->token.empty() && sandbox::RouteTokenMatches(*route_, word)) return true;
  return keys_->Knows(word);
}

Task<bool> PreviewSecrets::AnyIs(std::vector<std::string> words) {
  looked_at_ += words.size();
  if (looked_at_ > kMaxWords)
    co_return Fail(Code::kTooLarge, "the request has too many long words in its target and headers");
  co_return std::ranges::any_of(words, [this](const std::string& word) { return Is(word); });
}

Task<bool> PreviewSecrets::Carries(std::string text) {
  const std::string plain = wire::DecodeEscapes(text);
  std::vector<std::string> words = Words(plain);
  for (const std::string& run : Runs(plain, IsBase64Char)) {
    for (std::string& word : Words(DecodeBase64Prefix(run))) words.push_back(std::move(word));
    // Behind a dot a new encoding may begin: base64url.bearer.authorization.k8s.io.<token>.
    const size_t dot = run.rfind('.');
    if (dot == std::string::npos) continue;
    for (std::string& word : Words(DecodeBase64Prefix(std::string_view(run).substr(dot + 1))))
      words.push_back(std::move(word));
  }
  co_return co_await AnyIs(std::move(words));
}

Task<std::string> PreviewSecrets::Items(std::string list, char separator) {
  std::string out;
  std::string_view rest = list;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(separator), rest.size());
    std::string item(wire::Trim(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (item.empty()) continue;
    SB_CO_TRY(bool carries, co_await Carries(item));
    if (carries) continue;
    if (!out.empty()) out += std::string(1, separator) + " ";
    out += item;
  }
  co_return out;
}

Task<std::vector<http::Header>> PreviewSecrets::Headers(const http::HttpRequest* request) {
  std::vector<http::Header> out;
  for (const http::Header& h : request->headers) {
    http::Header kept = h;
    std::string both = h.name + " " + h.value;
    SB_CO_TRY(bool carries, co_await Carries(std::move(both)));
    if (!carries && wire::EqualsIgnoreCase(h.name, "authorization")) {
      // Here a token may be of any length, behind any scheme.
      std::vector<std::string> words = Split(h.value);
      SB_CO_TRY(carries, co_await AnyIs(std::move(words)));
    }
    const bool cookies = wire::EqualsIgnoreCase(h.name, "cookie");
    const char separator = cookies ? ';' : ',';
    if (carries && (cookies || wire::EqualsIgnoreCase(h.name, "sec-websocket-protocol"))) {
      SB_CO_TRY(kept.value, co_await Items(h.value, separator));
      carries = kept.value.empty();
    }
    if (!carries) out.push_back(std::move(kept));
  }
  co_return out;
}

Task<std::string> PreviewSecrets::Target(std::string target) {
  const size_t mark = target.find('?');
  if (mark == std::string::npos) co_return target;
  std::string out = target.substr(0, mark);
  std::string_view query = std::string_view(target).substr(mark + 1);
  char separator = '?';
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    std::string pair(query.substr(0, end));
    query.remove_prefix(std::min(end + 1, query.size()));
    SB_CO_TRY(bool carries, co_await Carries(pair));
    if (carries) continue;
    out += separator + pair;
    separator = '&';
  }
  co_return out;
}

}  // namespace sandbar::api
