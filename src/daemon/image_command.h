// `sandbar image ls|build|rm`: images on this machine's disk. Building is the recipes' job (images/build.sh).
#pragma once

#include "cli/options.h"

namespace sandbar::daemon {

int ImageMain(const cli::Options& options, const cli::ImageCommand& command);

}  // namespace sandbar::daemon
