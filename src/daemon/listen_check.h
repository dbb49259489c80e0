// Start-up chores around the listening socket that must happen before the rights are given up.
#pragma once

#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "daemon/config.h"

namespace sandbar::daemon {

// Fails early, with a fix, when the address cannot be bound: before a spawner is started for nothing.
Result<> CheckListen(const Config& config);

// Root reads certificate and key; the unprivileged daemon sees copies in memory. Changes the config's file names to
// them; keep the result alive until the server listens.
struct TlsFiles {
  Fd cert, key;
};
Result<TlsFiles> LoadTlsFiles(Config* config);

// Writes aside and renames, 0600: a reader sees the old text or the new one.
Result<> WriteReplacing(const std::string& path, const std::string& text);

}  // namespace sandbar::daemon
