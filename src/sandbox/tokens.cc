#include "sandbox/tokens.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/fd.h"
#include "base/files.h"
#include "base/ids.h"
#include "crypto/digest.h"

namespace sandbar::sandbox {
namespace {

constexpr size_t kMaxToken = 512;

Result<std::string> ReadTokenFile(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd && errno == ENOENT) return std::string();
  if (!fd) return FailErrno("open " + path);
  SB_TRY(std::string token, ReadAll(fd.get(), kLargestFile, path));
  token.resize(std::min(token.size(), kMaxToken));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' ')) token.pop_back();
  return token;
}

// Complete or not there: a crash in the middle must not leave half a token.
Result<> WriteTokenFile(const std::string& path, const std::string& token) {
  const std::string temporary = path + ".new";
  ::unlink(temporary.c_str());
  Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return FailErrno("create " + temporary);
  if (auto written = WriteAll(fd.get(), token + "\n"); !written)
    return std::unexpected(std::move(written).error().Context(temporary));
  if (::fsync(fd.get()) != 0) return FailErrno("sync " + temporary);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return FailErrno("rename " + temporary);
  return {};
}

}  // namespace

Result<std::vector<store::Token>> LoadTokens(store::Store& store, const std::string& data_dir) {
  SB_TRY(auto tokens, store.Tokens());
  if (!tokens.empty()) return tokens;
  const std::string path = data_dir + "/token";
  // The file may have outlived its database: then people still hold that token.
  SB_TRY(std::string secret, ReadTokenFile(path));
  if (secret.size() < 20) {
    // No dots: clients take three dotted parts for a JWT.
    secret = NewId("sbr_", 40);
    SB_TRYV(WriteTokenFile(path, secret));
  }
  store::Token token;
  token.id = NewId("tok_");
  token.sha256_hex = crypto::Sha256Hex(secret);
  token.name = "bootstrap";
  token.created_at = NowMs();
  SB_TRYV(store.InsertToken(token));
  tokens.push_back(std::move(token));
  return tokens;
}

Result<store::Token> FindToken(const std::vector<store::Token>& tokens, std::string_view presented) {
  const std::string digest = crypto::Sha256Hex(presented.substr(0, kMaxToken));
  const store::Token* found = nullptr;
  for (const auto& token : tokens) {
    if (crypto::SameSecret(token.sha256_hex, digest)) found = &token;
  }
  if (found == nullptr || presented.size() > kMaxToken) return Fail(Code::kUnauthenticated, "the token is not valid");
  return *found;
}

}  // namespace sandbar::sandbox
