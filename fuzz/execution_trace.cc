// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary bytes as an execution trace: the first byte chooses the format, the rest is the file. A
// refusal must say why. An accepted trace is linked and linted as its users would; links
// between nodes must hold.
#include <string_view>

#include "emulate/trace/graph.h"
#include "emulate/trace/lint.h"
#include "emulate/trace/reader.h"
#include "fuzzing.h"

using namespace spillway;
using spillway::fuzzing::require;

namespace {

constexpr unsigned kFormats = 4;
constexpr unsigned kMostRanks = 64;
constexpr unsigned kMostNodes = 20'000;

// Limits what a short text can ask for: thousands of ranks, millions of nodes.
class Bounded final : public emulate::NodeSink {
 public:
  explicit Bounded(emulate::NodeSink& sink) : sink_(sink) {}
  base::Status on_rank(const emulate::RankInfo& info) override {
    return ++ranks_ > kMostRanks ? enough() : sink_.on_rank(info);
  }
  base::Status on_node(const emulate::Node& node) override {
    return ++nodes_ > kMostNodes ? enough() : sink_.on_node(node);
  }

 private:
  static base::Status enough() { return base::invalid_argument("enough"); }
  emulate::NodeSink& sink_;
  unsigned ranks_ = 0;
  unsigned nodes_ = 0;
};

void try_format(emulate::TraceFormat format, base::ByteView bytes, bool follows_control) {
  emulate::GraphBuilder builder({.follows_control = follows_control});
  builder.set_source("fuzz", 0);
  Bounded bounded(builder);
  const auto source = emulate::memory_source(bytes);
  const base::Status status = emulate::read_trace(format, *source, bounded);
  if (!status.ok()) {
    require(!status.message().empty());
  }
  // Nodes read before the refusal also form a world.
  const emulate::World world = std::move(builder).finish();
  const emulate::LintReport report = emulate::lint(world);
  for (const emulate::Finding& finding : report.findings) {
    require(!finding.text.empty());
  }
  for (const emulate::RankGraph& rank : world.ranks) {
    require(rank.first_dep.size() == rank.nodes.size() + 1);
    for (const emulate::NodeIndex dep : rank.deps) {
      require(dep < rank.nodes.size());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0) {
    try_format(static_cast<emulate::TraceFormat>(data[0] % kFormats),
               base::ByteView(data + 1, size - 1), (data[0] & 0x80) != 0);
  }
  return 0;
}
