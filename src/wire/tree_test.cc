#include "wire/tree.h"

#include <gtest/gtest.h>

namespace sandbar::wire {
namespace {

// Everything that it was told, as text.
class Said : public TreeSink {
 public:
  Result<> OnEntry(const TreeEntry& e) override {
    text += std::to_string(static_cast<int>(e.kind)) + " " + e.path + (e.fresh ? "!" : "") + " " + e.target + " " +
            std::to_string(e.mode) + " " + std::to_string(e.uid) + ":" + std::to_string(e.gid) + " " +
            std::to_string(e.mtime_s);
    for (const auto& [name, value] : e.attributes) text += " " + name + "=" + value;
    text += "\n";
    return {};
  }
  Result<> OnPiece(uint64_t offset, std::string_view bytes) override {
    text += "@" + std::to_string(offset) + " " + std::string(bytes) + "\n";
    return {};
  }
  Result<> OnFileEnd(uint64_t size) override {
    text += "size " + std::to_string(size) + "\n";
    return {};
  }
  std::string text;
};

TreeEntry Entry(TreeKind kind, std::string path, std::string target = "") {
  TreeEntry e;
  e.kind = kind;
  e.path = std::move(path);
  e.target = std::move(target);
  e.mode = 0644;
  return e;
}

std::string Sample() {
  TreeEntry dir = Entry(TreeKind::kDirectory, "a/b");
  dir.fresh = true;
  TreeEntry file = Entry(TreeKind::kFile, "a/b/c");
  file.uid = 1000;
  file.mtime_s = -5;
  file.attributes = {{"user.x", "y"}};
  return EncodeTreeEntry(dir) + EncodeTreeEntry(file) + EncodeTreePiece(0, "first") + EncodeTreePiece(9000, "far") +
         EncodeTreePiece(10000, "") + EncodeTreeEntry(Entry(TreeKind::kSymlink, "l", "/else/../where")) +
         EncodeTreeEntry(Entry(TreeKind::kHardLink, "h", "a/b/c")) +
         EncodeTreeEntry(Entry(TreeKind::kDeleted, "gone")) + EncodeTreeEntry({});
}

TEST(Tree, ComesOutAsItWentInHoweverItIsCut) {
  const std::string bytes = Sample();
  for (size_t step : {size_t{1}, size_t{7}, bytes.size()}) {
    Said said;
    TreeReader reader(&said);
    for (size_t at = 0; at < bytes.size(); at += step)
      ASSERT_TRUE(reader.Feed(std::string_view(bytes).substr(at, step)));
    ASSERT_TRUE(reader.Finish());
    EXPECT_EQ(said.text,
              "1 a/b!  420 0:0 0\n2 a/b/c  420 1000:0 -5 user.x=y\n@0 first\n@9000 far\nsize 10000\n"
              "3 l /else/../where 420 0:0 0\n4 h a/b/c 420 0:0 0\n7 gone  420 0:0 0\n");
  }
}

TEST(Tree, CutOffIsAnError) {
  const std::string bytes = Sample();
  for (size_t keep = 0; keep < bytes.size(); ++keep) {
    Said said;
    TreeReader reader(&said);
    if (reader.Feed(std::string_view(bytes).substr(0, keep))) {
      EXPECT_FALSE(reader.Finish()) << keep;
    }
  }
}

TEST(Tree, NamesThatLeadElsewhereAreRefused) {
  for (const char* name : {"", "/etc", "..", "a/../b", "a//b", "a/", "./a", "a/."}) {
    Said said;
    TreeReader reader(&said);
    EXPECT_FALSE(reader.Feed(EncodeTreeEntry(Entry(TreeKind::kFile, name)))) << name;
    TreeReader other(&said);
    EXPECT_FALSE(other.Feed(EncodeTreeEntry(Entry(TreeKind::kHardLink, "ok", name)))) << name;
  }
  Said said;
  TreeReader reader(&said);
  EXPECT_FALSE(reader.Feed(EncodeTreeEntry(Entry(TreeKind::kFile, std::string("a\0b", 3)))));
}

TEST(Tree, HostileNumbersAreBounded) {
  const std::string begin = EncodeTreeEntry(Entry(TreeKind::kFile, "f"));
  const std::string huge_entry("\xff\xff\xff\xff", 4), huge_piece("\0\0\0\0\0\0\0\0\xff\xff\xff\xff", 12),
      far("\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 12);
  for (const std::string& bytes : {huge_entry, begin + huge_piece, begin + far}) {
    Said said;
    TreeReader reader(&said);
    EXPECT_FALSE(reader.Feed(bytes));
  }
  TreeEntry many = Entry(TreeKind::kFile, "f");
  many.attributes.resize(1000, {"user.a", ""});
  TreeEntry mode = Entry(TreeKind::kFile, "f");
  mode.mode = 0100644;
  for (const TreeEntry& e : {many, mode}) {
    Said said;
    TreeReader reader(&said);
    EXPECT_FALSE(reader.Feed(EncodeTreeEntry(e)));
  }
}

}  // namespace
}  // namespace sandbar::wire
