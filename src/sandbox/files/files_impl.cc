#include "sandbox/files/files_impl.h"

#include "sandbox/validate.h"

namespace sandbar::sandbox {
namespace {

// Where relative paths of a request start: its own cwd, itself relative to the session's.
Result<std::string> BaseDir(const store::Session& session, const std::optional<std::string>& cwd) {
  if (!cwd) return session.cwd;
  SB_TRYV(CheckPath("cwd", *cwd));
  return Resolve(session.cwd, *cwd);
}

// Keeps the link alive for as long as someone reads from it, also past the session's end.
class HeldFileStream final : public engine::FileStream {
 public:
  HeldFileStream(std::shared_ptr<engine::GuestLink> link, std::unique_ptr<engine::FileStream> stream)
      : link_(std::move(link)), stream_(std::move(stream)) {}
  Task<std::string> Next() override { return stream_->Next(); }

 private:
  std::shared_ptr<engine::GuestLink> link_;
  std::unique_ptr<engine::FileStream> stream_;  // after the link: goes first
};

}  // namespace

Task<std::unique_ptr<engine::FileStream>> FilesImpl::Read(Scope scope, std::string session, std::string path,
                                                          std::optional<std::string> cwd) {
  SB_CO_TRY(auto active, co_await records_->FindActive(std::move(scope), std::move(session)));
  SB_CO_TRYV(CheckPath("path", path));
  SB_CO_TRY(auto base, BaseDir(active->row(), cwd));
  SB_CO_TRY(auto link, active->Link());
  auto user = active->user();
  SB_CO_TRY(auto stream, co_await link->ReadFile(std::move(path), std::move(base), std::move(user)));
  co_return std::make_unique<HeldFileStream>(std::move(link), std::move(stream));
}

Task<> FilesImpl::WriteTar(Scope scope, std::string session, std::optional<std::string> cwd,
                           engine::ByteSource* source) {
  SB_CO_TRY(auto active, co_await records_->FindActive(std::move(scope), std::move(session)));
  SB_CO_TRY(auto base, BaseDir(active->row(), cwd));
  SB_CO_TRY(auto link, active->Link());
  auto user = active->user();
  co_return co_await link->WriteTar(std::move(base), std::move(user), source);
}

Task<> FilesImpl::MakeDir(Scope scope, std::string session, std::string path, std::optional<std::string> cwd,
                          bool recursive) {
  SB_CO_TRY(auto active, co_await records_->FindActive(std::move(scope), std::move(session)));
  SB_CO_TRYV(CheckPath("path", path));
  SB_CO_TRY(auto base, BaseDir(active->row(), cwd));
  SB_CO_TRY(auto link, active->Link());
  auto user = active->user();
  co_return co_await link->MakeDir(std::move(path), std::move(base), std::move(user), recursive);
}

}  // namespace sandbar::sandbox
