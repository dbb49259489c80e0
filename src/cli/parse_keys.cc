// The words of `sandbar key`.
#include <CLI/CLI.hpp>

#include "cli/parse_raw.h"

namespace sandbar::cli {

void AddKey(CLI::App* app, Raw* raw) {
  auto* key = app->add_subcommand("key", "API keys: who may use the server, and for what");
  key->require_subcommand(1);
  auto* create = key->add_subcommand("create", "Make a key and print its secret, which is shown only now");
  create->add_option("NAME", raw->key.names, "who or what will use it")->required()->expected(1);
  create
      ->add_option("--role", raw->key.role,
                   "viewer reads, operator (default) runs and changes sandboxes, admin also manages keys")
      ->check(CLI::IsMember({"viewer", "operator", "admin"}));
  create->add_option("--project", raw->key.project, "the project that it may use (default: yours); * for all");
  create->add_option("--expires", raw->key_expires, "its life, e.g. 2h or 30d (default: no end, or yours)")
      ->check(CheckDuration);
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

}  // namespace sandbar::cli
