// The words of `sandbar key` and `sandbar login`.
#include <CLI/CLI.hpp>

#include "base/duration.h"
#include "cli/parse_raw.h"

namespace sandbar::cli {
namespace {

// `life` tells what --expires means and its default.
void AddGrant(CLI::App* app, GrantOptions* grant, const std::string& life) {
  app->add_option("--role", grant->role,
                  "viewer reads, operator (default) runs and changes sandboxes, admin also manages keys; at most yours")
      ->check(CLI::IsMember({"viewer", "operator", "admin"}));
  app->add_option("--project", grant->project, "the project that it may use (default: yours); * for all");
  app->add_option_function<std::string>(
         "--expires", [grant](const std::string& text) { grant->expires_ms = ParseDuration(text); }, life)
      ->check(CheckDuration);
}

}  // namespace

void AddKey(CLI::App* app, Raw* raw) {
  auto* key = app->add_subcommand("key", "API keys: who may use the server, and for what");
  key->require_subcommand(1);
  auto* create = key->add_subcommand("create", "Make a key and print its secret, which is shown only now");
  create->add_option("NAME", raw->key.names, "who or what will use it")->required()->expected(1);
  AddGrant(create, &raw->key.grant, "its life, e.g. 2h or 30d (default: no end, or yours)");
  key->add_subcommand("ls", "List the keys, never their secrets")
      ->add_flag("-a,--all", raw->key.all, "those that were revoked or have expired too");
  key->add_subcommand("rotate", "Replace a key by a new one with the same rights, and end the former one")
      ->add_option("ID", raw->key.names, "its id, or a name that only one key has")
      ->required()
      ->expected(1);
  key->add_subcommand("revoke", "End keys, and within seconds what they opened")
      ->add_option("ID", raw->key.names, "its id, or a name that only one key has")
      ->required();
  for (auto* sub : key->get_subcommands(nullptr)) sub->fallthrough();
}

void AddLogin(CLI::App* app, Raw* raw) {
  auto* login = app->add_subcommand("login", "Decide on programs that ask to log in (`sandbox login` shows a code)");
  login->require_subcommand(1);
  auto* approve = login->add_subcommand("approve", "Give the program with this code a key of its own");
  approve->add_option("CODE", raw->login.code, "as the program shows it, such as BCDF-GHJK")->required();
  AddGrant(approve, &raw->login.grant, "its life, e.g. 2h (default: 30d, or yours)");
  login->add_subcommand("deny", "Refuse the program with this code")
      ->add_option("CODE", raw->login.code, "as the program shows it")
      ->required();
  for (auto* sub : login->get_subcommands(nullptr)) sub->fallthrough();
}

}  // namespace sandbar::cli
