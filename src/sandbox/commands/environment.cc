#include "sandbox/commands/environment.h"

#include <array>

namespace sandbar::sandbox {
namespace {

constexpr const char* kPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr const char* kBundle = "/etc/ssl/certs/ca-certificates.crt";
// Programs with a trust store of their own have to be pointed at the guest's bundle, which holds the operator's CA too.
constexpr std::array kBundleVariables = {
    "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO",
    "PIP_CERT",      "NPM_CONFIG_CAFILE",   "AWS_CA_BUNDLE",  "CARGO_HTTP_CAINFO",  "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"};

}  // namespace

std::vector<std::string> MakeEnvironment(const store::Session& session,
                                         const std::map<std::string, std::string>& sandbox_env,
                                         const std::map<std::string, std::string>& command_env, bool sudo) {
  std::map<std::string, std::string> env = {{"PATH", kPath}, {"LANG", "C.UTF-8"}, {"SHELL", "/bin/bash"}};
  for (const char* name : kBundleVariables) env[name] = kBundle;
  env["NODE_USE_SYSTEM_CA"] = "1";
  env["HOME"] = session.home;
  env["USER"] = session.user;
  env["LOGNAME"] = session.user;
  for (const auto& [k, v] : session.image_env) env[k] = v;
  for (const auto& [k, v] : sandbox_env) env[k] = v;
  for (const auto& [k, v] : command_env) env[k] = v;
  if (sudo) {
    env["HOME"] = "/root";
    env["USER"] = "root";
    env["LOGNAME"] = "root";
    env["SUDO_USER"] = session.user;
    env["SUDO_UID"] = std::to_string(session.uid);
    env["SUDO_GID"] = std::to_string(session.gid);
  }
  std::vector<std::string> out;
  out.reserve(env.size());
  for (const auto& [k, v] : env) out.push_back(k + "=" + v);
  return out;
}

}  // namespace sandbar::sandbox
