#include "sandbox/engine_selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbar::sandbox {
namespace {

using engine::EngineInfo;
using engine::RootfsFormat;
using testing::HasSubstr;

// A host without KVM on which everything is installed, unless a test changes it.
std::vector<EngineInfo> Host() {
  return {{.name = "namespaces", .isolation_class = 1},
          {.name = "microvm-emulated", .isolation_class = 1, .format = RootfsFormat::kBlock, .emulated = true},
          {.name = "gvisor", .isolation_class = 2},
          {.name = "microvm",
           .isolation_class = 3,
           .format = RootfsFormat::kBlock,
           .usable = false,
           .why_not = "no /dev/kvm: enable virtualisation"}};
}

std::vector<EngineInfo> With(const std::string& name, bool usable, const std::string& why_not = "") {
  auto engines = Host();
  for (EngineInfo& e : engines) {
    if (e.name != name) continue;
    e.usable = usable;
    e.why_not = why_not;
  }
  return engines;
}

EngineSelector Made(std::vector<EngineInfo> engines, Config config = {}) {
  auto selector = EngineSelector::Make(std::move(engines), "namespaces", config);
  SB_CHECK(selector);
  return *std::move(selector);
}

std::string Name(const Result<EngineInfo>& picked) {
  return picked ? picked->name : "error: " + picked.error().message;
}

TEST(EngineSelector, AutoIsAMicroVmOnlyWithKvm) {
  EXPECT_EQ(Made(Host()).default_engine().name, "namespaces");
  EXPECT_EQ(Made(With("microvm", true)).default_engine().name, "microvm");
  Config emulated;
  emulated.allow_tcg_as_class3 = true;
  EXPECT_EQ(Made(Host(), emulated).default_engine().name, "namespaces") << "emulation is for those who ask for it";
}

TEST(EngineSelector, AChosenDefaultThatCannotBeUsedIsRefusedWithTheReason) {
  Config config;
  config.isolation = "microvm";
  auto refused = EngineSelector::Make(Host(), "namespaces", config);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("enable virtualisation"));
  config.isolation = "firejail";
  EXPECT_THAT(EngineSelector::Make(Host(), "namespaces", config).error().message, HasSubstr("gvisor"));
  config.isolation = "gvisor";
  EXPECT_EQ(Made(Host(), config).default_engine().name, "gvisor");
}

TEST(EngineSelector, TheDefaultWhenItIsEnoughElseTheLowestThatIs) {
  const EngineSelector selector = Made(Host());
  EXPECT_EQ(Name(selector.Pick({}, std::nullopt)), "namespaces");
  EXPECT_EQ(Name(selector.Pick({.min_class = 1}, std::nullopt)), "namespaces");
  EXPECT_EQ(Name(selector.Pick({.min_class = 2}, std::nullopt)), "gvisor");
  const EngineSelector kvm = Made(With("microvm", true));
  EXPECT_EQ(Name(kvm.Pick({.min_class = 2}, std::nullopt)), "microvm") << "the default is more than enough";
  auto no_gvisor = With("gvisor", false, "runsc is missing");
  no_gvisor.back().usable = true;
  Config plain;
  plain.isolation = "namespaces";
  EXPECT_EQ(Name(Made(no_gvisor, plain).Pick({.min_class = 2}, std::nullopt)), "microvm");
}

TEST(EngineSelector, ADemandedEngineOrNone) {
  const EngineSelector selector = Made(Host());
  EXPECT_EQ(Name(selector.Pick({.engine = "gvisor"}, std::nullopt)), "gvisor");
  EXPECT_EQ(Name(selector.Pick({.min_class = 2, .engine = "gvisor"}, std::nullopt)), "gvisor");
  auto low = selector.Pick({.min_class = 3, .engine = "gvisor"}, std::nullopt);
  ASSERT_FALSE(low);
  EXPECT_EQ(low.error().code, Code::kUnsupported);
  auto unknown = selector.Pick({.engine = "xen"}, std::nullopt);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Code::kBadRequest);
  EXPECT_THAT(unknown.error().message, HasSubstr("isolation.engine"));
  auto unusable = selector.Pick({.engine = "microvm"}, std::nullopt);
  ASSERT_FALSE(unusable);
  EXPECT_EQ(unusable.error().code, Code::kUnsupported);
  EXPECT_THAT(unusable.error().message, HasSubstr("enable virtualisation"));
}

// Emulation without KVM is no security boundary, so it satisfies no demanded class above 1.
TEST(EngineSelector, AnEmulatedMicroVmIsNotClass3UnlessTheOperatorSaysSo) {
  auto engines = Host();
  engines[1].isolation_class = 3;  // whatever the engine thinks of itself
  const EngineSelector selector = Made(engines);
  auto refused = selector.Pick({.min_class = 3}, std::nullopt);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("allow_tcg_as_class3"));
  EXPECT_THAT(refused.error().message, HasSubstr("enable virtualisation"));
  EXPECT_FALSE(selector.Pick({.min_class = 3, .engine = "microvm-emulated"}, std::nullopt));
  EXPECT_EQ(selector.Of("microvm-emulated").isolation_class, 1);
  EXPECT_EQ(selector.Of("of a server before").isolation_class, 0);
  Config config;
  config.allow_tcg_as_class3 = true;
  EXPECT_EQ(Name(Made(engines, config).Pick({.min_class = 3}, std::nullopt)), "microvm-emulated");
  engines.back().usable = true;
  config.isolation = "namespaces";
  EXPECT_EQ(Name(Made(engines, config).Pick({.min_class = 3}, std::nullopt)), "microvm") << "hardware first";
}

