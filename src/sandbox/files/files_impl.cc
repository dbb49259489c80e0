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

void FilesImpl::Place::Fill(protocol::FilePlace& frame) {
  frame.path = std::move(path);
  frame.cwd = std::move(base);
  frame.uid = user.uid;
  frame.gid = user.gid;
  frame.user = std::move(user.name);
}

Task<FilesImpl::Place> FilesImpl::Find(Scope scope, FileTarget target) {
  SB_CO_TRY(auto active, co_await records_->FindActive(std::move(scope), std::move(target.session)));
  SB_CO_TRYV(CheckPath("path", target.path));
  Place place;
  SB_CO_TRY(place.base, BaseDir(active->row(), target.cwd));
  SB_CO_TRY(place.link, active->Link());
  place.path = std::move(target.path);
  place.user = target.sudo ? engine::GuestUser{0, 0, "root"} : active->user();
  co_return place;
}

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

Task<std::unique_ptr<engine::FileStream>> FilesImpl::ReadRange(Scope scope, FileTarget target,
                                                               engine::FileRange range) {
  SB_CO_TRY(Place at, co_await Find(std::move(scope), std::move(target)));
  SB_CO_TRY(auto stream, co_await at.link->ReadFile(std::move(at.path), std::move(at.base), std::move(at.user), range));
  co_return std::make_unique<HeldFileStream>(std::move(at.link), std::move(stream));
}

Task<FileList> FilesImpl::List(Scope scope, FileTarget directory, std::string after, uint32_t limit) {
  SB_CO_TRY(Place at, co_await Find(std::move(scope), std::move(directory)));
  protocol::ListDir request;
  at.Fill(request);
  request.after = std::move(after);
  request.limit = limit + 1;  // one more, to know whether there are more
  FileList list;
  SB_CO_TRY(list.entries, co_await at.link->ListDir(std::move(request)));
  list.more = list.entries.size() > limit;
  if (list.more) list.entries.resize(limit);
  co_return list;
}

Task<protocol::FileEntry> FilesImpl::Stat(Scope scope, FileTarget target, bool follow) {
  SB_CO_TRY(Place at, co_await Find(std::move(scope), std::move(target)));
  protocol::StatFile request;
  at.Fill(request);
  request.follow = follow;
  co_return co_await at.link->StatFile(std::move(request));
}

Task<> FilesImpl::Write(Scope scope, FileTarget target, protocol::WriteFile how, engine::ByteSource* source) {
  SB_CO_TRY(Place at, co_await Find(std::move(scope), std::move(target)));
  at.Fill(how);
  co_return co_await at.link->WriteFile(std::move(how), source);
}

Task<> FilesImpl::Edit(Scope scope, FileTarget target, engine::FileEdit change) {
  SB_CO_TRY(Place at, co_await Find(std::move(scope), std::move(target)));
  std::visit([&at](auto& request) { at.Fill(request); }, change);
  if (auto* rename = std::get_if<protocol::RenameFile>(&change)) SB_CO_TRYV(CheckPath("to", rename->to));
  if (auto* link = std::get_if<protocol::MakeLink>(&change)) SB_CO_TRYV(CheckPath("target", link->target));
  co_return co_await at.link->EditFile(std::move(change));
}

}  // namespace sandbar::sandbox
