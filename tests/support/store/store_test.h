// Test support: a store in a directory of its own, and records for it. Only *_test.cc files include this.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/log.h"
#include "store/store.h"

namespace sandbar::store::testing {

inline Sandbox MakeSandbox(const std::string& name, int64_t created = 1000) {
  Sandbox s;
  s.team = "t";
  s.project = "p";
  s.name = name;
  s.current_session = "sbx_" + name;
  s.created_at = s.updated_at = s.status_updated_at = created;
  return s;
}

inline Session MakeSession(const Sandbox& sandbox) {
  Session s;
  s.id = sandbox.current_session;
  s.team = sandbox.team;
  s.project = sandbox.project;
  s.sandbox = sandbox.name;
  s.machine_id = "m-" + s.id;
  s.created_at = s.requested_at = s.updated_at = sandbox.created_at;
  return s;
}

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "sandbar-store-XXXXXX";
    SB_CHECK(::mkdtemp(pattern.data()) != nullptr);
    dir_ = pattern;
    Open();
  }
  ~StoreTest() override {
    store_.reset();
    std::filesystem::remove_all(dir_);
  }
  void Open() {
    store_.reset();
    store_ = Another();
  }
  // A further connection to the same file, as another process has it.
  std::unique_ptr<Store> Another() const {
    auto r = OpenSqlite(File());
    EXPECT_TRUE(r) << (r ? "" : r.error().message);
    return r ? *std::move(r) : nullptr;
  }
  std::string File() const { return dir_ + "/t.db"; }
  void Add(const Sandbox& s) { ASSERT_TRUE(store_->CreateSandbox(s, MakeSession(s), "")); }

  std::string dir_;
  std::unique_ptr<Store> store_;
};

}  // namespace sandbar::store::testing
