#include "spawner/machines/launch.h"

#include <algorithm>
#include <array>

namespace sandbar::spawner {
namespace {

struct Factory {
  uint8_t engine;
  std::unique_ptr<Launch> (*make)();
};

constexpr std::array<Factory, 3> kFactories = {{
    {kNamespaces.id, NewNamespacesLaunch},
    {kGvisor.id, NewGvisorLaunch},
    {kMicrovm.id, NewMicrovmLaunch},
}};
static_assert(std::ranges::all_of(kEngines,
                                  [](const EngineTraits* engine) {
                                    return std::ranges::count(kFactories, engine->id, &Factory::engine) == 1;
                                  }),
              "every engine of the table has one factory");
// The table has the numbers of the protocol.
static_assert(kNamespaces.id == kNamespacesEngine && kGvisor.id == kGvisorEngine && kMicrovm.id == kMicrovmEngine);

}  // namespace

Result<std::unique_ptr<Launch>> MakeLaunch(const EngineTraits& engine) {
  const auto* factory = std::ranges::find(kFactories, engine.id, &Factory::engine);
  if (factory == kFactories.end()) return Fail(Code::kUnsupported, "there is no such engine");
  return factory->make();
}

NetworkKind NetworkOf(const EngineTraits& engine, bool nesting) {
  // Containers make bridges and rules of their own: these need a namespace of the machine's own, with the host's
  // namespace behind it.
  if (nesting && engine.network == NetworkKind::kLocal) return NetworkKind::kVeth;
  return engine.network;
}

}  // namespace sandbar::spawner
