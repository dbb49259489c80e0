// A machine's interceptor that learns its owner later: pools boot machines before they belong to a session. It is built
// on first use, because most machines never need one. Single loop; owned by the ConnectedMachine.
#pragma once

#include <memory>
#include <string>

#include "egress/intercept.h"

namespace sandbar::sandbox {

class MachineInterceptor final : public egress::Interceptor {
 public:
  explicit MachineInterceptor(asio::any_io_executor ex) : ex_(std::move(ex)) {}

  // Once, before any policy that needs it is in force.
  void Identify(egress::InterceptorOptions options) { options_ = std::move(options); }

  Task<> Serve(egress::InterceptJob job) override {
    SB_CO_TRYV(Ready());
    co_return co_await inner_->Serve(std::move(job));
  }
  std::string CaCertificate(const egress::CompiledPolicy& policy) override {
    return Ready() ? inner_->CaCertificate(policy) : std::string();
  }

 private:
  Result<> Ready() {
    if (inner_) return {};
    if (options_.seed.empty()) return Fail(Code::kInternal, "a machine without an owner has no interceptor");
    SB_TRY(inner_, egress::MakeInterceptor(ex_, std::move(options_)));
    return {};
  }

  asio::any_io_executor ex_;
  egress::InterceptorOptions options_;
  std::unique_ptr<egress::Interceptor> inner_;
};

}  // namespace sandbar::sandbox
