// For the time being: the roles as faces of one object. Each goes when its own class takes over.
#pragma once

#include "sandbox/service_impl.h"

namespace sandbar::sandbox {

class SandboxesFace final : public Sandboxes {
 public:
  explicit SandboxesFace(ServiceImpl* impl) : impl_(impl) {}
  Task<SandboxView> Create(Scope scope, CreateSpec spec) override {
    return impl_->Create(std::move(scope), std::move(spec));
  }
  Task<SandboxView> Get(Scope scope, std::string name, bool resume) override {
    return impl_->Get(std::move(scope), std::move(name), resume);
  }
  Task<Page<store::Sandbox>> List(Scope scope, ListQuery query) override {
    return impl_->List(std::move(scope), std::move(query));
  }
  Task<store::Sandbox> Update(Scope scope, std::string name, UpdateSpec spec) override {
    return impl_->Update(std::move(scope), std::move(name), std::move(spec));
  }
  Task<store::Sandbox> Delete(Scope scope, std::string name, bool orphan_snapshots) override {
    return impl_->Delete(std::move(scope), std::move(name), orphan_snapshots);
  }
  Task<SandboxView> Fork(Scope scope, std::string name, ForkSpec spec) override {
    return impl_->Fork(std::move(scope), std::move(name), std::move(spec));
  }
  Task<SandboxView> Pause(Scope scope, std::string name) override {
    return impl_->Pause(std::move(scope), std::move(name));
  }
  Task<SandboxView> Resume(Scope scope, std::string name, ResumeFrom from) override {
    return impl_->Resume(std::move(scope), std::move(name), from);
  }
  Task<std::vector<store::ProjectUsage>> Usage(Scope scope) override { return impl_->Usage(std::move(scope)); }
  Task<std::vector<store::Notice>> Notices(Scope scope, std::string name) override {
    return impl_->Notices(std::move(scope), std::move(name));
  }

 private:
  ServiceImpl* impl_;
};

class SessionsFace final : public Sessions {
 public:
  explicit SessionsFace(ServiceImpl* impl) : impl_(impl) {}
  std::shared_ptr<void> Use(const Scope& scope, const std::string& session) override {
    return impl_->Use(scope, session);
  }
  std::optional<store::Session> Running(const std::string& session) const override { return impl_->Running(session); }
  Task<Page<store::Session>> List(Scope scope, ListQuery query) override {
    return impl_->ListSessions(std::move(scope), std::move(query));
  }
  Task<SandboxView> Get(Scope scope, std::string session) override {
    return impl_->GetSession(std::move(scope), std::move(session));
  }
  Task<SandboxView> Stop(Scope scope, std::string session) override {
    return impl_->Stop(std::move(scope), std::move(session));
  }
  Task<store::Session> ExtendTimeout(Scope scope, std::string session, int64_t duration_ms) override {
    return impl_->ExtendTimeout(std::move(scope), std::move(session), duration_ms);
  }
  Task<store::Session> SetNetwork(Scope scope, std::string session, egress::NetworkPolicy policy) override {
    return impl_->SetNetwork(std::move(scope), std::move(session), std::move(policy));
  }
  Task<NetworkView> Network(Scope scope, std::string session) override {
    return impl_->Network(std::move(scope), std::move(session));
  }

 private:
  ServiceImpl* impl_;
};

class CommandsFace final : public Commands {
 public:
  explicit CommandsFace(ServiceImpl* impl) : impl_(impl) {}
  Task<StartedCommand> Start(Scope scope, std::string session, CommandSpec spec) override {
    return impl_->StartCommand(std::move(scope), std::move(session), std::move(spec));
  }
  Task<store::Command> Get(Scope scope, std::string session, std::string command) override {
    return impl_->GetCommand(std::move(scope), std::move(session), std::move(command));
  }
  Task<store::Command> Wait(Scope scope, std::string session, std::string command) override {
    return impl_->WaitCommand(std::move(scope), std::move(session), std::move(command));
  }
  Task<std::vector<store::Command>> List(Scope scope, std::string session) override {
    return impl_->ListCommands(std::move(scope), std::move(session));
  }
  Task<store::Command> Kill(Scope scope, std::string session, std::string command, int signal) override {
    return impl_->KillCommand(std::move(scope), std::move(session), std::move(command), signal);
  }
  Task<std::unique_ptr<LogReader>> OpenLog(Scope scope, std::string session, std::string command) override {
    return impl_->OpenLog(std::move(scope), std::move(session), std::move(command));
  }

 private:
  ServiceImpl* impl_;
};

class FilesFace final : public Files {
 public:
  explicit FilesFace(ServiceImpl* impl) : impl_(impl) {}
  Task<std::unique_ptr<engine::FileStream>> Read(Scope scope, std::string session, std::string path,
                                                 std::optional<std::string> cwd) override {
    return impl_->ReadFile(std::move(scope), std::move(session), std::move(path), std::move(cwd));
  }
  Task<> WriteTar(Scope scope, std::string session, std::optional<std::string> cwd,
                  engine::ByteSource* source) override {
    return impl_->WriteTar(std::move(scope), std::move(session), std::move(cwd), source);
  }
  Task<> MakeDir(Scope scope, std::string session, std::string path, std::optional<std::string> cwd,
                 bool recursive) override {
    return impl_->MakeDir(std::move(scope), std::move(session), std::move(path), std::move(cwd), recursive);
  }

