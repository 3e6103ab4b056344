// SPDX-License-Identifier: Apache-2.0
#include "emulate/synthesize/llm_step.h"

#include <gtest/gtest.h>

#include "emulate/trace/graph.h"
#include "emulate/trace/lint.h"

namespace spillway::emulate {
namespace {

World synthesized(const LlmStepOptions& options) {
  GraphBuilder builder({.keeps_names = true});
  builder.set_source("llm", 0);
  const base::Status status = synthesize(options, builder);
  EXPECT_TRUE(status.ok()) << status.message();
  return std::move(builder).finish();
}

TEST(LlmStep, EveryKindOfParallelismIsSound) {
  struct Case {
    std::uint32_t tensor, data, pipeline, expert, micro_batches;
  };
  for (const Case& c :
       {Case{1, 1, 1, 1, 1}, Case{4, 1, 1, 1, 2}, Case{1, 8, 1, 1, 1}, Case{1, 1, 4, 1, 8},
        Case{2, 4, 3, 1, 2}, Case{2, 8, 2, 4, 3}, Case{1, 4, 5, 2, 1}}) {
    LlmStepOptions options;
    options.tensor = c.tensor;
    options.data = c.data;
    options.pipeline = c.pipeline;
    options.expert = c.expert;
    options.micro_batches = c.micro_batches;
    options.layers = 7;
    options.steps = 2;
    const World world = synthesized(options);
    EXPECT_EQ(world.size(), options.world());
    const LintReport report = lint(world);
    EXPECT_TRUE(report.findings.empty())
        << c.tensor << c.data << c.pipeline << c.expert << ": " << report.findings.front().text;
  }
}

TEST(LlmStep, SizesFollowFromTheModel) {
  LlmStepOptions options;
  options.tensor = 2;
  options.data = 4;
  options.layers = 3;
  options.hidden = 1024;
  options.sequence = 512;
  const World world = synthesized(options);
  std::uint64_t activations = 0;
  std::uint64_t gradients = 0;
  for (const GraphNode& node : world.ranks[5].nodes) {
    if (node.kind == NodeKind::kCollective) {
      (world.groups[node.group].ranks.size() == 2 ? activations : gradients) += node.bytes;
    }
  }
  EXPECT_EQ(activations, 3U * 4 * 512 * 1024 * 2);      // four per layer
  EXPECT_EQ(gradients, 3U * 12 * 1024 * 1024 * 2 / 2);  // one layer's over two ranks
}

TEST(LlmStep, StagesShareTheLayersOut) {
  LlmStepOptions options;
  options.pipeline = 3;
  options.layers = 7;
  const World world = synthesized(options);
  const auto computes = [&](std::uint32_t rank) {
    return std::count_if(world.ranks[rank].nodes.begin(), world.ranks[rank].nodes.end(),
                         [](const GraphNode& node) { return node.kind == NodeKind::kCompute; });
  };
  EXPECT_EQ(computes(0), 3 * 4 + 1);
  EXPECT_EQ(computes(1), 2 * 4 + 1);
  EXPECT_EQ(computes(2), 2 * 4 + 1 + 2);  // plus the logits
}

TEST(LlmStep, RefusesWhatDoesNotFit) {
  LlmStepOptions options;
  options.pipeline = 25;
  EXPECT_FALSE(validate(options).ok());  // 24 layers
  options = {};
  options.data = 6;
  options.expert = 4;
  EXPECT_FALSE(validate(options).ok());
  options = {};
  options.data = 65'537;
  EXPECT_FALSE(validate(options).ok());
  options = {};
  options.flops = 0;
  EXPECT_FALSE(validate(options).ok());
  options = {};
  options.micro_batches = 1'000'000;
  options.data = 1000;
  EXPECT_EQ(validate(options).code(), base::StatusCode::kLimitExceeded);
  EXPECT_TRUE(validate({}).ok());
}

}  // namespace
}  // namespace spillway::emulate
