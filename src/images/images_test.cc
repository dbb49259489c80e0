#include "images/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace sandbar::images {
namespace {

using ::testing::HasSubstr;

class CatalogTest : public ::testing::Test {
 protected:
  CatalogTest() {
    std::string name = ::testing::TempDir() + "imagesXXXXXX";
    dir_ = ::mkdtemp(name.data());
    std::filesystem::create_directories(dir_ + "/manifests");
  }
  ~CatalogTest() override { std::filesystem::remove_all(dir_); }
  void Put(const std::string& file, const std::string& name, const std::string& runtime, const std::string& user) {
    std::ofstream(dir_ + "/manifests/" + file + ".json")
        << R"({"name":")" << name << R"(","runtime":")" << runtime << R"(","layers":["aa","bb"],"user":")" << user
        << R"(","uid":1000,"gid":1000,"home":"/vercel","cwd":"/vercel","env":{"PATH":"/bin"},"digest":"sha256:)" << file
        << "\"}";
  }
  std::string dir_;
};

TEST_F(CatalogTest, ReadsManifestsAndSkipsBrokenOnes) {
  Put("node24", "vercel/sandbox/node:24", "node24", "ubuntu");
  std::ofstream(dir_ + "/manifests/bad.json") << "{\"name\":";
  std::ofstream(dir_ + "/manifests/empty.json") << "{}";
  auto all = Catalog(dir_).List();
  ASSERT_TRUE(all.has_value());
  ASSERT_EQ(all->size(), 1U);
  EXPECT_EQ(all->at(0).env.at("PATH"), "/bin");
  EXPECT_THAT(all->at(0).layers, ::testing::ElementsAre("aa", "bb"));
}

TEST_F(CatalogTest, ReadsAgainOnlyWhatHasChanged) {
  Put("node24", "vercel/sandbox/node:24", "node24", "ubuntu");
  Catalog c(dir_);
  EXPECT_FALSE(c.fresh()) << "nothing was read yet";
  EXPECT_EQ(c.List()->size(), 1U);
  EXPECT_FALSE(c.fresh()) << "it has changed a moment ago: another change could not be told from that one";
  const auto an_hour_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::filesystem::last_write_time(dir_ + "/manifests", an_hour_ago);
  EXPECT_EQ(c.List()->size(), 1U);
  EXPECT_TRUE(c.fresh());
  EXPECT_EQ(c.ResolveImage("vercel/sandbox/node:24")->runtime, "node24");
  Put("node22", "vercel/sandbox/node:22", "node22", "ubuntu");
  EXPECT_FALSE(c.fresh());
  EXPECT_EQ(c.ResolveImage("vercel/sandbox/node:22")->runtime, "node22");
  std::filesystem::remove_all(dir_ + "/manifests");
  EXPECT_FALSE(c.List().has_value());
}

TEST_F(CatalogTest, ManagedNamesFollowTheDocumentedRule) {
  Put("node24", "vercel/sandbox/node:24", "node24", "ubuntu");
  Put("node22", "vercel/sandbox/node:22", "node22", "ubuntu");
  Catalog c(dir_);
  EXPECT_EQ(c.ResolveImage("vercel/sandbox/node:22")->name, "vercel/sandbox/node:22");
  EXPECT_EQ(c.ResolveImage("vcr.vercel.com/vercel/sandbox/node:24")->name, "vercel/sandbox/node:24");
  EXPECT_EQ(c.ResolveImage("vercel/sandbox/node")->name, "vercel/sandbox/node:24") << "no tag: the newest";
  EXPECT_EQ(c.ResolveImage("vercel/sandbox/node:26")->name, "vercel/sandbox/node:24") << "unknown tag: the newest";
  for (const char* name : {"vercel/sandbox/universal:latest", "vercel/sandbox/arch"}) {
    auto unbuilt = c.ResolveImage(name);
    ASSERT_FALSE(unbuilt.has_value()) << "a smaller image must not stand for " << name;
    EXPECT_EQ(unbuilt.error().code, Code::kUnsupported);
    EXPECT_THAT(unbuilt.error().message, HasSubstr("sandbar image build universal"));
  }
  Put("universal", "vercel/sandbox/universal:latest", "", "ubuntu");
  EXPECT_EQ(c.ResolveImage("vercel/sandbox/universal")->name, "vercel/sandbox/universal:latest");
  EXPECT_EQ(c.ResolveImage("vercel/sandbox/ubuntu")->name, "vercel/sandbox/universal:latest");
}

