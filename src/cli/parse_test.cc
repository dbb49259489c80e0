#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "cli/options.h"

namespace sandbar::cli {
namespace {

using ::testing::ElementsAre;

Parsed ParseWords(std::vector<const char*> words) {
  words.insert(words.begin(), "sandbar");
  return Parse(static_cast<int>(words.size()), words.data());
}

TEST(Parse, Isolation) {
  auto run =
      std::get<RunCommand>(ParseWords({"run", "--isolation", "gvisor", "--min-class", "2", "ls"}).options->command);
  EXPECT_EQ(run.isolation.engine, "gvisor");
  EXPECT_EQ(run.isolation.min_class, 2);
  EXPECT_EQ(std::get<ForkCommand>(ParseWords({"fork", "a", "--min-class", "3"}).options->command).isolation.min_class,
            3);
  EXPECT_EQ(std::get<ServeCommand>(ParseWords({"serve", "--isolation", "gvisor"}).options->command).isolation,
            "gvisor");
  EXPECT_EQ(std::get<McpCommand>(ParseWords({"mcp", "--min-class", "2"}).options->command).isolation, "2");
  auto agent = ParseWords({"agent", "--model", "m", "--min-class", "2", "go"});
  EXPECT_EQ(std::get<AgentCommand>(agent.options->command).options.min_class, 2);
  EXPECT_TRUE(std::get<RunCommand>(ParseWords({"run", "--nesting", "ls"}).options->command).isolation.nesting);
  EXPECT_TRUE(std::get<ForkCommand>(ParseWords({"fork", "a", "--nesting"}).options->command).isolation.nesting);
  EXPECT_EQ(ParseWords({"run", "--min-class", "4", "ls"}).exit_code, 2);
  EXPECT_EQ(ParseWords({"serve", "--isolation", "xen"}).exit_code, 2);
  EXPECT_EQ(ParseWords({"agent", "--model", "m", "--sandbox", "box", "--min-class", "2", "go"}).exit_code, 2);
  EXPECT_EQ(ParseWords({"code", "box", "--isolation", "gvisor", "-c", "1"}).exit_code, 2) << "not of one that exists";
}

TEST(Parse, RunTakesEverythingAfterTheDashesVerbatim) {
  auto p =
      ParseWords({"run", "--net", "allow-all", "-e", "A=1", "-e", "B=x=y", "--", "node", "-e", "1", "--", "--json"});
  ASSERT_TRUE(p.options);
  const auto& run = std::get<RunCommand>(p.options->command);
  EXPECT_THAT(run.argv, ElementsAre("node", "-e", "1", "--", "--json"));
  EXPECT_THAT(run.env, ElementsAre("A=1", "B=x=y"));
  EXPECT_EQ(run.network, "allow-all");
  EXPECT_FALSE(p.options->json);
}

TEST(Parse, RunWithoutDashesStopsAtTheFirstForeignWord) {
  auto p = ParseWords({"run", "--sudo", "node", "-e", "1"});
  ASSERT_TRUE(p.options);
  const auto& run = std::get<RunCommand>(p.options->command);
  EXPECT_THAT(run.argv, ElementsAre("node", "-e", "1"));
  EXPECT_TRUE(run.env.empty());
  EXPECT_TRUE(run.sudo);
}

TEST(Parse, InputAndTerminals) {
  auto run = std::get<RunCommand>(ParseWords({"run", "-it", "--", "vi"}).options->command);
  EXPECT_TRUE(run.io.interactive);
  EXPECT_TRUE(run.io.terminal);
  EXPECT_FALSE(run.io.no_input);
  auto exec = std::get<ExecCommand>(ParseWords({"exec", "-n", "box", "cat", "-n"}).options->command);
  EXPECT_TRUE(exec.io.no_input);
  EXPECT_THAT(exec.argv, ElementsAre("cat", "-n"));
  EXPECT_EQ(ParseWords({"run", "-i", "-n", "--", "cat"}).exit_code, 2);
  EXPECT_TRUE(std::get<RunCommand>(ParseWords({"run"}).options->command).argv.empty()) << "a shell";
  EXPECT_TRUE(std::get<ExecCommand>(ParseWords({"exec", "box"}).options->command).argv.empty());
}

TEST(Parse, ShIsRunOrExec) {
  auto fresh = std::get<RunCommand>(ParseWords({"sh", "--image", "i", "-e", "A=1"}).options->command);
  EXPECT_TRUE(fresh.keep);
  EXPECT_TRUE(fresh.is_sh);
  EXPECT_EQ(fresh.image, "i");
  EXPECT_THAT(fresh.env, ElementsAre("A=1"));
  EXPECT_FALSE(std::get<RunCommand>(ParseWords({"sh", "--rm", "--timeout", "5m"}).options->command).keep);
  EXPECT_EQ(std::get<RunCommand>(ParseWords({"sh", "--timeout", "5m"}).options->command).timeout_ms, 300'000);
  auto there = std::get<ExecCommand>(ParseWords({"sh", "box", "--sudo", "-w", "/tmp"}).options->command);
  EXPECT_EQ(there.name, "box");
  EXPECT_EQ(there.cwd, "/tmp");
  EXPECT_TRUE(there.sudo);
  EXPECT_TRUE(there.argv.empty());
  EXPECT_EQ(ParseWords({"sh", "box", "--rm"}).exit_code, 2) << "only a new one is removed";
  EXPECT_EQ(ParseWords({"sh", "box", "--image", "i"}).exit_code, 2);
  EXPECT_EQ(ParseWords({"sh", "box", "ls"}).exit_code, 2);
}

TEST(Parse, Attach) {
  auto attach = std::get<AttachCommand>(ParseWords({"attach", "box", "cmd_1", "-n"}).options->command);
  EXPECT_EQ(attach.name, "box");
  EXPECT_EQ(attach.command, "cmd_1");
  EXPECT_TRUE(attach.io.no_input);
  EXPECT_EQ(ParseWords({"attach"}).exit_code, 2);
}

TEST(Parse, DenyAllIsTheDefaultOfRun) {
  auto p = ParseWords({"run", "--", "true"});
  ASSERT_TRUE(p.options);
  EXPECT_EQ(std::get<RunCommand>(p.options->command).network, "deny-all");
}

TEST(Parse, RunTakesDomainsOrAPolicy) {
  auto p = ParseWords({"run", "--allow", "a.example", "--allow", "*.b.example", "--", "true"});
  ASSERT_TRUE(p.options);
  EXPECT_THAT(std::get<RunCommand>(p.options->command).allow, ElementsAre("a.example", "*.b.example"));
  auto q = ParseWords({"run", "--policy", "p.json", "--", "true"});
  ASSERT_TRUE(q.options);
  EXPECT_EQ(std::get<RunCommand>(q.options->command).policy, "p.json");
  EXPECT_FALSE(ParseWords({"run", "--policy", "p.json", "--net", "allow-all", "--", "true"}).options);
  EXPECT_FALSE(ParseWords({"run", "--allow", "a.example", "--net", "allow-all", "--", "true"}).options);
}

TEST(Parse, Net) {
  auto p = ParseWords({"net", "test", "box", "p.json", "--json"});
  ASSERT_TRUE(p.options);
  const auto& net = std::get<NetCommand>(p.options->command);
  EXPECT_EQ(net.verb, "test");
  EXPECT_EQ(net.name, "box");
  EXPECT_EQ(net.policy, "p.json");
  EXPECT_TRUE(p.options->json);
  EXPECT_TRUE(std::get<NetCommand>(ParseWords({"net", "log", "-f", "box"}).options->command).follow);
  EXPECT_FALSE(ParseWords({"net", "test", "box"}).options);
  EXPECT_FALSE(ParseWords({"net"}).options);
}

TEST(Parse, Env) {
  auto plain = std::get<EnvCommand>(ParseWords({"env"}).options->command);
  EXPECT_TRUE(plain.aliases);
  EXPECT_TRUE(plain.argv.empty());
  auto run = std::get<EnvCommand>(
      ParseWords({"env", "--no-aliases", "--default-net", "deny-all", "--", "pnpm", "dev", "--json"}).options->command);
  EXPECT_FALSE(run.aliases);
  EXPECT_EQ(run.default_net, "deny-all");
  EXPECT_EQ(run.argv, (std::vector<std::string>{"pnpm", "dev", "--json"}));
  EXPECT_EQ(std::get<EnvCommand>(ParseWords({"env", "--write", ".env.local"}).options->command).write, ".env.local");
  EXPECT_FALSE(ParseWords({"env", "--default-net", "deny"}).options);
  EXPECT_FALSE(ParseWords({"env", "dev"}).options);
  EXPECT_FALSE(ParseWords({"env", "--write", "f", "--", "true"}).options);
}

TEST(Parse, Snapshots) {
  auto verify = std::get<SnapshotCommand>(ParseWords({"snapshot", "verify", "snap_1", "snap_2"}).options->command);
  EXPECT_EQ(verify.words, (std::vector<std::string>{"verify", "snap_1", "snap_2"}));
  EXPECT_FALSE(ParseWords({"snapshot"}).options);
  auto diff = std::get<DiffCommand>(ParseWords({"diff", "a", "b"}).options->command);
  EXPECT_EQ(diff.a + diff.b, "ab");
  auto race = std::get<RaceCommand>(
      ParseWords({"race", "box", "-n", "4", "--score", "x", "--keep", "fork", "--", "make", "-j2"}).options->command);
  EXPECT_EQ(race.count, 4);
  EXPECT_EQ(race.keep, "fork");
  EXPECT_EQ(race.argv, (std::vector<std::string>{"make", "-j2"}));
  EXPECT_FALSE(ParseWords({"race", "box"}).options);
  EXPECT_FALSE(ParseWords({"race", "box", "--keep", "all", "--", "true"}).options);
  EXPECT_EQ(std::get<ImportCommand>(ParseWords({"import", "f", "--name", "n"}).options->command).name, "n");
  auto import_all = ParseWords(
      {"import", "f", "-p", "3000", "--publish", "80", "--vcpus", "2", "--timeout", "5m", "--max-size", "2GB"});
  ASSERT_TRUE(import_all.options.has_value());
  const auto& imported = std::get<ImportCommand>(import_all.options->command);
  EXPECT_THAT(imported.ports, ElementsAre(3000, 80));
  EXPECT_EQ(imported.vcpus, 2);
  EXPECT_EQ(imported.timeout_ms, 300'000);
  EXPECT_EQ(imported.max_size, 2ULL << 30);
  EXPECT_FALSE(ParseWords({"export", "box"}).options);
}

TEST(Parse, McpIsDenyAllAndFreshUnlessToldOtherwise) {
  auto plain = std::get<McpCommand>(ParseWords({"mcp"}).options->command);
  EXPECT_FALSE(plain.sandbox);
  EXPECT_FALSE(plain.admin_tools);
  EXPECT_EQ(plain.network, "deny-all");
  auto full = std::get<McpCommand>(
      ParseWords({"mcp", "--sandbox", "box", "--admin-tools", "--allow", "a.example", "--allow", "b.example"})
          .options->command);
  EXPECT_EQ(full.sandbox, "box");
  EXPECT_TRUE(full.admin_tools);
  EXPECT_EQ(full.allow, (std::vector<std::string>{"a.example", "b.example"}));
  EXPECT_EQ(ParseWords({"mcp", "--net", "allow-all", "--allow", "a.example"}).exit_code, 2);
  EXPECT_EQ(ParseWords({"mcp", "--image", "x", "--runtime", "y"}).exit_code, 2);
  EXPECT_EQ(ParseWords({"mcp", "words"}).exit_code, 2);
}

TEST(Parse, CommonOptionsAreTakenAfterTheSubcommandToo) {
  auto p = ParseWords({"ps", "-a", "--json", "--data", "/d"});
  ASSERT_TRUE(p.options);
  EXPECT_TRUE(p.options->json);
  EXPECT_EQ(p.options->data, "/d");
  EXPECT_TRUE(std::get<PsCommand>(p.options->command).all);
}

TEST(Parse, DataComesFromTheEnvironmentWhenNotGiven) {
  ASSERT_EQ(setenv("SANDBAR_DATA", "/from-env", 1), 0);
  auto p = ParseWords({"token"});
  ASSERT_EQ(unsetenv("SANDBAR_DATA"), 0);
  ASSERT_TRUE(p.options);
  EXPECT_EQ(p.options->data, "/from-env");
  EXPECT_FALSE(p.options->data_given) << "only --data wins over SANDBAR_URL";
  auto q = ParseWords({"token"});
  ASSERT_TRUE(q.options);
  EXPECT_EQ(q.options->data, kDefaultData);
  EXPECT_FALSE(q.options->data_given);
}

TEST(Parse, LoginsAreDecidedByCode) {
  auto approve = std::get<LoginCommand>(
      ParseWords({"login", "approve", "BCDF-GHJK", "--role", "viewer", "--expires", "2h"}).options->command);
  EXPECT_EQ(approve.verb, "approve");
  EXPECT_EQ(approve.code, "BCDF-GHJK");
  EXPECT_EQ(approve.grant.role, "viewer");
  EXPECT_EQ(approve.grant.expires_ms, 7'200'000);
  EXPECT_EQ(std::get<LoginCommand>(ParseWords({"login", "deny", "X"}).options->command).verb, "deny");
  EXPECT_FALSE(ParseWords({"login"}).options);
  EXPECT_FALSE(ParseWords({"login", "approve"}).options);
}

TEST(Parse, Keys) {
  auto made = std::get<KeyCommand>(
      ParseWords({"key", "create", "ci", "--role", "viewer", "--project", "*", "--expires", "30d"}).options->command);
  EXPECT_EQ(made.verb, "create");
  EXPECT_EQ(made.names, std::vector<std::string>{"ci"});
  EXPECT_EQ(made.grant.role, "viewer");
  EXPECT_EQ(made.grant.project, "*");
  EXPECT_EQ(made.grant.expires_ms, 30LL * 86'400'000);
  auto defaults = std::get<KeyCommand>(ParseWords({"key", "create", "ci"}).options->command);
  EXPECT_EQ(defaults.grant.role, "operator");
  EXPECT_FALSE(defaults.grant.project || defaults.grant.expires_ms);
  EXPECT_TRUE(std::get<KeyCommand>(ParseWords({"key", "ls", "-a"}).options->command).all);
  auto revoke = std::get<KeyCommand>(ParseWords({"key", "revoke", "key_1", "ci"}).options->command);
  EXPECT_EQ(revoke.names, (std::vector<std::string>{"key_1", "ci"}));
  auto rotate = std::get<KeyCommand>(ParseWords({"key", "rotate", "ci"}).options->command);
  EXPECT_EQ(rotate.verb, "rotate");
  EXPECT_EQ(rotate.names, std::vector<std::string>{"ci"});
  for (const auto& words : std::vector<std::vector<const char*>>{{"key"},
                                                                 {"key", "rotate"},
                                                                 {"key", "rotate", "a", "b"},
                                                                 {"key", "create"},
                                                                 {"key", "create", "a", "b"},
                                                                 {"key", "create", "a", "--role", "root"},
                                                                 {"key", "create", "a", "--expires", "soon"},
                                                                 {"key", "revoke"}})
    EXPECT_EQ(ParseWords(words).exit_code, 2);
}

TEST(Parse, SnapshotsForksAndUsage) {
  auto words = std::get<SnapshotCommand>(ParseWords({"snapshot", "rm", "snap_1", "snap_2"}).options->command).words;
  EXPECT_EQ(words, (std::vector<std::string>{"rm", "snap_1", "snap_2"}));
  auto fork = std::get<ForkCommand>(ParseWords({"fork", "a", "b"}).options->command);
  EXPECT_EQ(fork.name, "a");
  EXPECT_EQ(fork.as, "b");
  EXPECT_FALSE(fork.live);
  EXPECT_TRUE(std::get<ForkCommand>(ParseWords({"fork", "--live", "a"}).options->command).live);
  EXPECT_EQ(std::get<PauseCommand>(ParseWords({"pause", "a", "b"}).options->command).names.size(), 2U);
  EXPECT_TRUE(std::get<ResumeCommand>(ParseWords({"resume", "--memory", "a"}).options->command).memory);
  EXPECT_FALSE(ParseWords({"resume", "--memory", "--disk", "a"}).options);
  EXPECT_TRUE(std::holds_alternative<UsageCommand>(ParseWords({"usage", "--json"}).options->command));
  EXPECT_TRUE(std::get<RunCommand>(ParseWords({"run", "--persistent", "--", "true"}).options->command).persistent);
  EXPECT_FALSE(ParseWords({"run", "--persistent", "--keep", "--", "true"}).options);
  EXPECT_FALSE(ParseWords({"run", "--from", "snap_1", "--runtime", "node24", "--", "true"}).options);
  EXPECT_FALSE(ParseWords({"snapshot"}).options);
}

TEST(Parse, UnknownOptionsAreNotRunAsPrograms) {
  EXPECT_EQ(ParseWords({"run", "--runtim", "x", "--", "true"}).exit_code, 2);
  EXPECT_FALSE(ParseWords({"run", "--runtim", "x", "--", "true"}).options);
  EXPECT_EQ(ParseWords({"exec", "--bogus", "box", "--", "ls"}).exit_code, 2);
  EXPECT_TRUE(ParseWords({"run", "--", "--odd-program-name"}).options) << "after -- everything is the command";
}

TEST(Parse, RelativePathsAreMadeAbsolute) {
  auto p = ParseWords({"up", "--data", "here", "--config", "c.toml"});
  ASSERT_TRUE(p.options);
  EXPECT_TRUE(p.options->data.starts_with('/')) << p.options->data;
  EXPECT_TRUE(std::get<UpCommand>(p.options->command).serve.config->starts_with('/'));
  auto again = ParseWords({"restart", "--config", "c.toml"});
  ASSERT_TRUE(again.options);
  EXPECT_TRUE(std::get<RestartCommand>(again.options->command).serve.config->starts_with('/'));
}

TEST(Parse, HelpAndVersionByOtherNames) {
  EXPECT_EQ(ParseWords({"help"}).exit_code, 0);
  auto p = ParseWords({"--version"});
  ASSERT_TRUE(p.options);
  EXPECT_TRUE(std::holds_alternative<VersionCommand>(p.options->command));
}

TEST(Parse, UsageErrorsNameTheFixAndSpeakJsonWhenAsked) {
  using ::testing::internal::CaptureStderr;
  using ::testing::internal::GetCapturedStderr;
  CaptureStderr();
  ParseWords({"rnu", "--", "true"});
  EXPECT_THAT(GetCapturedStderr(), ::testing::HasSubstr("there is no command 'rnu', did you mean 'run'?"));
  CaptureStderr();
  ParseWords({"key", "delete", "ci"});
  EXPECT_THAT(GetCapturedStderr(), ::testing::HasSubstr("there is no command 'delete', did you mean 'revoke'?"));
  CaptureStderr();
  EXPECT_EQ(ParseWords({"ps", "--json", "--nope"}).exit_code, 2);
  EXPECT_THAT(GetCapturedStderr(), ::testing::StartsWith(R"({"error":{"code":"bad_request","message":"The following)"));
}

TEST(Parse, UsageErrorsExitTwo) {
  EXPECT_EQ(ParseWords({}).exit_code, 2);
  EXPECT_EQ(ParseWords({"frobnicate"}).exit_code, 2);
  EXPECT_EQ(ParseWords({"race", "box"}).exit_code, 2);
  EXPECT_EQ(ParseWords({"exec", "-d", "box"}).exit_code, 2);
  EXPECT_EQ(ParseWords({"run", "--net", "maybe", "--", "true"}).exit_code, 2);
  EXPECT_EQ(ParseWords({"run", "--timeout", "soon", "--", "true"}).exit_code, 2);
  EXPECT_EQ(ParseWords({"run", "--image", "a", "--runtime", "b", "--", "true"}).exit_code, 2);
  EXPECT_EQ(ParseWords({"ps", "extra"}).exit_code, 2);
  EXPECT_EQ(ParseWords({"--help"}).exit_code, 0);
}

TEST(Parse, ImageVerbs) {
  EXPECT_TRUE(ParseWords({"kernel", "--dir", "/k", "ls"}).options);
  const auto made = ParseWords({"kernel", "use", "bzImage", "--dir", "/k"});
  const auto& kernel = std::get<KernelCommand>(made.options->command);
  EXPECT_EQ(kernel.verb + " " + kernel.file + " " + *kernel.dir, "use bzImage /k");
  EXPECT_EQ(ParseWords({"kernel", "use"}).exit_code, 2);
  auto p = ParseWords({"image", "build", "node24", "bun"});
  ASSERT_TRUE(p.options);
  const auto& image = std::get<ImageCommand>(p.options->command);
  EXPECT_EQ(image.verb, "build");
  EXPECT_THAT(image.names, ElementsAre("node24", "bun"));
  auto ls = ParseWords({"image", "ls", "--json"});
  ASSERT_TRUE(ls.options);
  EXPECT_TRUE(ls.options->json);
}

TEST(Parse, AgentAndEval) {
  auto p = ParseWords({"agent", "do it", "--model", "scripted:a", "--max-steps", "3", "--timeout", "90s", "--download",
                       "a", "--download", "b", "--net", "allow:a.example", "--json"});
  ASSERT_TRUE(p.options);
  const auto& asked = std::get<AgentCommand>(p.options->command).options;
  EXPECT_EQ(asked.prompt, "do it");
  EXPECT_EQ(asked.limits.max_steps, 3);
  EXPECT_EQ(asked.limits.timeout_ms, 90'000);
  EXPECT_THAT(asked.download, ElementsAre("a", "b"));
  EXPECT_TRUE(p.options->json);
  for (std::vector<const char*> wrong : {std::vector<const char*>{"agent"},
                                         {"agent", "x"},
                                         {"agent", "x", "--model", "m", "--max-steps", "0"},
                                         {"agent", "x", "--model", "m", "--sandbox", "a", "--net", "allow"},
                                         {"agent", "x", "--model", "m", "--sandbox", "a", "--from", "b"},
                                         {"eval"},
                                         {"eval", "d", "--trials", "0"},
                                         {"eval", "d", "--record", "a", "--replay", "b"},
                                         {"eval", "d", "--model", "m", "--replay", "b"}})
    EXPECT_EQ(ParseWords(wrong).exit_code, 2) << wrong.size() << wrong.back();
  auto e = ParseWords(
      {"eval", "dir", "--trials", "4", "--tag", "a", "--tag", "b", "--self-test", "--strict", "--min-class", "2"});
  EXPECT_EQ(std::get<EvalCommand>(e.options->command).options.min_class, 2);
  ASSERT_TRUE(e.options);
  const auto& eval = std::get<EvalCommand>(e.options->command).options;
  EXPECT_EQ(eval.path, "dir");
  EXPECT_EQ(eval.trials, 4);
  EXPECT_THAT(eval.tags, ElementsAre("a", "b"));
  EXPECT_TRUE(eval.self_test && eval.strict && !eval.list);
}

TEST(Parse, CodeKnowsItsSandboxItsFileAndItsLanguage) {
  auto code = [](std::vector<const char*> words) {
    auto p = ParseWords(std::move(words));
    EXPECT_TRUE(p.options);
    return p.options ? std::get<CodeCommand>(p.options->command) : CodeCommand{};
  };
  auto inline_ = code({"code", "-c", "print(1)"});
  EXPECT_EQ(inline_.name, "");
  EXPECT_EQ(inline_.code, "print(1)");
  EXPECT_EQ(inline_.language, "python");
  auto named = code({"code", "box", "-c", "-1", "--lang", "bash", "--timeout", "30s"});
  EXPECT_EQ(named.name, "box");
  EXPECT_EQ(named.language, "bash");
  EXPECT_EQ(named.timeout_ms, 30'000);
  EXPECT_EQ(code({"code", "a.mjs"}).language, "javascript");
  EXPECT_EQ(code({"code", "a.ts"}).file, "a.ts");
  auto both = code({"code", "box", "-", "--context", "ctx_1"});
  EXPECT_EQ(both.name, "box");
  EXPECT_EQ(both.file, "-");
  EXPECT_FALSE(both.language) << "the context knows it";
  using Words = std::vector<const char*>;
  for (const Words& wrong : {Words{"code"}, Words{"code", "a", "b", "c"}, Words{"code", "a", "b", "-c", "1"},
                             Words{"code", "--context", "x", "-c", "1"}, Words{"code", "--lang", "perl", "-c", "1"},
                             Words{"code", "box", "--image", "i", "-c", "1"}}) {
    auto p = ParseWords(wrong);
    EXPECT_FALSE(p.options);
    EXPECT_EQ(p.exit_code, 2);
  }
}

TEST(Parse, AVariableWithoutAValueIsTakenFromHere) {
  ASSERT_EQ(setenv("SANDBAR_TEST_SECRET", "a=b c", 1), 0);
  auto p = ParseWords({"run", "-e", "SANDBAR_TEST_SECRET", "-e", "B=1", "--", "true"});
  ASSERT_TRUE(p.options.has_value());
  EXPECT_THAT(std::get<RunCommand>(p.options->command).env, ElementsAre("SANDBAR_TEST_SECRET=a=b c", "B=1"));
  auto exec = ParseWords({"exec", "box", "--env", "SANDBAR_TEST_SECRET", "--", "true"});
  ASSERT_TRUE(exec.options.has_value());
  EXPECT_THAT(std::get<ExecCommand>(exec.options->command).env, ElementsAre("SANDBAR_TEST_SECRET=a=b c"));
  ASSERT_EQ(setenv("SANDBAR_TEST_SECRET", "", 1), 0);
  auto empty = ParseWords({"exec", "box", "-e", "SANDBAR_TEST_SECRET", "--", "true"});
  ASSERT_TRUE(empty.options.has_value());
  EXPECT_THAT(std::get<ExecCommand>(empty.options->command).env, ElementsAre("SANDBAR_TEST_SECRET="));
  ASSERT_EQ(unsetenv("SANDBAR_TEST_SECRET"), 0);
  for (const char* verb : {"run", "exec"}) {
    testing::internal::CaptureStderr();
    std::vector<const char*> words{verb, "-e", "SANDBAR_TEST_SECRET"};
    if (std::string_view(verb) == "exec") words.push_back("box");
    words.insert(words.end(), {"--", "true"});
    auto unset = ParseWords(words);
    EXPECT_EQ(unset.exit_code, 2);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("SANDBAR_TEST_SECRET is not set here"));
  }
  EXPECT_EQ(ParseWords({"run", "-e", "=x", "--", "true"}).exit_code, 2);
}

}  // namespace
}  // namespace sandbar::cli
