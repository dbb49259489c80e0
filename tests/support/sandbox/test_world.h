// A whole domain over the fake engine in a temporary directory, for this folder's tests. Runs the loop until a task is
// done; Crash() throws the domain away as a kill would (nothing is stopped or undone) and Restart() builds the next
// one on the same data and machines.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "sandbox/domain.h"
#include "support/engine/fake_engine.h"

namespace sandbar::sandbox {

class World : public Roles {  // those of `domain`, while it runs
 public:
  World() {
    std::string pattern = std::filesystem::temp_directory_path() / "sandbar-test-XXXXXX";
    SB_CHECK(::mkdtemp(pattern.data()) != nullptr);
    dir = pattern;
    std::filesystem::create_directories(dir + "/images/manifests");
    AddImage("node24", "vercel/sandbox/node:24", "node24", "ubuntu", "/vercel", "/vercel");
    AddImage("universal", "vercel/sandbox/universal:latest", "", "ubuntu", "/vercel", "/vercel");
    AddImage("rt", "sandbar/runtime/node24", "node24", "vercel-sandbox", "/home/vercel-sandbox", "/vercel/sandbox");
    config.data_dir = dir + "/data";
    config.stop_grace = std::chrono::milliseconds(50);
    config.tidy_pause = std::chrono::milliseconds(0);
    scope.team = "team_a";
    scope.project = "prj_a";
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    Crash();
    Await(host.Close());
    engine.reset();
    store.reset();
    std::error_code ec;
    std::filesystem::remove_all(dir, ec);
  }

  void AddImage(const std::string& file, const std::string& name, const std::string& runtime, const std::string& user,
                const std::string& home, const std::string& cwd) const {
    std::ofstream out(dir + "/images/manifests/" + file + ".json");
    out << R"({"name":")" << name << R"(","digest":"sha256:)" << file << R"(","layers":["l1","l0"],"user":")" << user
        << R"(","uid":1000,"gid":1000,"home":")" << home << R"(","cwd":")" << cwd << R"(","runtime":")" << runtime
        << R"(","env":{"PATH":"/vercel/bin:/usr/local/bin:/usr/bin:/bin","FROM_IMAGE":"yes"}})";
  }

  // Builds and starts the domain; the error of Start otherwise.
  Result<> Start() {
    std::filesystem::create_directories(config.data_dir);
    SB_TRY(store, store::OpenSqlite(config.data_dir + "/sandbar.db"));
    engine = engine::MakeFakeEngine(&host);
    Dependencies dependencies{engine.get(), store.get(), &images(), &egress, secret};
    SB_TRY(domain, MakeDomain(ioc.get_executor(), config, dependencies));
    static_cast<Roles&>(*this) = domain->roles();
    return Run(domain->Start());
  }
  // A connection of the test's own: the domain's background tasks use the other one.
  std::unique_ptr<store::Store> OpenStore() const {
    auto own = store::OpenSqlite(config.data_dir + "/sandbar.db");
    SB_CHECK(own);
    return *std::move(own);
  }
  void Crash() {
    if (!domain) return;
    Await(domain->Close());
    static_cast<Roles&>(*this) = {};
    domain.reset();
  }
  Result<> Restart() {
    Crash();
    return Start();
  }

  template <class T>
  Result<T> Run(Task<T> task) {
    std::optional<Result<T>> out;
    auto done = [&out](std::exception_ptr e, Result<T> r) {
      SB_CHECK(!e);
      out.emplace(std::move(r));
    };
    asio::co_spawn(ioc.get_executor(), std::move(task), done);
    while (!out) Step();
    return *std::move(out);
  }
  void Await(asio::awaitable<void> task) {
    bool finished = false;
    asio::co_spawn(ioc.get_executor(), std::move(task), [&finished](std::exception_ptr e) {
      SB_CHECK(!e);
      finished = true;
    });
    while (!finished) Step();
  }
  // Lets the loop work until the condition holds; false after a long while.
  bool Until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      ioc.restart();
      ioc.run_one_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  void Step() {
    ioc.restart();
    ioc.run_one_for(std::chrono::milliseconds(100));
  }

  const images::Catalog& images() {
    if (!catalog) catalog.emplace(dir + "/images");
    return *catalog;
  }

  SandboxView Create(CreateSpec spec = {}) {
    auto view = Run(sandboxes->Create(scope, std::move(spec)));
    EXPECT_TRUE(view) << (view ? "" : view.error().message);
    return view ? *view : SandboxView{};
  }
  static CommandSpec Command(std::vector<std::string> argv) {
    CommandSpec spec;
    spec.command = argv.at(0);
    spec.args.assign(argv.begin() + 1, argv.end());
    return spec;
  }
  store::Command Exec(const std::string& session, CommandSpec spec) {
    auto started = Run(commands->Start(scope, session, std::move(spec)));
    EXPECT_TRUE(started) << (started ? "" : started.error().message);
    return started ? started->command : store::Command{};
  }
  store::Command Wait(const std::string& session, const std::string& command) {
    auto r = Run(commands->Wait(scope, session, command));
    EXPECT_TRUE(r) << (r ? "" : r.error().message);
    return r ? *r : store::Command{};
  }
  struct Text {
    std::string out, err;
    uint64_t gap = 0;
  };
  Text ReadLog(LogReader* reader) {
    Text text;
    for (;;) {
      auto chunk = Run(reader->Next());
      EXPECT_TRUE(chunk) << (chunk ? "" : chunk.error().message);
      if (!chunk || (chunk->bytes.empty() && chunk->gap == 0)) return text;
      text.gap += chunk->gap;
      (chunk->stream == 2 ? text.err : text.out) += chunk->bytes;
    }
  }
  Text Log(const std::string& session, const std::string& command) {
    auto reader = Run(commands->OpenLog(scope, session, command));
    EXPECT_TRUE(reader) << (reader ? "" : reader.error().message);
    return reader ? ReadLog(reader->get()) : Text{};
  }
  engine::FakeMachineState* Machine(const SandboxView& view) { return host.Find(view.session.machine_id); }

  std::string dir;
  asio::io_context ioc{1};
  engine::FakeHost host{ioc.get_executor()};
  Config config;
  std::string secret = std::string(48, 's');
  Scope scope;
  egress::EgressConfig egress;
  std::optional<images::Catalog> catalog;
  std::unique_ptr<store::Store> store;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<Domain> domain;
};

class DomainTest : public testing::Test {
 protected:
  void Boot() {
    auto r = world.Start();
    ASSERT_TRUE(r) << r.error().message;
  }
  World world;
};

}  // namespace sandbar::sandbox
