#include <boost/json.hpp>
#include <filesystem>

#include "cli/commands.h"
#include "cli/env.h"
#include "cli/output.h"
#include "cli/server_process.h"
#include "wire/url.h"

namespace sandbar::cli {

namespace {

// The checkout (build/<preset>/bin) and an installed tree (bin + share).
std::string FindBeside(const std::string& name) {
  namespace fs = std::filesystem;
  for (const std::string relative : {"../../../sdk/", "../share/sandbar/"}) {
    std::error_code ec;
    fs::path path = fs::canonical(fs::path(ProgramDirectory()) / (relative + name), ec);
    if (!ec) return path.string();
  }
  return {};
}

}  // namespace

std::string FindRegisterMjs() {
  return FindBeside("register.mjs");
}

std::string FindEvalRunner() {
  return FindBeside("eval-run.mjs");
}

std::string ReadRegisterMjs() {
  const std::string path = FindRegisterMjs();
  auto text = path.empty() ? Result<std::string>(std::string()) : ReadSmallFile(path);
  if (!text || text->empty()) return {};
  // Other machines download one file: the rest goes into it, where it says so.
  json::object parts;
  for (const char* name : {"confine.cjs", "facade.cjs", "options.cjs"}) {
    auto part = ReadSmallFile(FindBeside(name));
    if (!part) return {};
    parts[name] = *std::move(part);
  }
  constexpr std::string_view kPlace = "const embedded = null;";
  const size_t at = text->find(kPlace);
  if (at == std::string::npos) return {};
  text->replace(at, kPlace.size(), "const embedded = " + json::serialize(parts) + ";");
  return *std::move(text);
}

EnvVariables EnvFor(const std::string& url, const SdkToken& token, const std::string& register_mjs,
                    const EnvCommand& command) {
  EnvVariables out;
  out.values = {{"SANDBAR_URL", url},
                {"SANDBAR_ALIASES", command.aliases ? "1" : "0"},
                {"VERCEL_OIDC_TOKEN", token.jwt},
                {"VERCEL_TOKEN", token.jwt},
                {"VERCEL_TEAM_ID", token.team},
                {"VERCEL_PROJECT_ID", token.project},
                {"VERCEL_TELEMETRY_DISABLED", "1"},
                {"VERCEL_SANDBOX_TELEMETRY_DISABLED", "1"},
                {"SANDBOX_SKIP_VERSION_CHECK", "1"}};
  if (command.aliases) out.values.emplace_back("VERCEL_SANDBOX_API_KEY", token.jwt);
  if (command.default_net) out.values.emplace_back("SANDBAR_DEFAULT_NET", *command.default_net);
  // A file: URL, because NODE_OPTIONS has no way to quote a path with blanks.
  out.import = "--import=file://";
  for (char c : register_mjs) out.import += c == '/' ? "/" : wire::EncodeComponent(std::string_view(&c, 1));
  return out;
}

std::string EnvLines(const EnvVariables& variables) {
  std::string lines;
  for (const auto& [name, value] : variables.values) lines += fmt::format("export {}={}\n", name, ShellQuote(value));
  lines += fmt::format(
      "case \" ${{NODE_OPTIONS-}} \" in *{0}*) ;; *) export NODE_OPTIONS=\"${{NODE_OPTIONS:+$NODE_OPTIONS }}\"{0} ;; "
      "esac\n",
      ShellQuote(variables.import));
  return lines;
}

}  // namespace sandbar::cli
