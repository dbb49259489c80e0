// Picks the engine of a machine. Engines have isolation classes 1 to 3. A sandbox may demand a class or an engine; it
// gets that or more, or a refusal that says what is missing. It never gets less. Values, made once at start; any
// thread.
//
//   SB_TRY(EngineSelector selector, EngineSelector::Make(engine.engines(), engine.info().name, config));
//   SB_TRY(engine::EngineInfo engine, selector.Pick({.min_class = 3}, std::nullopt));
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/values.h"
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
  // For sandboxes that demand nothing.
  const engine::EngineInfo& default_engine() const { return engines_[default_]; }
  // The engine of this name, with the class of its machines; class 0 when this server does not know the engine.
  engine::EngineInfo Of(const std::string& name, bool nesting = false) const;

  // `snapshot`: the format of the snapshot that the machine boots from. kBadRequest for an unknown engine, kUnsupported
  // when no engine here meets the demand, kConflict when only the snapshot's format prevents it. Without a demand for
  // an engine, an engine that takes the snapshot without conversion comes first.
  Result<engine::EngineInfo> Pick(const store::IsolationDemand& demand,
                                  std::optional<engine::RootfsFormat> snapshot) const;

 private:
  const engine::EngineInfo* Find(std::string_view name) const;
  const engine::EngineInfo* Lowest(int min_class, std::optional<engine::RootfsFormat> snapshot) const;
  Result<engine::EngineInfo> PickNamed(const store::IsolationDemand& demand) const;
  // For sandboxes that run containers: class 2 at least, or the default engine if its guests have their own kernel. An
  // engine that shares the host's kernel only where the operator allows it, as class 0.
  const engine::EngineInfo* LowestNesting(int min_class, std::optional<engine::RootfsFormat> snapshot) const;
  Result<engine::EngineInfo> PickNesting(const store::IsolationDemand& demand,
                                         std::optional<engine::RootfsFormat> snapshot) const;
  std::unexpected<Error> NoneOfClass(int min_class) const;

  std::vector<engine::EngineInfo> engines_;
  size_t default_ = 0;
};

// Whether a machine of this engine and class meets the demand.
bool Meets(const store::IsolationDemand& demand, const std::string& engine, int isolation_class, bool nesting);
// The class that the tag demands; 0: none. kBadRequest for a value that is no class.
Result<int> TaggedClass(const std::map<std::string, std::string>& tags);

}  // namespace sandbar::sandbox
