#include "egress/intercept.h"

#include "egress/intercept_connection.h"

namespace sandbar::egress {

namespace {

class MachineInterceptor final : public Interceptor {
 public:
  explicit MachineInterceptor(InterceptShared shared) : shared_(std::move(shared)) {}

  Task<> Serve(InterceptJob job) override {
    SB_CHECK(job.guest != nullptr && job.state != nullptr && job.policy != nullptr);
    InterceptConnection connection(std::move(job), &shared_);
    auto served = co_await UntilCancelled(connection.Run());
    co_return served;
  }
  std::string CaCertificate(const CompiledPolicy& policy) override { return shared_.ca->CertificateFor(policy); }

 private:
  InterceptShared shared_;
};

}  // namespace

Result<std::unique_ptr<Interceptor>> MakeInterceptor(const asio::any_io_executor& ex, InterceptorOptions options) {
  InterceptShared shared;
  shared.turn = std::make_unique<InterceptShared::Turn>(ex);
  SB_TRY(shared.ca, MachineCa::Make(options.seed));
  shared.options = std::move(options);
  return std::make_unique<MachineInterceptor>(std::move(shared));
}

}  // namespace sandbar::egress
