#include <boost/json.hpp>
#include <filesystem>

#include "base/files.h"
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
  auto text = path.empty() ? Result<std::string>(std::string()) : ReadFile(path);
  if (!text || text->empty()) return {};
  // Other machines download one file: the rest goes into it, where it says so.
  json::object parts;
  for (const char* name : {"confine.cjs", "facade.cjs", "options.cjs"}) {
    auto part = ReadFile(FindBeside(name));
    if (!part) return {};
    parts[name] = *std::move(part);
  }
  constexpr std::string_view kPlace = "const embedded = null;";
  const size_t at = text->find(kPlace);
  if (at == std::string::npos) return {};
  text->replace(at, kPlace.size(), "const embedded = " + json::serialize(parts) + ";");
  return *std::move(text);
}

std::string EnvLines(const wire::SdkSettings& settings, const std::string& register_mjs) {
  std::string lines;
  for (const auto& [name, value] : wire::SdkVariables(settings))
    lines += fmt::format("export {}={}\n", name, ShellQuote(value));
  // A file: URL, because NODE_OPTIONS has no way to quote a path with blanks.
  std::string import = "--import=file://";
  for (char c : register_mjs) import += c == '/' ? "/" : wire::EncodeComponent(std::string_view(&c, 1));
  lines += fmt::format(
      "case \" ${{NODE_OPTIONS-}} \" in *{0}*) ;; *) export NODE_OPTIONS=\"${{NODE_OPTIONS:+$NODE_OPTIONS }}\"{0} ;; "
      "esac\n",
      ShellQuote(import));
  return lines;
}

}  // namespace sandbar::cli
