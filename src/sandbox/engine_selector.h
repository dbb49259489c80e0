// Which engine a machine gets. The engines stand on rungs (classes 1 to 3); a sandbox may demand a rung or an engine,
// and gets that or more, or is refused with what is missing: never less. Values, made once at start; any thread.
//
//   SB_TRY(EngineSelector selector, EngineSelector::Make(engine.engines(), engine.info().name, config));
//   SB_TRY(engine::EngineInfo engine, selector.Pick({.min_class = 3}, std::nullopt));
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "sandbox/config.h"
#include "store/records.h"

namespace sandbar::sandbox {

// A tag that demands a class, for clients that can send nothing else.
inline constexpr char kMinClassTag[] = "sandbar:min-isolation";

std::string_view FormatName(engine::RootfsFormat format);  // "dir" | "block"

class EngineSelector {
 public:
  // kUnsupported when the engine that the operator chose cannot be used here. `plain`: what "auto" means without KVM.
  static Result<EngineSelector> Make(std::vector<engine::EngineInfo> engines, const std::string& plain,
                                     const Config& config);

  const std::vector<engine::EngineInfo>& engines() const { return engines_; }
  // The one that sandboxes get which demand nothing.
  const engine::EngineInfo& default_engine() const { return engines_[default_]; }
  // Of this name, with the class that its machines have; of class 0 when it is not known any more.
  engine::EngineInfo Of(const std::string& name, bool nesting = false) const;

  // `snapshot`: the format of what the machine is to stand on. kBadRequest for an engine that nobody knows,
  // kUnsupported when nothing here meets the demand, kConflict when only the snapshot's format stands in the way.
  // Without a demand for an engine, one that can stand on the snapshot as it is comes first.
  Result<engine::EngineInfo> Pick(const store::IsolationDemand& demand,
                                  std::optional<engine::RootfsFormat> snapshot) const;

 private:
  const engine::EngineInfo* Find(std::string_view name) const;
  const engine::EngineInfo* Lowest(int min_class, std::optional<engine::RootfsFormat> snapshot) const;
  Result<engine::EngineInfo> PickNamed(const store::IsolationDemand& demand) const;
  // Containers: of class 2 at least, or what the server uses anyway if it brings its own kernel; what shares the
  // host's only where the operator allows it, as class 0.
  const engine::EngineInfo* LowestNesting(int min_class, std::optional<engine::RootfsFormat> snapshot) const;
  Result<engine::EngineInfo> PickNesting(const store::IsolationDemand& demand,
                                         std::optional<engine::RootfsFormat> snapshot) const;
  std::unexpected<Error> NoneOfClass(int min_class) const;

  std::vector<engine::EngineInfo> engines_;
  size_t default_ = 0;
};

// A machine of this engine and class is what was demanded, or more.
bool Meets(const store::IsolationDemand& demand, const std::string& engine, int isolation_class, bool nesting);
// The class that the tag demands; 0: none. kBadRequest for a value that is no class.
Result<int> TaggedClass(const std::map<std::string, std::string>& tags);

}  // namespace sandbar::sandbox