 private:
  ServiceImpl* impl_;
};

class SnapshotsFace final : public Snapshots {
 public:
  explicit SnapshotsFace(ServiceImpl* impl) : impl_(impl) {}
  Task<SnapshotTaken> Take(Scope scope, std::string session, std::optional<int64_t> expiration_ms) override {
    return impl_->TakeSnapshot(std::move(scope), std::move(session), expiration_ms);
  }
  Task<Page<store::Snapshot>> List(Scope scope, ListQuery query) override {
    return impl_->ListSnapshots(std::move(scope), std::move(query));
  }
  Task<store::Snapshot> Get(Scope scope, std::string id) override {
    return impl_->GetSnapshot(std::move(scope), std::move(id));
  }
  Task<store::Snapshot> Delete(Scope scope, std::string id) override {
    return impl_->DeleteSnapshot(std::move(scope), std::move(id));
  }
  Task<SnapshotTree> Tree(Scope scope, std::string id, int limit, bool descendants) override {
    return impl_->GetSnapshotTree(std::move(scope), std::move(id), limit, descendants);
  }
  Task<store::Snapshot> Verify(Scope scope, std::string id) override {
    return impl_->VerifySnapshot(std::move(scope), std::move(id));
  }
  Task<engine::LayerDiff> Diff(Scope scope, std::string before, std::string after) override {
    return impl_->Diff(std::move(scope), std::move(before), std::move(after));
  }

 private:
  ServiceImpl* impl_;
};

class DrivesFace final : public Drives {
 public:
  explicit DrivesFace(ServiceImpl* impl) : impl_(impl) {}
  Task<DriveView> Make(Scope scope, std::string name, DriveSpec spec) override {
    return impl_->MakeDrive(std::move(scope), std::move(name), std::move(spec));
  }
  Task<Page<DriveView>> List(Scope scope, ListQuery query) override {
    return impl_->ListDrives(std::move(scope), std::move(query));
  }
  Task<DriveView> Delete(Scope scope, std::string name) override {
    return impl_->DeleteDrive(std::move(scope), std::move(name));
  }

 private:
  ServiceImpl* impl_;
};

class CodeContextsFace final : public CodeContexts {
 public:
  explicit CodeContextsFace(ServiceImpl* impl) : impl_(impl) {}
  Task<std::unique_ptr<CodeStream>> Run(Scope scope, std::string name, CodeSpec spec) override {
    return impl_->RunCode(std::move(scope), std::move(name), std::move(spec));
  }
  Task<CodeContextInfo> Create(Scope scope, std::string name, CodeContextSpec spec) override {
    return impl_->CreateContext(std::move(scope), std::move(name), std::move(spec));
  }
  Task<std::vector<CodeContextInfo>> List(Scope scope, std::string name) override {
    return impl_->ListContexts(std::move(scope), std::move(name));
  }
  Task<CodeContextInfo> Change(Scope scope, std::string name, std::string id, ContextChange change) override {
    return impl_->ChangeContext(std::move(scope), std::move(name), std::move(id), change);
  }

 private:
  ServiceImpl* impl_;
};

class RacesFace final : public Races {
 public:
  explicit RacesFace(ServiceImpl* impl) : impl_(impl) {}
  Task<store::Sandbox> Promote(Scope scope, std::string fork, std::optional<std::string> into) override {
    return impl_->Promote(std::move(scope), std::move(fork), std::move(into));
  }
  Task<RaceOutcome> Run(Scope scope, RaceSpec spec) override { return impl_->Race(std::move(scope), std::move(spec)); }

 private:
  ServiceImpl* impl_;
};

class PortsFace final : public Ports {
 public:
  explicit PortsFace(ServiceImpl* impl) : impl_(impl) {}
  Task<RouteTarget> FindRoute(std::string subdomain) override { return impl_->FindRoute(std::move(subdomain)); }
  Task<DialledPort> Dial(Scope scope, std::string session, int port) override {
    return impl_->DialPort(std::move(scope), std::move(session), port);
  }
  Task<store::PortRoute> SetToken(Scope scope, std::string name, int port, std::optional<std::string> token) override {
    return impl_->SetRouteToken(std::move(scope), std::move(name), port, std::move(token));
  }

 private:
  ServiceImpl* impl_;
};

class ServerFace final : public Server {
 public:
  explicit ServerFace(ServiceImpl* impl) : impl_(impl) {}
  ServerInfo Info() const override { return impl_->info(); }
  Task<store::Token> CheckToken(std::string presented) override { return impl_->CheckToken(std::move(presented)); }

 private:
  ServiceImpl* impl_;
};

struct ServiceImpl::Faces {
  explicit Faces(ServiceImpl* impl)
      : sandboxes(impl),
        sessions(impl),
        commands(impl),
        files(impl),
        snapshots(impl),
        drives(impl),
        code(impl),
        races(impl),
        ports(impl),
        server(impl) {}
  SandboxesFace sandboxes;
  SessionsFace sessions;
  CommandsFace commands;
  FilesFace files;
  SnapshotsFace snapshots;
  DrivesFace drives;
  CodeContextsFace code;
  RacesFace races;
  PortsFace ports;
  ServerFace server;
  Roles roles{&sandboxes, &sessions, &commands, &files, &snapshots, &drives, &code, &races, &ports, &server};
};

}  // namespace sandbar::sandbox
