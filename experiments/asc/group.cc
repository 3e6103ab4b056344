// SPDX-License-Identifier: Apache-2.0
#include "asc/group.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collective/entropy/chunk_layout.h"
#include "collective/reduction.h"
#include "common/guarded.h"
#include "sim/stacks/collective_testing.h"

namespace base = spillway::base;
namespace collective = spillway::collective;
namespace sim = spillway::sim;

struct experiment_group {
  explicit experiment_group(const sim::SimulatedGroupOptions& options)
      : ranks(options.ranks), group(options) {}

  // So far, by all ranks.
  std::uint64_t sent_bytes() {
    std::uint64_t bytes = 0;
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      const spillway::transport::EndpointCounters& counters =
          group.stack(rank).endpoint().counters();
      bytes += counters.data_sent_bytes + counters.sums_sent_bytes;
    }
    return bytes;
  }

  std::uint16_t ranks;
  sim::SimulatedGroup group;
  std::size_t ended = 0;
};

namespace spillway::experiments {
namespace {

base::Result<collective::Operation> operation_of(const experiment_way& way, std::size_t length) {
  collective::Operation operation;
  operation.count = length;
  operation.op = collective::ReduceOp::kAverage;
  operation.algorithm =
      way.is_ring != 0 ? collective::Algorithm::kRing : collective::Algorithm::kDirect;
  const std::string_view code = way.code;
  if (code == "fp32" || code == "fp16") {
    operation.type =
        code == "fp16" ? collective::DataType::kFloat16 : collective::DataType::kFloat32;
    return operation;
  }
  const auto precision = static_cast<std::uint8_t>(way.precision);
  collective::Tolerance tolerance{.precision = precision,
                                  .gather_precision = precision,
                                  .loss_bound_ppm = 0,
                                  .feedback_tensor = way.tensor};
  if (code == "entropy") {
    tolerance.codec = collective::Codec::kEntropy;
  } else if (code == "levels") {
    tolerance.codec = collective::Codec::kLevels;
  } else if (code != "planes") {
    return base::invalid_argument("codes are fp32, fp16, planes, levels and entropy, not " +
                                  std::string(code));
  }
  operation.tolerance = tolerance;
  return operation;
}

base::Status take_mean(experiment_group& opened, collective::Operation operation,
                       const float* parts, float* mean, experiment_outcome& outcome) {
  std::vector<std::vector<std::uint8_t>> buffers(opened.ranks);
  const base::Instant begin = opened.group.network().now();
  const std::uint64_t sent_before = opened.sent_bytes();
  for (std::uint16_t rank = 0; rank < opened.ranks; ++rank) {
    std::vector<std::uint8_t>& buffer = buffers[rank];
    buffer.resize(operation.bytes());
    collective::convert_from_float(operation.type, parts + rank * operation.count, operation.count,
                                   buffer.data());
    const base::Status status =
        opened.group.submit(rank, sim::on_buffers(operation, buffer.data(), buffer.data()));
    if (!status.ok()) {
      return status;
    }
  }
  opened.ended += opened.ranks;
  if (!opened.group.run(opened.ended, base::seconds(3600))) {
    return {base::StatusCode::kTimedOut, "it has not ended within an hour"};
  }
  outcome = {.seconds = 0.0, .wire_bytes = opened.sent_bytes() - sent_before, .tables = 0};
  for (std::uint16_t rank = 0; rank < opened.ranks; ++rank) {
    const sim::Ending& ending = opened.group.endings(rank).back();
    if (!ending.status.ok()) {
      return ending.status;
    }
    const double seconds = static_cast<double>((ending.report.finished - begin).count()) * 1e-9;
    outcome.seconds = std::max(outcome.seconds, seconds);
    outcome.tables += ending.report.entropy.tables();
  }
  collective::convert_to_float(operation.type, buffers[0].data(), operation.count, mean);
  return {};
}

std::optional<collective::ChunkRule> chunk_rule_named(std::string_view name) {
  using collective::ChunkRule;
  return name == "equal"      ? std::optional(ChunkRule::kEqual)
         : name == "balanced" ? std::optional(ChunkRule::kBalanced)
         : name == "striped"  ? std::optional(ChunkRule::kStriped)
                              : std::nullopt;
}

}  // namespace
}  // namespace spillway::experiments

const char* experiment_group_open(unsigned ranks, uint64_t rate, const char* chunks,
                                  experiment_group** group) {
  return spillway::experiments::guarded([&]() -> base::Status {
    const auto rule = spillway::experiments::chunk_rule_named(chunks);
    if (!rule) {
      return base::invalid_argument("chunks are equal, balanced or striped, not " +
                                    std::string(chunks));
    }
    sim::SimulatedGroupOptions options;
    options.ranks = static_cast<std::uint16_t>(ranks);
    options.rate = base::bits_per_second(static_cast<std::int64_t>(rate));
    options.entropy_chunks = *rule;
    options.plan = {};
    *group = new experiment_group(options);
    return {};
  });
}

void experiment_group_close(experiment_group* group) {
  delete group;
}

const char* experiment_group_mean(experiment_group* group, const experiment_way* way,
                                  const float* parts, size_t length, float* mean,
                                  experiment_outcome* outcome) {
  return spillway::experiments::guarded([&]() -> base::Status {
    const auto operation = spillway::experiments::operation_of(*way, length);
    return operation.ok()
               ? spillway::experiments::take_mean(*group, *operation, parts, mean, *outcome)
               : operation.status();
  });
}
