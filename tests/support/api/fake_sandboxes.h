// For tests: the roles Sandboxes, Sessions, Ports and Server, answering from a FakeState.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "crypto/digest.h"
#include "support/api/fake_state.h"

namespace sandbar::api {

class FakeSandboxes : public sandbox::Sandboxes {
 public:
  explicit FakeSandboxes(FakeState* state) : state_(state) {}
  Task<sandbox::SandboxView> Create(sandbox::Scope s, sandbox::CreateSpec spec) override {
    state_->create = std::move(spec);
    if (state_->name_taken) co_return Fail(Code::kNameTaken, "taken");
    ++state_->waiting_creates;
    while (state_->hold_create) {
      auto woken = co_await state_->changed.Wait();
      if (!woken) co_return std::unexpected(std::move(woken).error());
    }
    --state_->waiting_creates;
    state_->sandbox.create_digest = state_->create->digest;
    state_->sandbox.created_at = NowMs();
    co_return state_->View(s, "");
  }
  Task<sandbox::SandboxView> Get(sandbox::Scope s, std::string name, bool start) override {
    state_->flag = start;
    co_return state_->View(s, std::move(name));
  }
  Task<sandbox::Page<store::Sandbox>> List(sandbox::Scope s, sandbox::ListQuery query) override {
    state_->list = std::move(query);
    SB_CO_TRYV(state_->Begin(s, ""));
    co_return sandbox::Page<store::Sandbox>{{state_->sandbox}, "cursor-2"};
  }
  Task<store::Sandbox> Update(sandbox::Scope s, std::string name, sandbox::UpdateSpec spec) override {
    state_->update = std::move(spec);
    SB_CO_TRYV(state_->Begin(s, std::move(name)));
    co_return state_->sandbox;
  }
  Task<store::Sandbox> Delete(sandbox::Scope s, std::string name, bool orphan_snapshots) override {
    state_->orphans = orphan_snapshots;
    ++state_->deleted;
    SB_CO_TRYV(state_->Begin(s, std::move(name)));
    co_return state_->sandbox;
  }
  Task<sandbox::SandboxView> Fork(sandbox::Scope s, std::string name, sandbox::ForkSpec spec) override {
    state_->fork = std::move(spec);
    co_return state_->View(s, std::move(name));
  }
  Task<sandbox::SandboxView> Pause(sandbox::Scope s, std::string name) override {
    state_->paused = name;
    co_return state_->View(s, std::move(name));
  }
  Task<sandbox::SandboxView> Resume(sandbox::Scope s, std::string name, sandbox::ResumeFrom from) override {
    state_->resume_from = from;
    co_return state_->View(s, std::move(name));
  }
  Task<std::vector<store::Notice>> Notices(sandbox::Scope, std::string name) override {
    co_return std::vector<store::Notice>{{5, "team", "project", std::move(name), "it fell back"}};
  }
  Task<std::vector<store::ProjectUsage>> Usage(sandbox::Scope s) override {
    SB_CO_TRYV(state_->Begin(s, ""));
    co_return state_->usage;
  }

 private:
  FakeState* state_;
};

class FakeSessions : public sandbox::Sessions {
 public:
  explicit FakeSessions(FakeState* state) : state_(state) {}
  Task<sandbox::Page<store::Session>> List(sandbox::Scope s, sandbox::ListQuery query) override {
    state_->list = std::move(query);
    SB_CO_TRYV(state_->Begin(s, ""));
    co_return sandbox::Page<store::Session>{{state_->session}, "cursor-2"};
  }
  Task<sandbox::SandboxView> Get(sandbox::Scope s, std::string id) override {
    co_return state_->View(s, std::move(id));
  }
  Task<sandbox::SandboxView> Stop(sandbox::Scope s, std::string id) override {
    state_->session.status = state_->sandbox.status = store::Status::kStopped;
    state_->session.stopped_at = 3500;
    co_return state_->View(s, std::move(id));
  }
  Task<store::Session> ExtendTimeout(sandbox::Scope s, std::string id, int64_t ms) override {
    state_->number = ms;
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    co_return state_->session;
  }
  Task<store::Session> SetNetwork(sandbox::Scope s, std::string id, egress::NetworkPolicy policy) override {
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    std::string mode(egress::ModeName(policy.mode));
    state_->session.network = store::NetworkPolicyRow{mode, R"({"mode":")" + mode + "\"}", ""};
    co_return state_->session;
  }
  Task<sandbox::NetworkView> Network(sandbox::Scope s, std::string id) override {
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    egress::Denial denial;
    denial.kind = "dns";
    denial.target = "example.com";
    denial.host = "example.com";
    egress::Attempt attempt;
    attempt.kind = "tls";
    attempt.host = "example.com";
    attempt.port = 443;
    co_return sandbox::NetworkView{.policy = egress::DenyAll(), .denials = {denial}, .attempts = {attempt}};
  }
  std::shared_ptr<void> Use(const sandbox::Scope&, const std::string&) override {
    ++state_->users;
    return {&state_->users, [state = state_](void*) { --state->users; }};
  }
  std::optional<store::Session> Running(const sandbox::Scope&, const std::string&) const override {
    return state_->running;
  }

 private:
  FakeState* state_;
};

class FakePorts : public sandbox::Ports {
 public:
  explicit FakePorts(FakeState* state) : state_(state) {}
  Task<sandbox::RouteTarget> FindRoute(std::string subdomain) override {
    for (const store::PortRoute& route : state_->sandbox.routes)
      if (route.subdomain == subdomain) {
        co_return sandbox::RouteTarget{state_->sandbox.team, state_->sandbox.project, state_->sandbox.name,
                                       state_->session.id, route};
      }
    co_return Fail(Code::kNotFound, "no such route");
  }
  Task<sandbox::DialledPort> Dial(sandbox::Scope s, std::string id, int port) override {
    state_->number = port;
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    if (!state_->dial) co_return Fail(Code::kUnavailable, "nothing listens");
    co_return sandbox::DialledPort{state_->dial(), state_->traffic};
  }
  Task<store::PortRoute> SetToken(sandbox::Scope s, std::string name, int port,
                                  std::optional<std::string> token) override {
    SB_CO_TRYV(state_->Begin(s, std::move(name)));
    for (store::PortRoute& route : state_->sandbox.routes) {
      if (route.port != port) continue;
      route.token = token ? crypto::Sha256Hex(*token) : "";
      co_return route;
    }
    co_return Fail(Code::kNotFound, "no such port");
  }

 private:
  FakeState* state_;
};

class FakeServer : public sandbox::Server {
 public:
  sandbox::ServerInfo Info() const override {
    return {"allow-all",
            "fake",
            1,
            3,
            {{.name = "fake"}, {.name = "strong", .isolation_class = 3, .usable = false, .why_not = "no KVM"}}};
  }
};

}  // namespace sandbar::api
