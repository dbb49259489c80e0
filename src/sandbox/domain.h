// Builds the domain on top of interfaces: an engine, a store, an image catalog. The one public door of sandbox/ besides
// roles.h. Single loop; the store's calls and blocking file work run on small pools that the domain owns.
//
//   auto domain = MakeDomain(ex, config, dependencies);
//   co_await (*domain)->Start();     // recovery: attaches every machine that still runs; then let the API answer
//   co_await (*domain)->roles().sandboxes->Create(scope, spec);
//   co_await (*domain)->Close();     // detaches from the machines; they go on and the next Start finds them
#pragma once

#include <memory>
#include <string>

#include "egress/egress.h"
#include "egress/intercept.h"
#include "engine/engine.h"
#include "images/images.h"
#include "sandbox/config.h"
#include "sandbox/roles.h"
#include "store/store.h"

namespace sandbar::sandbox {

// All outlive the domain.
struct Dependencies {
  engine::Engine* engine = nullptr;
  store::Store* store = nullptr;
  const images::Catalog* images = nullptr;
  const egress::EgressConfig* egress = nullptr;
  std::string secret;                       // seals secrets in the database; at least 32 bytes, the same at every start
  egress::ForwardSigner* signer = nullptr;  // null: rules that forward answer 502
  std::string upstream_ca;                  // PEM file of authorities besides the system's, for what the proxy dials
};

class Domain {
 public:
  virtual ~Domain() = default;
  virtual const Roles& roles() const = 0;
  virtual Task<> Start() = 0;
  // Stops every session (as "server stopped") and empties the pools: for an embedded server that leaves nothing behind.
  virtual Task<> StopAll() = 0;
  // Cancels and joins everything. No call of a role may be pending. Await before destruction.
  virtual asio::awaitable<void> Close() = 0;
};

Result<std::unique_ptr<Domain>> MakeDomain(asio::any_io_executor ex, Config config, Dependencies dependencies);

}  // namespace sandbar::sandbox
