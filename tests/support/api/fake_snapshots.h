// For tests: the roles Snapshots, Drives and Races, answering from a FakeState.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/api/fake_state.h"

namespace sandbar::api {

class FakeSnapshots : public sandbox::Snapshots {
 public:
  explicit FakeSnapshots(FakeState* state) : state_(state) {}
  Task<sandbox::SnapshotTaken> Take(sandbox::Scope s, std::string id, std::optional<int64_t> ms) override {
    state_->number = ms.value_or(-1);
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    co_return sandbox::SnapshotTaken{state_->snapshot, state_->session};
  }
  Task<sandbox::Page<store::Snapshot>> List(sandbox::Scope s, sandbox::ListQuery query) override {
    state_->list = std::move(query);
    SB_CO_TRYV(state_->Begin(s, ""));
    co_return sandbox::Page<store::Snapshot>{{state_->snapshot}, "cursor-2"};
  }
  Task<store::Snapshot> Get(sandbox::Scope s, std::string id) override {
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    co_return state_->snapshot;
  }
  Task<store::Snapshot> Delete(sandbox::Scope s, std::string id) override {
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    state_->snapshot.deleted = true;
    co_return state_->snapshot;
  }
  Task<sandbox::SnapshotTree> Tree(sandbox::Scope s, std::string id, int limit, bool asc) override {
    state_->number = asc ? limit : -limit;
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    co_return sandbox::SnapshotTree{{state_->snapshot, {state_->snapshot}}, {{state_->snapshot, {}}}, "snap_1"};
  }
  Task<store::Snapshot> Verify(sandbox::Scope s, std::string id) override {
    SB_CO_TRYV(state_->Begin(s, std::move(id)));
    state_->snapshot.damage = "changed /etc/passwd";
    co_return state_->snapshot;
  }
  Task<engine::LayerDiff> Diff(sandbox::Scope s, std::string before, std::string after) override {
    SB_CO_TRYV(state_->Begin(s, before + ".." + after));
    co_return engine::LayerDiff{{{'M', 'f', 7, 5, "/etc/passwd"}, {'D', 'd', 0, 0, "/data"}}, false};
  }

 private:
  FakeState* state_;
};

class FakeDrives : public sandbox::Drives {
 public:
  explicit FakeDrives(FakeState* state) : state_(state) {}
  Task<sandbox::DriveView> Make(sandbox::Scope s, std::string name, sandbox::DriveSpec spec) override {
    state_->number = static_cast<int64_t>(spec.max_size_bytes.value_or(0));
    SB_CO_TRYV(state_->Begin(s, name));
    state_->drive.created = std::exchange(state_->drive.drive.name, name) != name;
    co_return state_->drive;
  }
  Task<sandbox::Page<sandbox::DriveView>> List(sandbox::Scope s, sandbox::ListQuery query) override {
    state_->list = std::move(query);
    SB_CO_TRYV(state_->Begin(s, ""));
    co_return sandbox::Page<sandbox::DriveView>{{state_->drive}, "cursor-2"};
  }
  Task<sandbox::DriveView> Delete(sandbox::Scope s, std::string name) override {
    SB_CO_TRYV(state_->Begin(s, std::move(name)));
    co_return state_->drive;
  }

 private:
  FakeState* state_;
};

class FakeRaces : public sandbox::Races {
 public:
  explicit FakeRaces(FakeState* state) : state_(state) {}
  Task<sandbox::RaceOutcome> Run(sandbox::Scope s, sandbox::RaceSpec spec) override {
    SB_CO_TRYV(state_->Begin(s, spec.source + " " + spec.command + " " + spec.score + " " + spec.keep));
    sandbox::RaceOutcome race;
    race.racers.resize(static_cast<size_t>(spec.count));
    race.racers[0].exit_code = 0;
    race.winner = 0;
    co_return race;
  }
  Task<store::Sandbox> Promote(sandbox::Scope s, std::string from, std::optional<std::string> into) override {
    SB_CO_TRYV(state_->Begin(s, from + ">" + into.value_or("")));
    co_return state_->sandbox;
  }

 private:
  FakeState* state_;
};

}  // namespace sandbar::api
