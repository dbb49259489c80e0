// The data directory: made, owned and locked here, before anything else happens. Privileged part of the start; after
// it the daemon gives its rights up.
//
// Owned by root, writable by the daemon's group, sticky: the daemon makes and removes files of its own (database,
// token, logs), but cannot replace what the spawner trusts (store.img, run/, instance-id).
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::daemon {

struct Identity {
  uid_t uid = 0;
  gid_t gid = 0;
};
// kNotFound with the command that makes the user.
Result<Identity> LookUpUser(const std::string& name);

// Makes the directory and what is below it. Idempotent.
Result<> PrepareDataDir(const std::string& data, Identity daemon);

// One server per data directory; the lock lives as long as the Fd. kConflict names the holder's pid.
Result<Fd> LockDataDir(const std::string& data);
// The pid that holds the lock, as the kernel says; 0: nobody.
Result<pid_t> LockHolder(const std::string& data);

// The file's text, made from fresh random bytes at first use; 0600, the daemon's own. Call after dropping rights.
Result<std::string> ReadOrMakeSecret(const std::string& path, const std::string& prefix);
// The same with text that `make` makes, at least 32 bytes.
Result<std::string> ReadOrMake(const std::string& path, const std::function<std::string()>& make);

}  // namespace sandbar::daemon
