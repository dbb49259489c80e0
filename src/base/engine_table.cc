#include "base/engine_table.h"

namespace sandbar {

std::vector<std::string> EngineChoices() {
  std::vector<std::string> words{"auto"};
  for (const EngineTraits* engine : kEngines) words.emplace_back(engine->name);
  return words;
}

}  // namespace sandbar
