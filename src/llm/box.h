// A sandbox as llm/ and evals/ use it, over the HTTP API: make, fork, fill, run, read, delete. Single loop.
//
//   SB_CO_TRY(Box box, co_await CreateBox(api, std::move(spec)));
//   SB_CO_TRY(Ran ran, co_await RunIn(api, box, {"sh", "-c", "ls"}, 60'000));
//   co_await DeleteBox(api, box.name);
#pragma once

#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/api_client.h"
#include "client/tar_stream.h"

namespace sandbar::llm {

namespace json = boost::json;

struct Box {
  std::string name, session, cwd;
  std::string describe;  // "vercel/sandbox/universal, class 1 (namespaces), network deny-all"
};

struct BoxSpec {
  std::optional<std::string> image, runtime, snapshot;
  std::string net = "deny";  // see ParseNet
  int64_t timeout_ms = 3'600'000;
  std::optional<std::string> engine;  // what is demanded of the machine
  std::optional<int> min_class;
};

// "deny", "allow" or "allow:host,host" as the API's network policy.
Result<json::value> ParseNet(const std::string& text);

// Says in the body of a create what the sandbox starts from: an image, a snapshot or a runtime; with none of them, the
// server's default image. Returns the path of that create.
std::string AddOrigin(const std::optional<std::string>& image, const std::optional<std::string>& runtime,
                      const std::optional<std::string>& snapshot, json::object* body);
Task<Box> CreateBox(client::ApiClient* api, BoxSpec spec);
// One that exists; started when it is stopped.
Task<Box> OpenBox(client::ApiClient* api, std::string name);
// Fails with kClosed when the box was replaced or removed meanwhile: the server makes a new, empty one for a tool call
// that finds none, and work that went on there is not the work that was asked for.
Task<> StillThere(client::ApiClient* api, Box box);
// With `net`, a policy of its own instead of the source's.
Task<Box> ForkBox(client::ApiClient* api, std::string name, int64_t timeout_ms,
                  std::optional<std::string> net = std::nullopt);
// The session stops; forks of the box begin with what it has now.
Task<> StopBox(client::ApiClient* api, Box box);
// With its snapshots. One that is gone already is fine.
Task<> DeleteBox(client::ApiClient* api, std::string name);

struct Ran {
  int exit_code = 0;
  std::string out, err;    // the first `keep` bytes of each
  bool truncated = false;  // there was more
};
// `timeout_ms`: the command is killed then. kClosed when the sandbox went away.
Task<Ran> RunIn(client::ApiClient* api, Box box, std::vector<std::string> argv, int64_t timeout_ms,
                size_t keep = 256 << 10);
// Starts it as root of the sandbox and does not wait for it.
Task<> StartIn(client::ApiClient* api, Box box, std::vector<std::string> argv);

struct BoxChange {
  std::string path;  // absolute
  bool deleted = false;
  std::string type;   // of what is there, or was: "file", "directory", "symlink", ...
  uint64_t size = 0;  // of a file that is there
};
// What differs between two stopped boxes, as the host sees it: no program of either has a say. kTooLarge when the
// server does not list all of it.
Task<std::vector<BoxChange>> DiffBoxes(client::ApiClient* api, std::string before, std::string after);

// Names are relative to the working directory, or absolute.
Task<> WriteFiles(client::ApiClient* api, Box box, std::vector<client::TarItem> files);
Task<std::string> ReadFileIn(client::ApiClient* api, Box box, std::string path, size_t limit);

// Every regular file below `dir` of this machine, named relative to it.
Result<std::vector<client::TarItem>> FilesBelow(const std::string& dir);

// Copies the files of the working directory that match `glob` (* ? ** [a-z]) below `to`, at the same relative paths.
// Their names and bytes are the guest's: nothing outside `to` is touched, links of ours are not followed. The paths.
Task<std::vector<std::string>> Download(client::ApiClient* api, Box box, std::string glob, std::string to);
// Exposed for tests.
bool GlobMatches(std::string_view glob, std::string_view path);
bool IsSafeRelative(std::string_view path);

}  // namespace sandbar::llm
