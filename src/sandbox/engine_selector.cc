#include "sandbox/engine_selector.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "base/engine_table.h"

namespace sandbar::sandbox {
namespace {

using engine::EngineInfo;
using engine::RootfsFormat;

std::string Names(const std::vector<EngineInfo>& engines) {
  return fmt::format("{}", fmt::join(std::views::transform(engines, &EngineInfo::name), ", "));
}

bool Takes(const EngineInfo& engine, std::optional<RootfsFormat> snapshot) {
  return !snapshot || *snapshot == engine.format;
}

// What is on a block device, a machine of that kind has to read out.
bool Converts(const EngineInfo& to, std::optional<RootfsFormat> from, const std::vector<EngineInfo>& engines) {
  auto reads = [](const EngineInfo& e) { return e.usable && e.format == RootfsFormat::kBlock; };
  return Takes(to, from) || *from == RootfsFormat::kDir || std::ranges::any_of(engines, reads);
}

std::unexpected<Error> WrongFormat(const EngineInfo& engine, RootfsFormat snapshot) {
  return Fail(Code::kConflict,
              fmt::format("the snapshot has the format \"{}\", the engine {} takes \"{}\", and nothing "
                          "on this server can convert it",
                          FormatName(snapshot), engine.name, FormatName(engine.format)));
}

// A guest with a kernel of its own asks no more of the host's when it runs containers. One that shares it gets
// namespaces, mounts and firewall rules within reach, and that is less than any class promises.
int ClassOf(const EngineInfo& engine, bool nesting) {
  const bool shares = engine.isolation_class == 1 && !engine.emulated;
  return nesting && shares ? 0 : engine.isolation_class;
}

}  // namespace

std::string_view FormatName(RootfsFormat format) {
  return format == RootfsFormat::kBlock ? "block" : "dir";
}

Result<EngineSelector> EngineSelector::Make(std::vector<EngineInfo> engines, const std::string& plain,
                                            const Config& config) {
  EngineSelector selector;
  // An emulator was never meant to hold hostile code, whatever runs in it: its class is the operator's to give.
  for (EngineInfo& e : engines)
    if (e.emulated) e.isolation_class = config.allow_tcg_as_class3 ? 3 : 1;
  for (EngineInfo& e : engines)
    if (ClassOf(e, true) == 0 && e.no_nesting.empty() && !config.allow_nesting_on_class1)
      e.no_nesting = "it shares the host's kernel; the operator has to set allow_nesting_on_class1 = true";
  selector.engines_ = std::move(engines);
  std::string wanted = config.isolation;
  if (wanted == "auto") {
    auto strong = [](const EngineInfo& e) { return e.usable && e.isolation_class == 3 && !e.emulated; };
    auto vm = std::ranges::find_if(selector.engines_, strong);
    wanted = vm == selector.engines_.end() ? plain : vm->name;
  }
  const EngineInfo* chosen = selector.Find(wanted);
  if (chosen == nullptr)
    return Fail(Code::kUnsupported, fmt::format("isolation = \"{}\": there is no such engine here; there are: auto, {}",
                                                wanted, Names(selector.engines_)));
  if (!chosen->usable)
    return Fail(Code::kUnsupported, fmt::format("isolation = \"{}\" cannot be used here: {}", wanted, chosen->why_not));
  selector.default_ = static_cast<size_t>(chosen - selector.engines_.data());
  return selector;
}

const EngineInfo* EngineSelector::Find(std::string_view name) const {
  auto it = std::ranges::find(engines_, name, &EngineInfo::name);
  return it == engines_.end() ? nullptr : &*it;
}

EngineInfo EngineSelector::Of(const std::string& name, bool nesting) const {
  if (const EngineInfo* found = Find(name)) {
    EngineInfo info = *found;
    info.isolation_class = ClassOf(info, nesting);
    return info;
  }
  EngineInfo unknown = default_engine();
  unknown.name = name;
  unknown.isolation_class = 0;
  return unknown;
}

const EngineInfo* EngineSelector::Lowest(int min_class, std::optional<RootfsFormat> snapshot) const {
  const EngineInfo* lowest = nullptr;
  // Between equals the one with hardware behind it.
  auto rank = [](const EngineInfo& e) { return 2 * e.isolation_class + (e.emulated ? 1 : 0); };
  for (const EngineInfo& e : engines_) {
    if (!e.usable || e.isolation_class < min_class || !Takes(e, snapshot)) continue;
    if (lowest == nullptr || rank(e) < rank(*lowest)) lowest = &e;
  }
  return lowest;
}

Result<EngineInfo> EngineSelector::PickNamed(const store::IsolationDemand& demand) const {
  const EngineInfo* engine = Find(demand.engine);
  if (engine == nullptr)
    return Fail(Code::kBadRequest, fmt::format("isolation.engine: there is no engine \"{}\"; this server knows {}",
                                               demand.engine.substr(0, 64), Names(engines_)));
  if (!engine->usable)
    return Fail(Code::kUnsupported,
                fmt::format("isolation.engine: {} cannot be used on this server: {}", engine->name, engine->why_not));
  if (demand.nesting && !engine->no_nesting.empty())
    return Fail(Code::kUnsupported,
                fmt::format("nesting: not with the engine {}: {}", engine->name, engine->no_nesting));
  EngineInfo info = Of(engine->name, demand.nesting);
  if (info.isolation_class < demand.min_class)
    return Fail(Code::kUnsupported,
                fmt::format("isolation: the engine {} has class {}{}, and class {} is demanded", info.name,
                            info.isolation_class, demand.nesting ? " with nesting" : "", demand.min_class));
  return info;
}

std::unexpected<Error> EngineSelector::NoneOfClass(int min_class) const {
  std::string why;
  for (const EngineInfo& e : engines_) {
    const bool emulated = e.emulated && e.usable;
    if (e.isolation_class < min_class && !emulated) continue;
    why += why.empty() ? ": " : "; ";
    why += emulated ? fmt::format(
                          "{} is only emulated here, which is no security boundary, and counts as class {} "
                          "(unless the operator sets allow_tcg_as_class3)",
                          kMicrovm.name, e.isolation_class)
                    : e.name + ": " + e.why_not;
  }
  if (why.empty()) why = ": it knows only " + Names(engines_);
  return Fail(Code::kUnsupported,
              fmt::format("isolation.minClass: nothing of class {} can be used on this server{}", min_class, why));
}

const EngineInfo* EngineSelector::LowestNesting(int min_class, std::optional<RootfsFormat> snapshot) const {
  auto suits = [&](const EngineInfo& e, int least) {
    return e.usable && e.no_nesting.empty() && ClassOf(e, true) >= least && Takes(e, snapshot);
  };
  if (suits(default_engine(), std::max(min_class, 1))) return &default_engine();
  const EngineInfo* lowest = nullptr;
  for (const EngineInfo& e : engines_) {
    if (!suits(e, std::max(min_class, 2))) continue;
    if (lowest == nullptr || e.isolation_class < lowest->isolation_class) lowest = &e;
  }
  if (lowest != nullptr || min_class > 0) return lowest;
  auto shared =
      std::ranges::find_if(engines_, [&](const EngineInfo& e) { return suits(e, 0) && ClassOf(e, true) == 0; });
  return shared == engines_.end() ? nullptr : &*shared;
}

Result<EngineInfo> EngineSelector::PickNesting(const store::IsolationDemand& demand,
                                               std::optional<RootfsFormat> snapshot) const {
  if (const EngineInfo* found = LowestNesting(demand.min_class, snapshot)) return Of(found->name, true);
  if (const EngineInfo* otherwise = LowestNesting(demand.min_class, std::nullopt))
    return WrongFormat(*otherwise, *snapshot);
  std::string why;
  for (const EngineInfo& e : engines_) {
    const std::string& reason = !e.usable ? e.why_not : e.no_nesting;
    why += why.empty() ? ": " : "; ";
    why += e.name + ": ";
    why += !reason.empty() ? reason
                           : fmt::format("has class {} with nesting, and is used when it is named (isolation.engine)",
                                         ClassOf(e, true));
  }
  return Fail(Code::kUnsupported,
              fmt::format("nesting: nothing of class {} on this server runs containers in a sandbox{}",
                          std::max(demand.min_class, 2), why));
}

Result<EngineInfo> EngineSelector::Pick(const store::IsolationDemand& demand,
                                        std::optional<RootfsFormat> snapshot) const {
  if (!demand.engine.empty()) {
    SB_TRY(EngineInfo named, PickNamed(demand));
    if (!Converts(named, snapshot, engines_)) return WrongFormat(named, *snapshot);
    return named;
  }
  if (demand.nesting) return PickNesting(demand, snapshot);
  if (default_engine().isolation_class >= demand.min_class && Takes(default_engine(), snapshot))
    return default_engine();
  if (const EngineInfo* lowest = Lowest(demand.min_class, snapshot)) return *lowest;
  const EngineInfo* otherwise = Lowest(demand.min_class, std::nullopt);
  if (otherwise == nullptr) return NoneOfClass(demand.min_class);
  const EngineInfo& other = default_engine().isolation_class >= demand.min_class ? default_engine() : *otherwise;
  if (!Converts(other, snapshot, engines_)) return WrongFormat(other, *snapshot);
  return other;
}

bool Meets(const store::IsolationDemand& demand, const std::string& engine, int isolation_class, bool nesting) {
  return isolation_class >= demand.min_class && (demand.engine.empty() || demand.engine == engine) &&
         (nesting || !demand.nesting);
}

Result<int> TaggedClass(const std::map<std::string, std::string>& tags) {
  auto it = tags.find(kMinClassTag);
  if (it == tags.end()) return 0;
  const std::string& value = it->second;
  if (value.size() == 1 && value[0] >= '1' && value[0] <= '3') return value[0] - '0';
  return Fail(Code::kBadRequest, fmt::format("tags.{}: \"1\", \"2\" or \"3\"", kMinClassTag));
}

}  // namespace sandbar::sandbox
