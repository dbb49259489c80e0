// The words of commands about a server, its host and its files, as values: serve, up, env, image, kernel, doctor …
// cli/options.h has all commands. Values, for any thread.
//
//   ServeCommand serve{.listen = "127.0.0.1:9000"};
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sandbar::cli {

inline constexpr char kDefaultData[] = "/var/lib/sandbar";
inline constexpr char kDefaultImages[] = "/var/cache/sandbar/images";
inline constexpr char kDefaultListen[] = "127.0.0.1:8787";

// `serve`, also used by `up` and by the embedded server of `run`.
struct ServeCommand {
  std::optional<std::string> listen, config, images, tls_cert, tls_key, isolation;
  bool insecure_http = false;
  bool ephemeral = false;
  // For the processes that start a server: where to report readiness, and whose end means "stop everything".
  int ready_fd = -1;
  int lifeline_fd = -1;
};
struct UpCommand {
  ServeCommand serve;
};
struct RestartCommand {
  ServeCommand serve;
};
struct DownCommand {};
struct UsageCommand {};
struct TokenCommand {};
// What a new key may do, and for how long.
struct GrantOptions {
  std::string role = "operator";
  std::optional<std::string> project;
  std::optional<int64_t> expires_ms;
};
struct KeyCommand {
  std::string verb;                // create, ls, rotate, revoke
  std::vector<std::string> names;  // create: one name; rotate (one) and revoke: ids, or names that only one key has
  GrantOptions grant;              // create
  bool all = false;                // ls: ended ones too
};
// The decision on a program that asks to log in.
struct LoginCommand {
  std::string verb;  // approve, deny
  std::string code;
  GrantOptions grant;  // approve: of the key that the program gets
};
struct EnvCommand {
  bool aliases = true;                     // the SDK understands other spellings too
  std::optional<std::string> default_net;  // of sandboxes whose program asks for no network
  std::optional<std::string> write;        // a .env file, instead of printing
  std::vector<std::string> argv;           // a program to run with the environment, instead of printing
};
struct ImageCommand {
  std::string verb;  // ls, build, rm
  std::vector<std::string> names;
  std::optional<std::string> images;
};
struct KernelCommand {
  std::string verb;  // ls, cloud, build, use
  std::string file;
  std::optional<std::string> dir;
};
struct SkillCommand {};
struct VersionCommand {};
struct DoctorCommand {
  std::optional<std::string> listen, images;
};

}  // namespace sandbar::cli
