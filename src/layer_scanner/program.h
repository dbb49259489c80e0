// sandbar-scanner: reads snapshot layers for the spawner, which executes it with the directories open and nothing else.
// Says what it found on fd 3, as lines; the last one is "end …", or "error …" or "limit …" (the words: program.cc).
#pragma once

#include <string>
#include <vector>

namespace sandbar::layer_scanner {

// manifest | check: fd 4 is the layer, 5 the manifest. diff A B: A layers from fd 4 on, then B layers.
int RunScanner(const std::vector<std::string>& args);

}  // namespace sandbar::layer_scanner
