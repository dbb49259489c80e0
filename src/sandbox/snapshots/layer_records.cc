#include "sandbox/snapshots/layer_records.h"

#include <algorithm>
#include <map>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/owner.h"

namespace sandbar::sandbox {

namespace {

constexpr const char* kBootNote = "boot";
constexpr int kPageSize = 50;

bool StandsOn(const store::Snapshot& snapshot, const std::string& layer) {
  return std::ranges::find(snapshot.snapshot_layers, layer) != snapshot.snapshot_layers.end();
}

// Those that somebody can ask for, and whose they are.
Result<std::map<std::string, std::string>> LivingLayers(store::Store& store) {
  SB_TRY(auto all, store.AllSnapshots());
  std::map<std::string, std::string> layers;
  for (const store::Snapshot& s : all) {
    if (s.deleted) continue;
    for (const std::string& layer : s.snapshot_layers) layers.emplace(layer, OwnerOf(s));
  }
  return layers;
}

void Summarise(store::Snapshot& s, const std::map<std::string, store::Layer>& layers) {
  s.durable_at = s.verified_at = 0;
  s.damage.clear();
  bool durable = true;
  for (const std::string& name : s.snapshot_layers) {
    auto it = layers.find(name);
    const store::Layer layer = it == layers.end() ? store::Layer{} : it->second;
    durable = durable && layer.durable_at != 0;
    s.durable_at = std::max(s.durable_at, layer.durable_at);
    s.verified_at = s.verified_at == 0 ? layer.verified_at : std::min(s.verified_at, layer.verified_at);
    if (s.damage.empty() && !layer.damage.empty()) s.damage = "layer " + name + ": " + layer.damage;
  }
  if (!durable) s.durable_at = s.verified_at = 0;
  if (s.snapshot_layers.empty()) return;
  auto own = layers.find(s.snapshot_layers.front());
  if (own != layers.end() && own->second.durable_at != 0) s.size_bytes = own->second.bytes;
}

Result<> Tell(store::Store& store, const store::Sandbox& sandbox, std::string text) {
  log::Error("sandbox {}: {}", sandbox.name, text);
  return store.AddNotice({NowMs(), sandbox.team, sandbox.project, sandbox.name, std::move(text)});
}

template <class F>
Result<> EachSandbox(store::Store& store, F f) {
  store::ListFilter filter{.limit = kPageSize};
  do {
    SB_TRY(auto page, store.ListSandboxes(filter));
    for (const store::Sandbox& sandbox : page.items) SB_TRYV(f(sandbox));
    filter.cursor = page.next;
  } while (!filter.cursor.empty());
  return {};
}

// The nearest ancestor that can be booted from; empty: none.
Result<std::string> GoodAncestor(store::Store& store, const store::Snapshot& of) {
  std::string at = of.parent;
  while (!at.empty()) {
    SB_TRY(auto found, store.FindSnapshot(at));
    if (!found) return std::string();
    if (!found->deleted && found->damage.empty()) return at;
    at = found->parent;
  }
  return std::string();
}

}  // namespace

Result<bool> IsLiving(store::Store& store, const std::string& layer) {
  SB_TRY(auto living, LivingLayers(store));
  return living.contains(layer);
}

Result<std::string> OwnerOfLayer(store::Store& store, const std::string& layer) {
  SB_TRY(auto living, LivingLayers(store));
  auto it = living.find(layer);
  return it == living.end() ? std::string() : it->second;
}

Result<LayerToRead> NextToSeal(store::Store& store, const NotThese& except) {
  SB_TRY(auto living, LivingLayers(store));
  SB_TRY(auto known, store.AllLayers());
  for (const store::Layer& layer : known) living.erase(layer.name);
  LayerToRead best;
  // Owners take turns, however many layers one of them has.
  auto turn = [&](const std::string& owner) { return std::pair(owner <= except.after, owner); };
  for (const auto& [name, owner] : living) {
    if (except.layers.contains(name) || except.owners.contains(owner)) continue;
    if (best.name.empty() || turn(owner) < turn(best.owner)) best = {name, owner};
  }
  return best;
}

Result<LayerToRead> NextToScrub(store::Store& store, int64_t limit, const NotThese& except) {
  SB_TRY(auto living, LivingLayers(store));
  SB_TRY(auto known, store.AllLayers());
  const store::Layer* oldest = nullptr;
  for (const store::Layer& layer : known) {
    auto it = living.find(layer.name);
    if (it == living.end() || except.layers.contains(layer.name) || except.owners.contains(it->second)) continue;
    const bool due = layer.durable_at != 0 && layer.damage.empty() && layer.verified_at < limit;
    if (due && (oldest == nullptr || layer.verified_at < oldest->verified_at)) oldest = &layer;
  }
  return oldest == nullptr ? LayerToRead{} : LayerToRead{oldest->name, living[oldest->name]};
}

Result<> NoteLayer(store::Store& store, const store::Layer& layer) {
  SB_TRYV(store.SaveLayer(layer));
  SB_TRY(auto known, store.AllLayers());
  std::map<std::string, store::Layer> layers;
  for (store::Layer& l : known) layers[l.name] = l;
  SB_TRY(auto all, store.AllSnapshots());
  for (const store::Snapshot& s : all) {
    if (s.deleted || !StandsOn(s, layer.name)) continue;
    auto edit = [&](store::Snapshot& row) -> Result<> {
      Summarise(row, layers);
      return {};
    };
    SB_TRYV(store.EditSnapshot(s.id, edit));
  }
  return {};
}

Result<> FallBack(store::Store& store, const std::string& layer) {
  return EachSandbox(store, [&](const store::Sandbox& sandbox) -> Result<> {
    if (sandbox.current_snapshot.empty()) return {};
    SB_TRY(auto head, store.FindSnapshot(sandbox.current_snapshot));
    if (!head || head->deleted || !StandsOn(*head, layer)) return {};
    SB_TRY(std::string good, GoodAncestor(store, *head));
    if (good.empty())
      return Tell(store, sandbox, "snapshot " + head->id + " is damaged and has no good ancestor: " + head->damage);
    auto edit = [&](store::Sandbox& row) -> Result<> {
      row.current_snapshot = good;
      row.updated_at = NowMs();
      return {};
    };
    SB_TRYV(store.EditSandbox(store::KeyOf(sandbox), edit));
    return Tell(store, sandbox,
                "snapshot " + head->id + " is damaged (" + head->damage + "): the next session starts from " + good +
                    ", what was written after it is lost");
  });
}

Result<> CheckAfterStart(store::Store& store, const std::set<std::string>& on_disk, const std::string& boot) {
  SB_TRY(auto living, LivingLayers(store));
  for (const auto& [name, owner] : living) {
    if (on_disk.contains(name)) continue;
    SB_TRY(auto known, store.FindLayer(name));
    if (known && !known->damage.empty()) continue;
    store::Layer layer = known.value_or(store::Layer{.name = name});
    layer.damage = "it is not on this host's disk any more";
    SB_TRYV(NoteLayer(store, layer));
    SB_TRYV(FallBack(store, name));
  }
  SB_TRY(auto before, store.Notes(kBootNote));
  if (before.contains(kBootNote) && before[kBootNote] != boot) {
    SB_TRYV(EachSandbox(store, [&](const store::Sandbox& sandbox) -> Result<> {
      SB_TRY(auto head, store.FindSnapshot(sandbox.current_snapshot));
      if (!head || head->deleted || head->durable_at != 0 || !head->damage.empty()) return {};
      return Tell(store, sandbox,
                  "snapshot " + head->id +
                      " had not become durable when the host went down: what was written in its last seconds may be "
                      "incomplete");
    }));
  }
  return store.SetNote(kBootNote, boot);
}

}  // namespace sandbar::sandbox
