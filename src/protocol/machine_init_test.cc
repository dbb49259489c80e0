#include "protocol/machine_init.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>

namespace sandbar::protocol {
namespace {

std::vector<Fd> Received(size_t count) {
  std::vector<Fd> fds;
  for (size_t i = 0; i < count; ++i) fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return fds;
}

InitSetup SomeStart() {
  InitSetup setup;
  setup.join = {10, 11};
  setup.netns = 12;
  setup.proc_at = "/mnt/proc";
  setup.covers = {{"/mnt/empty", "kcore"}, {"/mnt/nothing", "acpi"}};
  setup.read_only = {"sys", "irq"};
  setup.open_files = 4096;
  setup.filter = {sock_filter{6, 0, 0, 0x7fff0000}};
  setup.capabilities = 0x1234;
  setup.nesting = true;
  setup.group_root = {13};
  setup.group_home = {14, 15};
  return setup;
}

TEST(MachineInitTest, TheStartArrivesAsItWas) {
  const InitMessage message = Encode(SomeStart());
  EXPECT_EQ(message.fds, (std::vector<int>{12, 13, 14, 15}));
  const auto fds = Received(4);
  auto start = DecodeInitSetup(message.bytes, fds);
  ASSERT_TRUE(start) << start.error().message;
  EXPECT_EQ(start->netns, fds[0].get());
  EXPECT_EQ(start->proc_at, "/mnt/proc");
  ASSERT_EQ(start->covers.size(), 2U);
  EXPECT_EQ(start->covers[1].source, "/mnt/nothing");
  EXPECT_EQ(start->covers[1].target, "acpi");
  EXPECT_EQ(start->read_only, (std::vector<std::string>{"sys", "irq"}));
  EXPECT_EQ(start->open_files, 4096U);
  ASSERT_EQ(start->filter.size(), 1U);
  EXPECT_EQ(start->filter[0].k, 0x7fff0000U);
  EXPECT_EQ(start->capabilities, 0x1234U);
  EXPECT_TRUE(start->nesting);
  EXPECT_EQ(start->group_home, (std::vector<int>{fds[2].get(), fds[3].get()}));
}

TEST(MachineInitTest, ThePageOfDiskFiguresArrives) {
  InitSetup setup = SomeStart();
  auto none = DecodeInitSetup(Encode(setup).bytes, Received(4));
  ASSERT_TRUE(none);
  EXPECT_EQ(none->figures, FiguresFds{});
  setup.figures = {16, 17};
  const InitMessage message = Encode(setup);
  EXPECT_EQ(message.fds, (std::vector<int>{12, 13, 14, 15, 16, 17}));
  const auto fds = Received(6);
  auto start = DecodeInitSetup(message.bytes, fds);
  ASSERT_TRUE(start) << start.error().message;
  EXPECT_EQ(start->figures, (FiguresFds{fds[4].get(), fds[5].get()}));
}

TEST(MachineInitTest, ThePlanArrivesAsItWas) {
  InitPlan plan;
  plan.userns = 20;
  plan.root = 21;
  plan.dev = 22;
  plan.mounts = {{23, "/data"}};
  plan.mount_point = "/mnt/mp";
  plan.covers = {{"/mnt/sizes/proc/stat", "stat"}};
  plan.hostname = "sandbox";
  CPU_ZERO(&plan.cpus.emplace());
  CPU_SET(3, &*plan.cpus);
  plan.keep = {24, 25};
  const InitMessage message = Encode(plan);
  const auto fds = Received(message.fds.size());
  auto got = DecodeInitPlan(message.bytes, fds);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->userns, fds[0].get());
  EXPECT_EQ(got->pts, -1);
  EXPECT_EQ(got->agent, -1);
  ASSERT_EQ(got->mounts.size(), 1U);
  EXPECT_EQ(got->mounts[0].mount, fds[3].get());
  EXPECT_EQ(got->mounts[0].path, "/data");
  EXPECT_EQ(got->hostname, "sandbox");
  ASSERT_TRUE(got->cpus);
  EXPECT_TRUE(CPU_EQUAL(&*got->cpus, &*plan.cpus));
  EXPECT_EQ(got->keep, (std::vector<int>{fds[4].get(), fds[5].get()}));
}

TEST(MachineInitTest, WhatIsNotSuchAMessageIsRefused) {
  InitSetup setup = SomeStart();
  setup.figures = {16, 17};
  const InitMessage message = Encode(setup);
  const auto fds = Received(6), few = Received(5);
  EXPECT_FALSE(DecodeInitSetup(message.bytes, few));
  EXPECT_FALSE(DecodeInitPlan(message.bytes, fds));
  EXPECT_TRUE(DecodeInitSetup(message.bytes + "later", fds));
  const size_t without_figures = Encode(SomeStart()).bytes.size();
  for (size_t n = 0; n < message.bytes.size(); ++n)
    EXPECT_EQ(DecodeInitSetup(message.bytes.substr(0, n), fds).has_value(), n == without_figures) << n;
}

}  // namespace
}  // namespace sandbar::protocol
