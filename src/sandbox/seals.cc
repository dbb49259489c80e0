#include "sandbox/seals.h"

#include "base/log.h"

namespace sandbar::sandbox {
namespace {

constexpr const char* kNote = "seals";
constexpr const char* kBoundToIds = "bound to ids";
constexpr int kPageSize = 50;

// Teams and projects come from callers: the separator is one that no JSON string of ours may have.
std::string FormerSealOwner(const store::Sandbox& sandbox) {
  return "sandbox" + std::string(1, '\0') + sandbox.team + '\0' + sandbox.project + '\0' + sandbox.name;
}

enum class Binding { kId, kName, kUnknown };

// Of one sealed text; kName: it is sealed anew for the id.
Binding Bind(const Vault& vault, const store::Sandbox& sandbox, std::string& sealed) {
  const std::string owner = SealOwner(sandbox);
  if (vault.Open(sealed, owner)) return Binding::kId;
  auto text = vault.Open(sealed, FormerSealOwner(sandbox));
  if (!text) return Binding::kUnknown;
  sealed = vault.Seal(*text, owner);
  return Binding::kName;
}

struct Found {
  bool changed = false, unknown = false;
  void Add(Binding binding) {
    changed |= binding == Binding::kName;
    unknown |= binding == Binding::kUnknown;
  }
};

Found BindAll(const Vault& vault, store::Sandbox& sandbox) {
  Found found;
  auto env = sandbox.env.find("");  // as Vault::SealEnv writes them
  if (env != sandbox.env.end()) found.Add(Bind(vault, sandbox, env->second));
  if (sandbox.network && !sandbox.network->sealed.empty()) found.Add(Bind(vault, sandbox, sandbox.network->sealed));
  return found;
}

}  // namespace

std::string SealOwner(const store::Sandbox& sandbox) {
  return "sandbox id" + std::string(1, '\0') + sandbox.id;
}

std::string SealOwner(const store::Session& session) {
  return "session" + std::string(1, '\0') + session.id;
}

Result<> BindSealsToIds(store::Store& store, const Vault& vault) {
  SB_TRY(auto notes, store.Notes(kNote));
  if (notes.contains(kNote) && notes[kNote] == kBoundToIds) return {};
  size_t bound = 0, unknown = 0;
  store::ListFilter filter{.limit = kPageSize};
  do {
    SB_TRY(auto page, store.ListSandboxes(filter));
    for (store::Sandbox& sandbox : page.items) {
      const Found found = BindAll(vault, sandbox);
      unknown += found.unknown ? 1 : 0;
      if (!found.changed) continue;
      auto edit = [&vault](store::Sandbox& row) -> Result<> {
        BindAll(vault, row);
        return {};
      };
      SB_TRYV(store.EditSandbox(store::KeyOf(sandbox), edit));
      ++bound;
    }
    filter.cursor = page.next;
  } while (!filter.cursor.empty());
  if (bound > 0) log::Info("secrets of {} sandboxes were bound to names and are bound to ids now", bound);
  if (unknown == 0) return store.SetNote(kNote, kBoundToIds);
  log::Warn("secrets of {} sandboxes do not open with secrets.key; the next start tries again", unknown);
  return {};
}

}  // namespace sandbar::sandbox
