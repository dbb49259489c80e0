// Builds the Service on top of interfaces: an engine, a store, an image catalog. The one public door of sandbox/
// besides service.h. Single loop; the store's calls and blocking file work run on two small pools that it owns.
//
//   auto domain = MakeService(ex, config, parts);
//   co_await (*domain)->Start();     // recovery: after it every live machine is attached, then let the API answer
//   …
//   co_await (*domain)->Close();     // lets go of the machines; they go on and the next Start finds them
#pragma once

#include <memory>
#include <string>

#include "egress/egress.h"
#include "egress/intercept.h"
#include "engine/engine.h"
#include "images/images.h"
#include "sandbox/config.h"
#include "sandbox/service.h"
#include "store/store.h"

namespace sandbar::sandbox {

// All outlive the domain.
struct Parts {
  engine::Engine* engine = nullptr;
  store::Store* store = nullptr;
  const images::Catalog* images = nullptr;
  const egress::EgressConfig* egress = nullptr;
  std::string secret;  // seals what is stored and must not be read; at least 32 bytes, the same at every start
  egress::ForwardSigner* signer = nullptr;  // null: rules that forward answer 502
  std::string upstream_ca;                  // PEM file of authorities besides the system's, for what the proxy dials
};

class Domain : public Service {
 public:
  virtual Task<> Start() = 0;
  // Stops every session (as "server stopped") and empties the pools: for an embedded server that leaves nothing behind.
  virtual Task<> StopAll() = 0;
  // Cancels and joins everything. No calls of Service may be pending. Await before destruction.
  virtual asio::awaitable<void> Close() = 0;
};

Result<std::unique_ptr<Domain>> MakeService(asio::any_io_executor ex, Config config, Parts parts);

}  // namespace sandbar::sandbox