TEST(EngineSelector, SaysWhatIsMissingForEveryEngineThatWouldDo) {
  auto engines = With("gvisor", false, "runsc is missing: apt-get install runsc");
  engines.erase(engines.begin() + 1);
  auto refused = Made(engines).Pick({.min_class = 2}, std::nullopt);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("apt-get install runsc"));
  EXPECT_THAT(refused.error().message, HasSubstr("enable virtualisation"));
  EXPECT_THAT(refused.error().message, testing::Not(HasSubstr("emulated")));
}

TEST(EngineSelector, AnEngineOfTheSnapshotsFormatComesFirst) {
  const EngineSelector selector = Made(Host());
  EXPECT_EQ(Name(selector.Pick({}, RootfsFormat::kDir)), "namespaces");
  EXPECT_EQ(Name(selector.Pick({}, RootfsFormat::kBlock)), "microvm-emulated");
  EXPECT_EQ(Name(selector.Pick({.engine = "gvisor"}, RootfsFormat::kBlock)), "gvisor") << "converted";
  EXPECT_EQ(Name(selector.Pick({.min_class = 2}, RootfsFormat::kBlock)), "gvisor");
  EXPECT_EQ(Name(selector.Pick({.engine = "microvm-emulated"}, RootfsFormat::kDir)), "microvm-emulated");
}

TEST(EngineSelector, WhatNothingCanReadIsRefused) {
  const EngineSelector selector = Made(With("microvm-emulated", false, "QEMU is missing"));
  EXPECT_EQ(Name(selector.Pick({.engine = "gvisor"}, RootfsFormat::kDir)), "gvisor");
  auto named = selector.Pick({.engine = "gvisor"}, RootfsFormat::kBlock);
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().code, Code::kConflict);
  EXPECT_THAT(named.error().message, HasSubstr("\"block\""));
  EXPECT_THAT(named.error().message, HasSubstr("\"dir\""));
  auto none = selector.Pick({.min_class = 2}, RootfsFormat::kBlock);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kConflict) << "gvisor would do, but not with this snapshot";
}

TEST(EngineSelector, Tags) {
  EXPECT_EQ(*TaggedClass({}), 0);
  EXPECT_EQ(*TaggedClass({{kMinClassTag, "2"}}), 2);
  for (const char* wrong : {"", "0", "4", "2 ", "high"}) {
    auto refused = TaggedClass({{kMinClassTag, wrong}});
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, Code::kBadRequest);
    EXPECT_THAT(refused.error().message, HasSubstr("sandbar:min-isolation"));
  }
}

// Nesting takes class 2 or higher. An engine that shares the host's kernel may nest only if the operator allows it, and
// then counts as class 0.
TEST(EngineSelector, ContainersInsideAreNotForAnyEngine) {
  auto engines = Host();
  engines[2].no_nesting = "gVisor cannot";
  const store::IsolationDemand nesting{.nesting = true};
  auto refused = Made(engines).Pick(nesting, std::nullopt);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  for (const char* reason : {"allow_nesting_on_class1", "gVisor cannot", "enable virtualisation", "isolation.engine"})
    EXPECT_THAT(refused.error().message, HasSubstr(reason));
  EXPECT_EQ(Name(Made(engines).Pick({.engine = "microvm-emulated", .nesting = true}, std::nullopt)),
            "microvm-emulated");
  EXPECT_THAT(Name(Made(engines).Pick({.engine = "namespaces", .nesting = true}, std::nullopt)),
              HasSubstr("allow_nesting_on_class1"));
  EXPECT_THAT(Name(Made(engines).Pick({.engine = "gvisor", .nesting = true}, std::nullopt)), HasSubstr("cannot"));

  Config allowed;
  allowed.allow_nesting_on_class1 = true;
  const EngineSelector selector = Made(engines, allowed);
  auto weak = selector.Pick(nesting, std::nullopt);
  EXPECT_EQ(Name(weak), "namespaces");
  EXPECT_EQ(weak->isolation_class, 0);
  for (int min_class : {1, 2, 3})
    EXPECT_FALSE(selector.Pick({.min_class = min_class, .nesting = true}, std::nullopt)) << min_class;
  EXPECT_FALSE(selector.Pick({.min_class = 1, .engine = "namespaces", .nesting = true}, std::nullopt));
  EXPECT_EQ(Name(selector.Pick({.min_class = 1, .engine = "microvm-emulated", .nesting = true}, std::nullopt)),
            "microvm-emulated")
      << "its kernel is its own, so it stays what it is";
  EXPECT_EQ(Name(selector.Pick(nesting, RootfsFormat::kDir)), "namespaces");
  EXPECT_EQ(selector.Pick(nesting, RootfsFormat::kBlock).error().code, Code::kConflict);

  engines.back().usable = true;
  EXPECT_EQ(Name(Made(engines, allowed).Pick(nesting, std::nullopt)), "microvm") << "more is there";
  Config emulated;
  emulated.isolation = "microvm-emulated";
  for (int min_class : {0, 1})
    EXPECT_EQ(Name(Made(Host(), emulated).Pick({.min_class = min_class, .nesting = true}, std::nullopt)),
              "microvm-emulated")
        << "what it uses anyway";
  EXPECT_FALSE(Meets(nesting, "namespaces", 1, false));
  EXPECT_TRUE(Meets(nesting, "namespaces", 0, true));
}

}  // namespace
}  // namespace sandbar::sandbox
