// The role Files: passes requests on to the agent of a running machine. Single loop; owned by the domain.
#pragma once

#include "sandbox/files/files.h"
#include "sandbox/records.h"

namespace sandbar::sandbox {

class FilesImpl final : public Files {
 public:
  explicit FilesImpl(Records* records) : records_(records) {}

  Task<std::unique_ptr<engine::FileStream>> Read(Scope scope, std::string session, std::string path,
                                                 std::optional<std::string> cwd) override;
  Task<> WriteTar(Scope scope, std::string session, std::optional<std::string> cwd,
                  engine::ByteSource* source) override;
  Task<> MakeDir(Scope scope, std::string session, std::string path, std::optional<std::string> cwd,
                 bool recursive) override;
  Task<std::unique_ptr<engine::FileStream>> ReadRange(Scope scope, FileTarget target, engine::FileRange range) override;
  Task<FileList> List(Scope scope, FileTarget directory, std::string after, uint32_t limit) override;
  Task<protocol::FileEntry> Stat(Scope scope, FileTarget target, bool follow) override;
  Task<> Write(Scope scope, FileTarget target, protocol::WriteFile how, engine::ByteSource* source) override;
  Task<> Edit(Scope scope, FileTarget target, engine::FileEdit change) override;

 private:
  struct Place {
    std::shared_ptr<engine::GuestLink> link;
    std::string path, base;
    engine::GuestUser user;
    void Fill(protocol::FilePlace& frame);
  };
  Task<Place> Find(Scope scope, FileTarget target);

  Records* records_;
};

}  // namespace sandbar::sandbox
