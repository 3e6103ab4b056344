// SPDX-License-Identifier: Apache-2.0
#include "runtime/preparation.h"

#include <gtest/gtest.h>

namespace spillway::runtime {
namespace {

base::Environment alone_with(std::initializer_list<std::pair<std::string, std::string>> more) {
  base::Environment environment{{"SPILLWAY_RANK", "0"}, {"SPILLWAY_WORLD_SIZE", "1"}};
  for (const auto& [name, value] : more) {
    environment.set(name, value);
  }
  return environment;
}

TEST(Preparation, EncryptionNeedsASecret) {
  const auto without = prepare({}, alone_with({{"SPILLWAY_ENCRYPT", "1"}}));
  ASSERT_FALSE(without.ok());
  EXPECT_NE(without.status().message().find("set SPILLWAY_SECRET_FILE"), std::string::npos);
  const auto with = prepare(
      {}, alone_with({{"SPILLWAY_ENCRYPT", "1"}, {"SPILLWAY_SECRET", "a secret of twenty-two"}}));
  ASSERT_TRUE(with.ok()) << with.status().message();
  EXPECT_TRUE(with->encrypt);
  EXPECT_EQ(with->secret.bytes().size(), 22U);
}

TEST(Preparation, WithoutBeingAskedNothingIsSecret) {
  const auto prepared = prepare({}, alone_with({}));
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  EXPECT_FALSE(prepared->encrypt);
  EXPECT_TRUE(prepared->secret.empty());
}

}  // namespace
}  // namespace spillway::runtime
