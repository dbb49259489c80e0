#include "sandbox/keys/first_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "base/fd.h"
#include "base/files.h"
#include "base/ids.h"
#include "base/log.h"
#include "crypto/digest.h"

namespace sandbar::sandbox {
namespace {

constexpr size_t kShortest = 20;

// Writes the whole file or nothing: a crash must not leave half a secret.
Result<> WriteOwn(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  ::unlink(temporary.c_str());
  Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return FailErrno("create " + temporary);
  SB_TRYV(WriteAll(fd.get(), text + "\n"));
  if (::fsync(fd.get()) != 0) return FailErrno("sync " + temporary);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return FailErrno("rename " + temporary);
  return {};
}

// Nothing: the file does not exist.
Result<std::optional<std::string>> ReadOwn(const std::string& path) {
  struct stat st{};
  if (::lstat(path.c_str(), &st) != 0 && errno == ENOENT) return std::nullopt;
  SB_TRY(std::string text, ReadFile(path));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

// The store may have lost the key whose secret is in the file. People still hold that secret, so it gets a new key.
Result<store::Key> KeyOfSecret(store::Store& store, const std::string& secret) {
  const std::string hash = crypto::Sha256Hex(secret);
  SB_TRY(auto known, store.AllKeys());
  for (store::Key& key : known)
    if (key.sha256_hex == hash) return std::move(key);
  store::Key key;
  key.id = NewId("key_");
  key.sha256_hex = hash;
  key.name = "operator";
  key.created_at = NowMs();
  key.role = store::KeyRole::kAdmin;
  SB_TRYV(store.InsertKey(key));
  return key;
}

}  // namespace

std::string NewSecret(std::string_view prefix) {
  return NewId(prefix, 48);
}

Result<std::string> EnsureFirstKey(store::Store& store, const std::string& data_dir) {
  const std::string path = data_dir + "/token";
  SB_TRY(std::optional<std::string> secret, ReadOwn(path));
  if (!secret) {
    secret = NewSecret("sbt_");
    SB_TRYV(WriteOwn(path, *secret));
  }
  if (secret->size() < kShortest) return Fail(Code::kIo, path + " is damaged: too short for a secret");
  SB_TRY(store::Key key, KeyOfSecret(store, *secret));
  if (key.revoked_at) log::Warn("the key in {} was revoked: delete that file and start again to get another one", path);
  SB_TRY(std::optional<std::string> id, ReadOwn(path + ".id"));
  if (id != key.id) SB_TRYV(WriteOwn(path + ".id", key.id));
  return key.id;
}

Result<> WriteFirstKey(const std::string& data_dir, const std::string& secret, const std::string& id) {
  const std::string path = data_dir + "/token";
  SB_TRYV(WriteOwn(path + ".id", id));
  return WriteOwn(path, secret);
}

}  // namespace sandbar::sandbox
