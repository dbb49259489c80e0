#include <filesystem>

#include "cli/commands.h"
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

std::string EnvLines(const std::string& url, const std::string& jwt, const std::string& register_mjs) {
  // A file: URL, because NODE_OPTIONS has no way to quote a path with blanks.
  std::string escaped;
  for (char c : register_mjs) escaped += c == '/' ? "/" : wire::EncodeComponent(std::string_view(&c, 1));
  std::string import = "--import=file://" + escaped;
  std::string lines;
  auto line = [&](std::string_view name, std::string_view value) {
    lines += fmt::format("export {}={}\n", name, ShellQuote(value));
  };
  line("SANDBAR_URL", url);
  line("VERCEL_OIDC_TOKEN", jwt);
  line("VERCEL_TELEMETRY_DISABLED", "1");
  line("VERCEL_SANDBOX_TELEMETRY_DISABLED", "1");
  line("SANDBOX_SKIP_VERSION_CHECK", "1");
  // Appended once, however often the lines are evaluated.
  lines += fmt::format(
      "case \" ${{NODE_OPTIONS-}} \" in *{0}*) ;; *) export NODE_OPTIONS=\"${{NODE_OPTIONS:+$NODE_OPTIONS }}\"{0} ;; "
      "esac\n",
      ShellQuote(import));
  return lines;
}

}  // namespace sandbar::cli
