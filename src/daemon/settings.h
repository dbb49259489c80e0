// The settings that an operator has named, by flag or in the file, as the keys of the file ("limits.max_vcpus") and
// their values as text. A server writes them down when it starts, so that `up` can say what it would change and
// `restart` can start it the same way again. The file is root's: root reads it to start programs, so it must not be the
// word of the server's own user.
#pragma once

#include <string>
#include <vector>

#include "cli/cli.h"
#include "daemon/config.h"

namespace sandbar::daemon {

// {"settings": {key: value}, "ofFile": [key], "flags": {flag: value}, "background": bool} of a server that starts now.
Result<boost::json::object> SettingsRecord(const Config& config, const cli::ServeCommand& flags);

// Root, into the data directory and from there. What the server's user may have put there is not read.
Result<> WriteRecord(const std::string& data, const boost::json::object& record);
Result<boost::json::object> ReadRecord(const std::string& data);

// The differences between the settings of these flags and a record. Compares the keys that the flags name. With
// --config it also compares the keys of that file and of the file that the record came from. An error: the settings
// cannot be used.
Result<std::vector<cli::Difference>> CompareSettings(const cli::Options& options, const cli::ServeCommand& flags,
                                                     const boost::json::object& record);

}  // namespace sandbar::daemon
