#include "spawner/launch.h"

namespace sandbar::spawner {

Result<std::unique_ptr<Launch>> MakeLaunch(uint8_t engine) {
  if (engine == kNamespacesEngine) return NamespacesLaunch();
  if (engine == kGvisorEngine) return GvisorLaunch();
  if (engine == kMicrovmEngine) return NewMicrovmLaunch();
  return Fail(Code::kUnsupported, "there is no such engine");
}

NetKind NetOf(uint8_t engine) {
  if (engine == kGvisorEngine) return NetKind::kVeth;
  if (engine == kMicrovmEngine) return NetKind::kTap;
  return NetKind::kLocal;
}

}  // namespace sandbar::spawner
