#include "base/engine_table.h"

#include <gtest/gtest.h>

#include <set>

namespace sandbar {
namespace {

TEST(EngineTable, NamesAreUniqueAndRowsAreInTheOrderOfClasses) {
  std::set<std::string_view> names;
  int last = 0;
  for (const EngineTraits* engine : kEngines) {
    EXPECT_TRUE(names.insert(engine->name).second) << engine->name;
    EXPECT_GE(engine->isolation_class, last) << engine->name;
    EXPECT_FALSE(engine->boundary.empty());
    EXPECT_EQ(FindEngine(engine->name), engine);
    last = engine->isolation_class;
  }
  EXPECT_EQ(FindEngine("qemu"), nullptr);
}

TEST(EngineTable, ChoicesAreAutoAndEveryName) {
  const std::vector<std::string> words = EngineChoices();
  ASSERT_EQ(words.size(), kEngines.size() + 1);
  EXPECT_EQ(words.front(), "auto");
  for (size_t i = 0; i < kEngines.size(); ++i) EXPECT_EQ(words[i + 1], kEngines[i]->name);
}

// The spawner knows an engine by its number, so whatever it decides must be the same in all rows with that number.
TEST(EngineTable, RowsWithTheSameNumberAreTheSameProgram) {
  for (const EngineTraits* engine : kEngines) {
    const EngineTraits* strongest = FindEngine(engine->id);
    ASSERT_NE(strongest, nullptr);
    EXPECT_GE(strongest->isolation_class, engine->isolation_class);
    EXPECT_EQ(strongest->network, engine->network);
    EXPECT_EQ(strongest->format, engine->format);
    EXPECT_EQ(strongest->has_own_kernel, engine->has_own_kernel);
    EXPECT_EQ(strongest->keeps_memory, engine->keeps_memory);
    EXPECT_EQ(strongest->agent_has_key, engine->agent_has_key);
    EXPECT_EQ(strongest->prestarts_init, engine->prestarts_init);
    EXPECT_EQ(strongest->host_dials_loopback, engine->host_dials_loopback);
  }
  EXPECT_EQ(FindEngine(uint8_t{0}), nullptr);
}

}  // namespace
}  // namespace sandbar
