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

 private:
  Records* records_;
};

}  // namespace sandbar::sandbox