TEST_F(CatalogTest, BaseImagesOfTheVendorGetTheUniversalOne) {
  Put("node24", "vercel/sandbox/node:24", "node24", "ubuntu");
  Put("universal", "vercel/sandbox/universal:latest", "", "ubuntu");
  Catalog c(dir_);
  for (const char* name : {"vcr.vercel.com/vercel/eve/base:0.80.1", "vercel/eve/base", "vercel/other/base:latest"})
    EXPECT_EQ(c.ResolveImage(name)->name, "vercel/sandbox/universal:latest") << name;
  auto pinned = c.ResolveImage("vercel/eve/base@sha256:theirs");
  ASSERT_FALSE(pinned.has_value()) << "another content than the digest says";
  EXPECT_EQ(pinned.error().code, Code::kBadRequest);
  for (const char* name : {"vercel/eve/other", "vercel/base", "mercel/eve/base", "vercel/eve/base2", "us/eve/base"})
    EXPECT_FALSE(c.ResolveImage(name).has_value()) << name;
}

TEST_F(CatalogTest, AliasesOfTheOperatorComeFirst) {
  Put("node24", "vercel/sandbox/node:24", "node24", "ubuntu");
  Put("data", "sandbar/data:latest", "", "ubuntu");
  Put("universal", "vercel/sandbox/universal:latest", "", "ubuntu");
  Catalog c(dir_, {{"registry.example/us/*", "sandbar/data"},
                   {"registry.example/us/web", "vercel/sandbox/node:24"},
                   {"localhost:5000/worker:2", "sandbar/data"},
                   {"vercel/eve/base", "sandbar/data"},
                   {"vercel/sandbox/node", "sandbar/data"},
                   {"a/chain", "registry.example/us/web"},
                   {"not/built", "sandbar/podman"},
                   {"fixed", "sandbar/data@sha256:old"}});
  EXPECT_EQ(c.ResolveImage("registry.example/us/any:3")->name, "sandbar/data:latest");
  EXPECT_EQ(c.ResolveImage("registry.example/us/web:3")->name, "vercel/sandbox/node:24")
      << "the longest pattern counts";
  EXPECT_EQ(c.ResolveImage("localhost:5000/worker:2")->name, "sandbar/data:latest");
  EXPECT_FALSE(c.ResolveImage("localhost:5000/worker:3").has_value());
  EXPECT_EQ(c.ResolveImage("vcr.vercel.com/vercel/eve/base:1")->name, "sandbar/data:latest");
  EXPECT_EQ(c.ResolveImage("vercel/sandbox/node:24")->name, "sandbar/data:latest") << "even of one that is here";
  EXPECT_EQ(c.ResolveImage("vercel/sandbox/node:24@sha256:node24")->name, "vercel/sandbox/node:24")
      << "what a record remembers is that image for good";
  EXPECT_FALSE(c.ResolveImage("a/chain").has_value()) << "an alias does not lead to an alias";
  auto unbuilt = c.ResolveImage("not/built");
  ASSERT_FALSE(unbuilt.has_value());
  EXPECT_THAT(unbuilt.error().message, HasSubstr("not/built is an alias of sandbar/podman"));
  EXPECT_THAT(unbuilt.error().message, HasSubstr("sandbar image build podman"));
  EXPECT_FALSE(c.ResolveImage("fixed").has_value()) << "its target has another digest";
  auto unknown = c.ResolveImage("nobody/knows");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_THAT(unknown.error().message, HasSubstr("[images.aliases]"));
}

