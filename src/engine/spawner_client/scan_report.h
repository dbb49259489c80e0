// What sandbar-scanner says (layer_scanner/program.cc), as values. Any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/layers.h"

namespace sandbar::engine {

// A text without its last line is one of a layer scanner that died.
Result<LayerReport> ParseLayerReport(const std::string& text);
Result<LayerDiff> ParseLayerDiff(const std::string& text);

}  // namespace sandbar::engine
