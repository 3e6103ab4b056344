// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/finding.h"

#include <gtest/gtest.h>

namespace spillway::doctor {
namespace {

TEST(Finding, TheWorstDecides) {
  EXPECT_EQ(worst_of({}), Severity::kOk);
  Findings findings = {{"a", Severity::kOk, "fine"}, {"b", Severity::kWarning, "hm", "do this"}};
  EXPECT_EQ(worst_of(findings), Severity::kWarning);
  append(findings, {{"c", Severity::kError, "bad", "do that"}, {"d", Severity::kNote, "so", "x"}});
  EXPECT_EQ(worst_of(findings), Severity::kError);
  EXPECT_EQ(count_of(findings, Severity::kError), 1U);
  EXPECT_EQ(findings.size(), 4U);
}

}  // namespace
}  // namespace spillway::doctor
