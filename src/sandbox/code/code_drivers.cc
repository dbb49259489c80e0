#include "sandbox/code/code_drivers.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "wire/ndjson.h"

namespace sandbar::sandbox {
namespace {

// One word for bash, without a line break: an interrupt while a line is read must not make two of it.
std::string ShellWord(std::string_view text) {
  std::string out = "$'";
  for (char c : text) {
    if (c == '\\' || c == '\'') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out + "'";
}

// Names of variables were checked before.
std::string ShellRequest(const CodeSpec& spec) {
  std::string out = "__sandbar_code=" + ShellWord(spec.code);
  out += "; __sandbar_begin " + ShellWord(spec.cwd.value_or("")) + " && ";
  for (const auto& [name, value] : spec.env) out += name + "=" + ShellWord(value) + " ";
  return out + "eval \"$__sandbar_code\" </dev/null 250>&-\n";
}

std::string JsonEnv(const std::map<std::string, std::string>& env) {
  boost::json::object out;
  for (const auto& [name, value] : env) out[name] = value;
  return wire::ToAsciiJson(out);
}

}  // namespace

std::string_view CodeLanguageName(CodeLanguage language) {
  switch (language) {
    case CodeLanguage::kPython:
      return "python";
    case CodeLanguage::kJavascript:
      return "javascript";
    case CodeLanguage::kTypescript:
      return "typescript";
    case CodeLanguage::kBash:
      break;
  }
  return "bash";
}

void AddDriver(CodeLanguage language, protocol::Exec& request) {
  request.channel = protocol::Channel::kDescriptor3;
  switch (language) {
    case CodeLanguage::kPython:
      request.argv = {"python3", "-c", std::string(kPythonDriver)};
      return;
    case CodeLanguage::kJavascript:
    case CodeLanguage::kTypescript:
      request.argv = {"node", "--expose-internals", "-e", std::string(kNodeDriver)};
      return;
    case CodeLanguage::kBash:
      break;
  }
  // One program and no files: every start of another shell costs as much as the whole rest.
  request.argv = {"bash", "--noprofile", "--norc", "--noediting", "-i"};
  request.channel = protocol::Channel::kStandardInput;
  constexpr std::string_view kOurs[] = {"PS1=", "HISTFILE=", "PROMPT_COMMAND="};
  for (std::string_view name : kOurs) std::erase_if(request.env, [&](const auto& e) { return e.starts_with(name); });
  request.env.emplace_back("PS1=");
  request.env.emplace_back("HISTFILE=");
  request.env.emplace_back("PROMPT_COMMAND=eval \"$__sandbar_driver\"");
  request.env.push_back("__sandbar_driver=" + std::string(kBashDriver));
}

std::string DriverRequest(int64_t count, CodeLanguage language, const CodeSpec& spec) {
  if (language == CodeLanguage::kBash) return ShellRequest(spec);
  const std::string cwd = spec.cwd.value_or("");
  const std::string env = JsonEnv(spec.env);
  return fmt::format("run {} {} {} {} {}\n", count, CodeLanguageName(language), spec.code.size(), cwd.size(),
                     env.size()) +
         spec.code + cwd + env;
}

}  // namespace sandbar::sandbox
