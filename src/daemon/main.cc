// sandbar: server and client in one program. Parses the command line and hands over; all wiring of the server is in
// serve.cc, all client commands are in cli/.
#include "cli/cli.h"
#include "daemon/image_command.h"
#include "daemon/serve.h"
#include "daemon/settings.h"
#include "daemon/spawner_process.h"

int main(int argc, char** argv) {
  auto parsed = sandbar::cli::Parse(argc, argv);
  if (!parsed.options) return parsed.exit_code;
  sandbar::cli::Hooks hooks;
  hooks.serve = sandbar::daemon::Serve;
  hooks.image = sandbar::daemon::ImageMain;
  hooks.shut_down = sandbar::daemon::ShutDown;
  hooks.leave = sandbar::daemon::Leave;
  hooks.record = sandbar::daemon::ReadRecord;
  hooks.compare = sandbar::daemon::CompareSettings;
  hooks.mint_jwt = sandbar::daemon::MintSdkToken;
  return sandbar::cli::Main(*parsed.options, hooks);
}
