#include "spawner/machines/launch.h"

namespace sandbar::spawner {

Result<std::unique_ptr<Launch>> MakeLaunch(uint8_t engine) {
  if (engine == kNamespacesEngine) return NamespacesLaunch();
  if (engine == kGvisorEngine) return GvisorLaunch();
  if (engine == kMicrovmEngine) return NewMicrovmLaunch();
  return Fail(Code::kUnsupported, "there is no such engine");
}

NetKind NetOf(uint8_t engine, bool nesting) {
  if (engine == kGvisorEngine) return NetKind::kVeth;
  if (engine == kMicrovmEngine) return NetKind::kTap;
  // Bridges and rules of its own need a namespace of its own, with the host's behind it.
  if (nesting) return NetKind::kVeth;
  return NetKind::kLocal;
}

}  // namespace sandbar::spawner