TEST_F(CatalogTest, AliasesAreChecked) {
  EXPECT_TRUE(CheckAlias({"*", "sandbar/data"}));
  EXPECT_TRUE(CheckAlias({"registry.example/us/*:*", "sandbar/data@sha256:abc"}));
  for (const char* bad : {"", "a b", "x@sha256:abc", "a\n"}) EXPECT_FALSE(CheckAlias({bad, "sandbar/data"})) << bad;
  EXPECT_FALSE(CheckAlias({std::string(256, 'a'), "sandbar/data"}));
  for (const char* bad : {"", "a b", "sandbar/*"}) EXPECT_FALSE(CheckAlias({"x", bad})) << bad;
}

TEST_F(CatalogTest, WrongNamesSayWhatIsWrong) {
  Put("node24", "vercel/sandbox/node:24", "node24", "ubuntu");
  Catalog c(dir_);
  auto typo = c.ResolveImage("vercel/sandbox/nod");
  ASSERT_FALSE(typo.has_value());
  EXPECT_EQ(typo.error().code, Code::kBadRequest);
  EXPECT_THAT(typo.error().message, HasSubstr("vercel/sandbox/node"));
  auto unbuilt = c.ResolveImage("vercel/sandbox/python:3.13");
  ASSERT_FALSE(unbuilt.has_value());
  EXPECT_EQ(unbuilt.error().code, Code::kUnsupported);
  EXPECT_THAT(unbuilt.error().message, HasSubstr("sandbar image build python3.13"));
  EXPECT_EQ(c.ResolveImage("alpine:3").error().code, Code::kUnsupported);
  for (const char* bad : {"", "a b", "x\n", "a;b"})
    EXPECT_EQ(c.ResolveImage(bad).error().code, Code::kBadRequest) << bad;
  EXPECT_EQ(c.ResolveImage(std::string(256, 'a')).error().code, Code::kBadRequest);
  EXPECT_EQ(c.ResolveImage("vercel/sandbox/node:24@sha256:other").error().code, Code::kBadRequest);
  EXPECT_TRUE(c.ResolveImage("vercel/sandbox/node:24@sha256:node24").has_value());
}

TEST_F(CatalogTest, RuntimesAreTheirOwnManifests) {
  Put("node24", "vercel/sandbox/node:24", "node24", "ubuntu");
  Put("runtime-node24", "sandbar/runtime/node24:latest", "node24", "vercel-sandbox");
  Catalog c(dir_);
  EXPECT_EQ(c.ResolveRuntime("node24")->user, "vercel-sandbox");
  EXPECT_EQ(c.ResolveRuntime("python3.13").error().code, Code::kUnsupported);
  auto typo = c.ResolveRuntime("nod24");
  EXPECT_EQ(typo.error().code, Code::kBadRequest);
  EXPECT_THAT(typo.error().message, HasSubstr("node24"));
}

TEST_F(CatalogTest, NoImagesAtAllSaysHowToBuildOne) {
  auto r = Catalog(dir_ + "/nowhere").ResolveRuntime("node24");
  ASSERT_FALSE(r.has_value());
  EXPECT_THAT(r.error().message, HasSubstr("sandbar image build"));
}

// The table in images.cc and the recipes must not drift apart.
TEST(KnownImages, EqualTheRecipes) {
  std::ifstream in(SB_SOURCE_DIR "/images/catalog.txt");
  ASSERT_TRUE(in.good());
  Catalog nothing_built(::testing::TempDir());
  std::filesystem::create_directories(::testing::TempDir() + "/manifests");
  int rows = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    ++rows;
    auto field = [&line](int n) {
      size_t begin = 0;
      while (n-- > 0) begin = line.find('|', begin) + 1;
      std::string f = line.substr(begin, line.find('|', begin) - begin);
      f.erase(0, f.find_first_not_of(' '));
      f.erase(f.find_last_not_of(' ') + 1);
      return f;
    };
    auto r = nothing_built.ResolveImage(field(1));
    ASSERT_FALSE(r.has_value());
    EXPECT_EQ(r.error().code, Code::kUnsupported) << field(1);
    EXPECT_THAT(r.error().message, HasSubstr("build " + field(0)));
    if (field(2) != "-") {
      EXPECT_EQ(nothing_built.ResolveRuntime(field(2)).error().code, Code::kUnsupported) << field(2);
    }
  }
  EXPECT_EQ(rows, 9);
}

}  // namespace
}  // namespace sandbar::images
