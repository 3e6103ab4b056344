// SPDX-License-Identifier: Apache-2.0
#include "lab/network/isolation.h"

#include <gtest/gtest.h>

#include <string>

namespace spillway::lab {
namespace {

TEST(Isolation, NamesGoBothWays) {
  for (const Isolation isolation :
       {Isolation::kAuto, Isolation::kRoot, Isolation::kUser, Isolation::kNone}) {
    const base::Result<Isolation> parsed = parse_isolation(isolation_name(isolation));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, isolation);
  }
  const base::Result<Isolation> unknown = parse_isolation("half");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("auto, root, user, none"), std::string::npos);
}

TEST(Isolation, ResolvingDecides) {
  const base::Result<Isolation> resolved = resolve_isolation(Isolation::kAuto);
  ASSERT_TRUE(resolved.ok());
  EXPECT_NE(*resolved, Isolation::kAuto);
  EXPECT_EQ(*resolve_isolation(Isolation::kNone), Isolation::kNone);
}

}  // namespace
}  // namespace spillway::lab
