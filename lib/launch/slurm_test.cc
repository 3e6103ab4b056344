// SPDX-License-Identifier: Apache-2.0
#include "launch/slurm.h"

#include <gtest/gtest.h>

namespace spillway::runtime {
namespace {

using Names = std::vector<std::string>;

TEST(NodeList, IsExpandedInItsOrderAndWidth) {
  EXPECT_EQ(*expand_node_list("gnode7"), Names{"gnode7"});
  EXPECT_EQ(*expand_node_list("gnode[10,20-22,037]"),
            (Names{"gnode10", "gnode20", "gnode21", "gnode22", "gnode037"}));
  EXPECT_EQ(*expand_node_list("n[08-11]"), (Names{"n08", "n09", "n10", "n11"}));
  EXPECT_EQ(*expand_node_list("login1,a[1-2]-ib,z"), (Names{"login1", "a1-ib", "a2-ib", "z"}));
  EXPECT_EQ(*expand_node_list("r[1-2]n[01-02]"), (Names{"r1n01", "r1n02", "r2n01", "r2n02"}));
}

TEST(NodeList, RefusesWhatIsNone) {
  for (const char* list : {"", ",", "a,", ",a", "a,,b", "n[", "n[]", "n[1", "n1]", "n[1-]", "n[-1]",
                           "n[3-1]", "n[a-b]", "n[[1]]", "n[1,]x]", "n 1", "n[99999999999]"}) {
    EXPECT_FALSE(expand_node_list(list).ok()) << list;
  }
}

TEST(NodeList, IsBounded) {
  EXPECT_FALSE(expand_node_list("n[0-99999999]").ok());
  EXPECT_FALSE(expand_node_list("n[0-999][0-999]").ok());
  EXPECT_FALSE(expand_node_list("n[0-65535],m").ok());
  EXPECT_EQ(expand_node_list("n[0-65535]")->size(), kMaxNodes);
}

TEST(NodeList, CountsTasksPerNode) {
  EXPECT_EQ(*expand_task_counts("2(x3),1"), (std::vector<std::uint32_t>{2, 2, 2, 1}));
  EXPECT_EQ(*expand_task_counts("4"), std::vector<std::uint32_t>{4});
  for (const char* list : {"", "x", "2(", "2(x", "2(x)", "2(x3", "2(x99999999)", ","}) {
    EXPECT_FALSE(expand_task_counts(list).ok()) << list;
  }
}

}  // namespace
}  // namespace spillway::runtime
