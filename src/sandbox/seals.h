// Whom the sealed values in rows are bound to (vault.h): a sandbox's variables and policy to the sandbox's id, a
// session's policy to the session's id. A value that somebody copies into another row does not open there, also not in
// the row of another sandbox that has the same name.
//
// Earlier servers bound the values of sandboxes to names. BindSealsToIds seals those anew, once, before anything else
// opens them; from then on a value that is bound to a name is a foreign one.
#pragma once

#include <string>

#include "sandbox/vault.h"
#include "store/store.h"

namespace sandbar::sandbox {

std::string SealOwner(const store::Sandbox& sandbox);
std::string SealOwner(const store::Session& session);

// Runs on the store's thread, at start. A note in the journal says when every value has been bound to an id; until then
// each start tries again, because a value that does not open with today's key may open with the right one.
Result<> BindSealsToIds(store::Store& store, const Vault& vault);

}  // namespace sandbar::sandbox
