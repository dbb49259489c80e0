#include "llm/box.h"

#include <gtest/gtest.h>

namespace sandbar::llm {
namespace {

// The server decides what a sandbox starts from when nobody says it: agents and workers name no image of their own.
TEST(Box, WithoutAnOriginTheServerChooses) {
  json::object body;
  EXPECT_EQ(AddOrigin({}, {}, {}, &body), "/v3/sandboxes");
  EXPECT_TRUE(body.empty());
}

TEST(Box, AnOriginIsSaidInItsOwnField) {
  json::object image, runtime, snapshot;
  EXPECT_EQ(AddOrigin("sandbar/data", {}, {}, &image), "/v3/sandboxes");
  EXPECT_EQ(image, (json::object{{"image", "sandbar/data"}}));
  EXPECT_EQ(AddOrigin({}, "bun", {}, &runtime), "/v2/sandboxes");
  EXPECT_EQ(runtime, (json::object{{"runtime", "bun"}}));
  EXPECT_EQ(AddOrigin({}, {}, "snap_1", &snapshot), "/v3/sandboxes");
  EXPECT_EQ(snapshot, (json::object{{"source", json::object{{"type", "snapshot"}, {"snapshotId", "snap_1"}}}}));
}

}  // namespace
}  // namespace sandbar::llm
