// SPDX-License-Identifier: Apache-2.0
//
// Every plan, carried out for all ranks of a world over mailboxes: no transport, no time. Steps run
// in a random order among those that may, so that a missing dependency shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.h"
#include "collective/exact/plan.h"
#include "collective/exact/planner.h"
#include "collective/reduction.h"

namespace spillway::collective {
namespace {

using Bytes = std::vector<std::uint8_t>;

// (from, to, phase, part)
using MessageName = std::tuple<unsigned, unsigned, wire::Phase, unsigned>;

// memcpy, for vectors that may be empty.
void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

class World {
 public:
  World(const Operation& operation, std::uint16_t world, const PlanOptions& options, bool in_place,
        std::uint64_t seed, std::uint16_t servers = 0, const Shares& shares = {})
      : operation_(operation), world_(world), random_(seed) {
    for (std::uint16_t rank = 0; rank < world; ++rank) {
      Operation own = operation;
      if (operation.kind == Kind::kSend && rank == operation.root) {
        own.kind = Kind::kReceive;
        own.root = 0;
      }
      const Group group{rank, world, servers};
      Rank& state = ranks_.emplace_back();
      state.operation = own;
      const bool idles = operation.kind == Kind::kSend && rank != 0 && rank != operation.root;
      state.plan = idles ? Plan{} : make_plan(own, group, options, shares);
      state.input.resize(input_bytes(own, group));
      state.output.resize(output_bytes(own, group));
      state.scratch.resize(state.plan.scratch_bytes);
      fill(state.input, rank);
      if (in_place && !state.input.empty() && !state.output.empty()) {
        put_in_place(state, group);
      }
      for (const Step& step : state.plan.steps) {
        state.waits.push_back(step.waits_for);
      }
      state.done.resize(state.plan.steps.size());
    }
  }

  // Puts every other rank's tensors into a device's memory; copies take so many bytes at a time.
  void put_on_devices(std::size_t copy_bytes) {
    for (unsigned rank = 0; rank < world_; rank += 2) {
      Rank& state = ranks_[rank];
      state.is_on_device = true;
      state.plan = on_device(state.plan, state.input.size(), copy_bytes);
      state.on_device = std::exchange(state.input, Bytes(state.input.size(), 0xEE));
      state.output_on_device = state.output;
      if (!state.merged.empty()) {
        state.merged.assign(state.merged.size(), 0xEE);
      }
      state.waits.clear();
      for (const Step& step : state.plan.steps) {
        state.waits.push_back(step.waits_for);
      }
      state.done.resize(state.plan.steps.size());
    }
  }

  // As in a network without buffers: a message goes only when both ends are ready for it.
  bool run_without_buffers() {
    std::size_t left = 0;
    for (const Rank& rank : ranks_) {
      left += rank.plan.steps.size();
    }
    while (left > 0) {
      const std::size_t before = left;
      for (unsigned rank = 0; rank < world_; ++rank) {
        for (StepId id = 0; id < ranks_[rank].plan.steps.size(); ++id) {
          left -= run_if_both_are_ready(rank, id);
        }
        expect_few_messages(ranks_[rank]);
      }
      if (left == before) {
        return false;
      }
    }
    return mailbox_.empty();
  }

  // Every step as soon as it may, rank by rank.
  bool run_eagerly() {
    bool has_run = true;
    while (has_run) {
      has_run = false;
      for (unsigned rank = 0; rank < world_; ++rank) {
        for (StepId id = 0; id < ranks_[rank].plan.steps.size(); ++id) {
          if (can_run(rank, id)) {
            run_step(rank, id);
            has_run = true;
          }
        }
      }
    }
    return mailbox_.empty() && std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
             return std::find(rank.done.begin(), rank.done.end(), false) == rank.done.end();
           });
  }

  // False if nothing can run although steps are left.
  bool run() {
    std::size_t left = 0;
    for (const Rank& rank : ranks_) {
      left += rank.plan.steps.size();
    }
    while (left > 0) {
      std::vector<std::pair<unsigned, StepId>> ready;
      for (unsigned rank = 0; rank < world_; ++rank) {
        for (StepId id = 0; id < ranks_[rank].plan.steps.size(); ++id) {
          if (can_run(rank, id)) {
            ready.emplace_back(rank, id);
          }
        }
      }
      if (ready.empty()) {
        return false;
      }
      // A few at a time: looking for them is the expensive part.
      for (std::size_t i = 0; i < 1 + ready.size() / 4; ++i) {
        const auto [rank, id] = ready[random_.next_below(ready.size())];
        if (can_run(rank, id)) {
          run_step(rank, id);
          --left;
        }
      }
    }
    return mailbox_.empty();
  }

  const Bytes& output(unsigned rank) {
    Rank& state = ranks_[rank];
    return state.is_on_device ? state.taken_back() : state.output;
  }
  const Bytes& sent_by(unsigned rank) const { return originals_[rank]; }
  const Plan& plan(unsigned rank) const { return ranks_[rank].plan; }

 private:
  struct Rank {
    Operation operation;
    Plan plan;
    Bytes input;
    Bytes output;
    Bytes scratch;
    bool is_on_device = false;
    std::size_t input_offset = 0;
    std::size_t output_offset = 0;
    Bytes merged;
    Bytes on_device;         // the input on a device; in place, the output, too
    Bytes output_on_device;  // an output of its own on a device
    std::vector<std::uint32_t> waits;
    std::vector<bool> done;

    Bytes& taken_back() { return merged.empty() ? output_on_device : on_device; }
  };

  void fill(Bytes& bytes, unsigned rank) {
    if (is_floating(operation_.type)) {
      std::vector<float> values(bytes.size() / element_size(operation_.type));
      for (float& value : values) {
        value = static_cast<float>(random_.next_gaussian());
      }
      convert_from_float(operation_.type, values.data(), values.size(), bytes.data());
      originals_.push_back(bytes);
      return;
    }
    std::vector<std::int32_t> values(bytes.size() / 4);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<std::int32_t>(rank * 1000003 + i * 7 + 1);
    }
    copy(bytes.data(), values.data(), bytes.size());
    originals_.push_back(bytes);
  }

  // As NCCL has it: the smaller buffer lies in the larger one, at the rank's own block.
  void put_in_place(Rank& state, const Group& group) {
    state.merged = state.input.size() >= state.output.size() ? state.input : state.output;
    const bool same = state.input.size() == state.output.size();
    const std::size_t own = same ? 0 : group.rank * operation_.bytes();
    state.input_offset = state.input.size() < state.output.size() ? own : 0;
    state.output_offset = state.output.size() < state.input.size() ? own : 0;
    copy(state.merged.data() + state.input_offset, state.input.data(), state.input.size());
  }

  std::uint8_t* memory(Rank& rank, const Span& span) {
    const bool merged = !rank.merged.empty();
    switch (span.region) {
      case Region::kInput:
        return (merged ? rank.merged.data() + rank.input_offset : rank.input.data()) + span.offset;
      case Region::kOutput:
        return (merged ? rank.merged.data() + rank.output_offset : rank.output.data()) +
               span.offset;
      case Region::kScratch:
        return rank.scratch.data() + span.offset;
    }
    return nullptr;
  }

  bool can_run(unsigned rank, StepId id) {
    const Rank& state = ranks_[rank];
    if (state.done[id] || state.waits[id] > 0) {
      return false;
    }
    const Step& step = state.plan.steps[id];
    return step.kind != Step::Kind::kReceive ||
           mailbox_.contains({step.peer, rank, step.phase, step.part});
  }

  // Returns the number of steps done: of a sum, of a message at both ends, or 0.
  std::size_t run_if_both_are_ready(unsigned rank, StepId id) {
    Rank& state = ranks_[rank];
    const Step& step = state.plan.steps[id];
    if (state.done[id] || state.waits[id] > 0 || step.kind == Step::Kind::kReceive) {
      return 0;
    }
    if (step.kind != Step::Kind::kSend) {
      run_step(rank, id);
      return 1;
    }
    const std::vector<Step>& others = ranks_[step.peer].plan.steps;
    for (StepId other = 0; other < others.size(); ++other) {
      if (others[other].kind == Step::Kind::kReceive && others[other].peer == rank &&
          others[other].phase == step.phase && others[other].part == step.part) {
        if (ranks_[step.peer].waits[other] > 0) {
          return 0;
        }
        run_step(rank, id);
        run_step(step.peer, other);
        return 2;
      }
    }
    ADD_FAILURE() << "a message that nobody receives";
    return 0;
  }

  static void expect_few_messages(const Rank& rank) {
    std::size_t under_way = 0;
    for (StepId id = 0; id < rank.plan.steps.size(); ++id) {
      const Step::Kind kind = rank.plan.steps[id].kind;
      const bool is_message = kind == Step::Kind::kSend || kind == Step::Kind::kReceive;
      under_way += is_message && !rank.done[id] && rank.waits[id] == 0 ? 1 : 0;
    }
    ASSERT_LE(under_way, rank.plan.max_messages);
  }

  void run_step(unsigned rank, StepId id) {
    Rank& state = ranks_[rank];
    const Step& step = state.plan.steps[id];
    std::uint8_t* at = memory(state, step.span);
    switch (step.kind) {
      case Step::Kind::kSend: {
        const MessageName name{rank, step.peer, step.phase, step.part};
        EXPECT_FALSE(mailbox_.contains(name)) << "a message is sent twice";
        mailbox_[name] = Bytes(at, at + step.span.bytes);
        break;
      }
      case Step::Kind::kReceive: {
        const auto found = mailbox_.find({step.peer, rank, step.phase, step.part});
        ASSERT_EQ(found->second.size(), step.span.bytes);
        copy(at, found->second.data(), step.span.bytes);
        mailbox_.erase(found);
        break;
      }
      case Step::Kind::kReduce: {
        std::vector<const std::uint8_t*> sources;
        for (const Span& source : state.plan.sources_of(step)) {
          ASSERT_EQ(source.bytes, step.span.bytes);
          sources.push_back(memory(state, source));
        }
        reduce(operation_.type, operation_.op, sources,
               step.span.bytes / element_size(operation_.type), at, 0);
        break;
      }
      case Step::Kind::kCopyToHost:
        copy(at, state.on_device.data() + step.span.offset, step.span.bytes);
        break;
      case Step::Kind::kCopyToDevice:
        copy(state.taken_back().data() + step.span.offset, at, step.span.bytes);
        break;
      case Step::Kind::kCopy:
        std::memmove(at, memory(state, state.plan.sources_of(step).front()), step.span.bytes);
        break;
    }
    state.done[id] = true;
    for (const StepId next : state.plan.unlocked_by(step)) {
      --state.waits[next];
    }
    if (!state.merged.empty()) {
      copy(state.output.data(), state.merged.data() + state.output_offset, state.output.size());
    }
  }

  Operation operation_;
  std::uint16_t world_;
  base::RandomSequence random_;
  std::vector<Rank> ranks_;
  std::vector<Bytes> originals_;
  std::map<MessageName, Bytes> mailbox_;
};

Bytes block_of(const Bytes& bytes, std::size_t index, std::size_t size) {
  const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(index * size);
  return {first, first + static_cast<std::ptrdiff_t>(size)};
}

Bytes sum_of(const World& world, unsigned ranks, std::size_t first, std::size_t bytes) {
  std::vector<std::int32_t> sum(bytes / 4);
  for (unsigned rank = 0; rank < ranks; ++rank) {
    std::vector<std::int32_t> part(sum.size());
    copy(part.data(), world.sent_by(rank).data() + first, bytes);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += part[i];
    }
  }
  Bytes result(bytes);
  copy(result.data(), sum.data(), bytes);
  return result;
}

// The output that the operation should leave at `rank`.
Bytes expected(const World& world, const Operation& operation, unsigned ranks, unsigned rank) {
  const std::size_t bytes = operation.bytes();
  Bytes all;
  switch (operation.kind) {
    case Kind::kAllReduce:
      return sum_of(world, ranks, 0, bytes);
    case Kind::kReduce:
      return rank == operation.root ? sum_of(world, ranks, 0, bytes) : Bytes();
    case Kind::kReduceScatter:
      return sum_of(world, ranks, rank * bytes, bytes);
    case Kind::kBroadcast:
      return world.sent_by(operation.root);
    case Kind::kAllGather:
    case Kind::kGather:
      for (unsigned from = 0; from < ranks; ++from) {
        const Bytes& part = world.sent_by(from);
        all.insert(all.end(), part.begin(), part.end());
      }
      return operation.kind == Kind::kAllGather || rank == operation.root ? all : Bytes();
    case Kind::kScatter:
      return block_of(world.sent_by(operation.root), rank, bytes);
    case Kind::kAllToAll:
      for (unsigned from = 0; from < ranks; ++from) {
        const Bytes part = block_of(world.sent_by(from), rank, bytes);
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    case Kind::kSend:
      return rank == operation.root ? world.sent_by(0) : Bytes();
    default:
      return {};
  }
}

struct Case {
  Kind kind;
  Algorithm algorithm;
};

class EveryPlan : public testing::TestWithParam<Case> {
 protected:
  static Operation operation_of(std::uint16_t ranks, std::size_t count) {
    Operation operation;
    operation.kind = GetParam().kind;
    operation.algorithm = GetParam().algorithm;
    operation.type = DataType::kInt32;
    operation.count = count;
    operation.root = static_cast<std::uint16_t>(ranks - 1);
    return operation;
  }
};

void expect_right(World& world, const Operation& operation, unsigned ranks, bool in_place) {
  ASSERT_TRUE(world.run()) << ranks << " ranks, count " << operation.count;
  for (unsigned rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(world.output(rank), expected(world, operation, ranks, rank))
        << "rank " << rank << " of " << ranks << ", count " << operation.count
        << (in_place ? " in place" : "");
  }
}

constexpr PlanOptions kSmallPieces{.piece_bytes = 64, .window = 2, .message_bytes = 256};

TEST_P(EveryPlan, LeavesTheRightBytesAtEveryRank) {
  for (const std::uint16_t ranks : {1, 2, 3, 4, 5, 8, 13}) {
    for (const std::size_t count : {0, 1, 5, 40, 333}) {
      for (const bool in_place : {false, true}) {
        const Operation operation = operation_of(ranks, count);
        if (operation.kind == Kind::kSend && ranks == 1) {
          continue;
        }
        const bool shares = operation.kind != Kind::kAllToAll && operation.kind != Kind::kSend;
        World world(operation, ranks, kSmallPieces, in_place && shares, count * 100 + ranks);
        expect_right(world, operation, ranks, in_place);
      }
    }
  }
}

// All-reduces on devices may be in place.
TEST_P(EveryPlan, LeavesThemOnDevicesAsWell) {
  for (const std::uint16_t ranks : {2, 3, 5, 8}) {
    for (const std::size_t count : {1, 40, 333}) {
      for (const bool in_place : {false, true}) {
        const Operation operation = operation_of(ranks, count);
        World world(operation, ranks, kSmallPieces, in_place && operation.kind == Kind::kAllReduce,
                    count * 100 + ranks);
        world.put_on_devices(in_place ? 100 : 24);
        expect_right(world, operation, ranks, in_place);
      }
    }
  }
}

// However many pieces there are, a bounded number of messages is under way, and that is enough.
TEST_P(EveryPlan, NeedsNoMoreMessagesAtATimeThanItSays) {
  for (const std::uint16_t ranks : {2, 3, 5, 8}) {
    for (const std::size_t window : {1, 2, 4}) {
      const Operation operation = operation_of(ranks, 701);
      const PlanOptions options{
          .piece_bytes = 64, .window = window, .pair_window = window, .message_bytes = 64};
      World world(operation, ranks, options, /*in_place=*/false, ranks);
      ASSERT_TRUE(world.run_without_buffers()) << ranks << " ranks, window " << window;
      for (unsigned rank = 0; rank < ranks; ++rank) {
        ASSERT_EQ(world.output(rank), expected(world, operation, ranks, rank));
        EXPECT_LE(world.plan(rank).max_messages, 4U * window * ranks);
      }
    }
  }
}

// 64 GiB: what a rank has to keep of it, and what its messages carry.
TEST_P(EveryPlan, OfAHugeTensorFitsTablesMessagesAndMemory) {
  for (const std::uint16_t ranks : {2, 8}) {
    Operation operation;
    operation.kind = GetParam().kind;
    operation.algorithm = GetParam().algorithm;
    operation.count = (std::size_t{64} << 30) / 4;
    operation.root = static_cast<std::uint16_t>(ranks - 1);
    if (operation.kind == Kind::kReduceScatter || operation.kind == Kind::kAllGather ||
        operation.kind == Kind::kAllToAll) {
      operation.count /= ranks;
    }
    PlanOptions options;
    options.max_message_bytes = std::size_t{1408} * 65536;  // in packets of 1,500 bytes
    ASSERT_TRUE(check_size(operation, {0, ranks}, options).ok());
    const Plan plan = make_plan(operation, {0, ranks}, options);
    EXPECT_LE(plan.max_messages, 4U * options.window * ranks);
    EXPECT_LE(plan.scratch_bytes, std::size_t{1} << 30);
    EXPECT_LE(plan.steps.size(), 200'000U);
    for (const Step& step : plan.steps) {
      const bool is_message = step.kind == Step::Kind::kSend || step.kind == Step::Kind::kReceive;
      ASSERT_TRUE(!is_message || step.span.bytes <= options.max_message_bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, EveryPlan,
    testing::Values(
        Case{Kind::kAllReduce, Algorithm::kDirect}, Case{Kind::kAllReduce, Algorithm::kRing},
        Case{Kind::kAllReduce, Algorithm::kTree}, Case{Kind::kAllReduce, Algorithm::kHierarchical},
        Case{Kind::kReduceScatter, Algorithm::kDirect},
        Case{Kind::kReduceScatter, Algorithm::kRing}, Case{Kind::kAllGather, Algorithm::kDirect},
        Case{Kind::kAllGather, Algorithm::kRing}, Case{Kind::kBroadcast, Algorithm::kTree},
        Case{Kind::kBroadcast, Algorithm::kRing}, Case{Kind::kReduce, Algorithm::kTree},
        Case{Kind::kReduce, Algorithm::kDirect}, Case{Kind::kGather, Algorithm::kDirect},
        Case{Kind::kScatter, Algorithm::kDirect}, Case{Kind::kAllToAll, Algorithm::kDirect},
        Case{Kind::kBarrier, Algorithm::kDirect}, Case{Kind::kSend, Algorithm::kDirect}),
    [](const testing::TestParamInfo<Case>& info) {
      return std::string(kind_name(info.param.kind)) + "_" + algorithm_name(info.param.algorithm);
    });

// ---- One sum, whatever the plan

// The tree over the ranks' parts from `first` on.
Bytes tree_of(const World& world, const Operation& operation, unsigned ranks, std::size_t first) {
  std::vector<const std::uint8_t*> sources;
  for (unsigned rank = 0; rank < ranks; ++rank) {
    sources.push_back(world.sent_by(rank).data() + first);
  }
  Bytes sum(operation.bytes());
  reduce(operation.type, operation.op, sources, operation.count, sum.data(), 0);
  return sum;
}

void expect_the_tree(const Operation& operation, std::uint16_t ranks, const PlanOptions& options) {
  World world(operation, ranks, options, operation.count % 2 == 0, 10 * operation.count + ranks);
  ASSERT_TRUE(world.run_eagerly()) << describe(operation) << " among " << ranks;
  const bool scatters = operation.kind == Kind::kReduceScatter;
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    if (operation.kind == Kind::kReduce && rank != operation.root) {
      continue;
    }
    const std::size_t first = scatters ? rank * operation.bytes() : 0;
    ASSERT_EQ(world.output(rank), tree_of(world, operation, ranks, first))
        << describe(operation) << " at rank " << rank << " of " << ranks << ", "
        << algorithm_name(world.plan(rank).algorithm);
  }
}

constexpr std::array kOneSum{Case{Kind::kAllReduce, Algorithm::kDirect},
                             Case{Kind::kAllReduce, Algorithm::kTree},
                             Case{Kind::kAllReduce, Algorithm::kHierarchical},
                             Case{Kind::kReduce, Algorithm::kDirect},
                             Case{Kind::kReduce, Algorithm::kTree},
                             Case{Kind::kReduceScatter, Algorithm::kDirect}};

TEST(OneSum, IsTheSameBitsInEveryPlan) {
  for (const auto& [kind, algorithm] : kOneSum) {
    for (std::uint16_t ranks = 2; ranks <= 20; ++ranks) {
      for (const DataType type :
           {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBfloat16}) {
        Operation operation{
            .kind = kind, .type = type, .count = 61U + ranks, .algorithm = algorithm};
        operation.root = static_cast<std::uint16_t>(ranks / 3);
        expect_the_tree(operation, ranks, kSmallPieces);
      }
    }
  }
}

TEST(OneSum, IsTheSameBitsAmongManyRanks) {
  for (const auto& [kind, algorithm] : kOneSum) {
    for (const std::uint16_t ranks : {31, 64, 96, 100, 128, 255, 300}) {
      Operation operation{
          .kind = kind, .count = kind == Kind::kReduceScatter ? 2U : 301U, .algorithm = algorithm};
      operation.root = static_cast<std::uint16_t>(ranks / 3);
      expect_the_tree(operation, ranks, kSmallPieces);
    }
  }
}

TEST(OneSum, DoesNotDependOnPiecesRacksOrHosts) {
  for (const std::uint16_t ranks : {8, 12, 16}) {
    for (const std::size_t piece_bytes : {4, 20, 64, 100'000}) {
      for (const std::uint16_t rack : {0, 2, 3, 4}) {
        for (const std::uint16_t host : {0, 2, 3}) {
          Operation operation{.count = 403, .algorithm = Algorithm::kHierarchical};
          expect_the_tree(
              operation, ranks,
              {.piece_bytes = piece_bytes, .window = 3, .rack_ranks = rack, .host_ranks = host});
        }
      }
    }
  }
}

TEST(PlanOfServers, LeavesTheSumAtEveryWorker) {
  const PlanOptions options{.piece_bytes = 64, .window = 2, .message_bytes = 256};
  for (const std::uint16_t servers : {1, 2, 3, 7}) {
    for (const std::uint16_t workers : {1, 2, 5}) {
      for (const std::size_t count : {0, 1, 5, 40, 333}) {
        Operation operation;
        operation.type = DataType::kInt32;
        operation.count = count;
        const auto ranks = static_cast<std::uint16_t>(workers + servers);
        World world(operation, ranks, options, count % 2 == 0, count, servers);
        ASSERT_TRUE(world.run()) << workers << " workers, " << servers << " servers, " << count;
        for (unsigned rank = 0; rank < workers; ++rank) {
          ASSERT_EQ(world.output(rank), expected(world, operation, workers, rank))
              << workers << " workers, " << servers << " servers, count " << count;
        }
      }
    }
  }
}

TEST(PlanOfServers, LeavesAllElseToTheWorkers) {
  const PlanOptions options{.piece_bytes = 64, .window = 2, .message_bytes = 256};
  for (const Kind kind : {Kind::kBroadcast, Kind::kAllGather, Kind::kReduceScatter, Kind::kReduce,
                          Kind::kAllToAll, Kind::kGather, Kind::kScatter}) {
    Operation operation;
    operation.kind = kind;
    operation.type = DataType::kInt32;
    operation.count = 40;
    constexpr std::uint16_t kWorkers = 3;
    for (std::uint16_t rank = 0; rank < kWorkers; ++rank) {
      const Group with{rank, kWorkers + 2, 2};
      const Group without{rank, kWorkers};
      EXPECT_EQ(input_bytes(operation, with), input_bytes(operation, without));
      EXPECT_EQ(output_bytes(operation, with), output_bytes(operation, without));
      EXPECT_EQ(make_plan(operation, with, options).steps.size(),
                make_plan(operation, without, options).steps.size());
    }
  }
}

TEST(PlanOfServers, AddsUpInTheOrderOfRanks) {
  Operation operation;
  operation.count = 1000;
  constexpr std::uint16_t kWorkers = 4;
  const Plan plan = make_plan(operation, {kWorkers + 1, kWorkers + 2, 2},
                              {.piece_bytes = 256, .window = 2, .message_bytes = 256});
  std::map<std::size_t, unsigned> worker_at;  // by scratch offset
  for (const Step& step : plan.steps) {
    if (step.kind == Step::Kind::kReceive) {
      worker_at[step.span.offset] = step.peer;
    }
  }
  unsigned sums = 0;
  for (const Step& step : plan.steps) {
    if (step.kind == Step::Kind::kReduce) {
      ++sums;
      ASSERT_EQ(step.source_count, kWorkers);
      for (unsigned worker = 0; worker < kWorkers; ++worker) {
        EXPECT_EQ(worker_at.at(plan.sources_of(step)[worker].offset), worker);
      }
    }
  }
  EXPECT_EQ(sums, 8U);  // 500 elements, 64 in a piece
}

TEST(PlanOfServers, ScratchIsBoundedByTheWindow) {
  Operation operation;
  operation.count = 25'000'000;
  const PlanOptions options;
  const Plan plan = make_plan(operation, {8, 10, 2}, options);
  EXPECT_LE(plan.scratch_bytes, (8 + 1) * options.window * options.piece_bytes);
  EXPECT_EQ(make_plan(operation, {0, 10, 2}, options).scratch_bytes, 0U);
}

TEST(Planner, ScratchOfADirectAllReduceIsBoundedByTheWindow) {
  Operation operation;
  operation.count = 25'000'000;
  const PlanOptions options;
  const Plan plan = make_plan(operation, {.rank = 1, .world = 4}, options);
  EXPECT_LE(plan.scratch_bytes, 3 * options.window * options.piece_bytes);
  EXPECT_GT(plan.scratch_bytes, 0U);
}

// No cycle of waiting forms, whatever the shares are, even if nothing is buffered.
TEST(Planner, SharesChangeWhoAddsUpAndNothingElse) {
  const PlanOptions options{.piece_bytes = 64, .window = 2, .message_bytes = 256};
  constexpr std::uint16_t kRanks = 4;
  constexpr std::uint32_t kWhole = Shares::kWhole;
  for (const std::array<std::uint32_t, kRanks> weights :
       {std::array<std::uint32_t, kRanks>{kWhole, 0, 0, 0},
        {0, kWhole / 3, kWhole / 3, kWhole - kWhole / 3 * 2},
        {kWhole / 16, kWhole / 2, kWhole / 4, kWhole - kWhole / 16 * 13},
        {1, 1, 1, kWhole - 3}}) {
    for (const std::size_t count : {1, 5, 333, 2000}) {
      for (const bool is_buffered : {true, false}) {
        Operation operation;
        operation.type = DataType::kInt32;
        operation.count = count;
        World world(operation, kRanks, options, count % 2 == 0, count, /*servers=*/0,
                    Shares(weights));
        ASSERT_TRUE(is_buffered ? world.run() : world.run_without_buffers()) << count;
        for (unsigned rank = 0; rank < kRanks; ++rank) {
          ASSERT_EQ(world.output(rank), expected(world, operation, kRanks, rank)) << count;
        }
      }
    }
  }
}

TEST(Planner, LevelsLeaveTheSumAtEveryRank) {
  for (const auto& [ranks, rack] :
       {std::pair<std::uint16_t, std::uint16_t>{4, 2}, {6, 2}, {6, 3}, {12, 3}, {16, 4}}) {
    const PlanOptions options{
        .piece_bytes = 64, .window = 2, .message_bytes = 256, .rack_ranks = rack};
    for (const std::size_t count : {0, 1, 5, 40, 333, 1500}) {
      for (const bool is_buffered : {true, false}) {
        Operation operation;
        operation.type = DataType::kInt32;
        operation.algorithm = Algorithm::kHierarchical;
        operation.count = count;
        World world(operation, ranks, options, count % 2 == 0, count + ranks);
        ASSERT_EQ(world.plan(0).algorithm, Algorithm::kHierarchical);
        ASSERT_TRUE(is_buffered ? world.run() : world.run_without_buffers())
            << ranks << " ranks, " << rack << " in a rack, count " << count;
        for (unsigned rank = 0; rank < ranks; ++rank) {
          ASSERT_EQ(world.output(rank), expected(world, operation, ranks, rank))
              << "rank " << rank << " of " << ranks << ", count " << count;
        }
      }
    }
  }
}

TEST(Planner, LevelsSaveTheUplinks) {
  Operation operation;
  operation.count = 1'000'000;
  std::map<Algorithm, std::size_t> between;  // bytes that rank 0 sends to the other rack
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kHierarchical}) {
    operation.algorithm = algorithm;
    for (const Step& step : make_plan(operation, {0, 4}, {.rack_ranks = 2}).steps) {
      between[algorithm] += step.kind == Step::Kind::kSend && step.peer > 1 ? step.span.bytes : 0;
    }
  }
  EXPECT_EQ(between[Algorithm::kDirect], operation.bytes());
  EXPECT_EQ(between[Algorithm::kHierarchical], operation.bytes() / 2);
}

// A shard has 40,000 pieces for each of two racks unless they are longer.
TEST(Planner, PiecesOfLevelsCanBeNumbered) {
  Operation operation;
  operation.count = std::size_t{4} * 40'000;
  operation.algorithm = Algorithm::kHierarchical;
  const PlanOptions options{.piece_bytes = 4, .most_pieces = 40'000, .rack_ranks = 2};
  std::size_t last = 0;
  for (const Step& step : make_plan(operation, {0, 4}, options).steps) {
    last = std::max<std::size_t>(last, step.part);
  }
  EXPECT_EQ(last, 39'999U);
}

TEST(Planner, RacksCountWhereTheyAreKnownAndAlike) {
  Operation operation;
  operation.count = 1'000'000;
  EXPECT_EQ(choose_algorithm(operation, {0, 8}, {.rack_ranks = 4}), Algorithm::kHierarchical);
  EXPECT_EQ(choose_algorithm(operation, {0, 8}, {.rack_ranks = 3}), Algorithm::kDirect);
  EXPECT_EQ(choose_algorithm(operation, {0, 8}, {.rack_ranks = 8}), Algorithm::kDirect);
  operation.count = 1000;
  EXPECT_EQ(choose_algorithm(operation, {0, 8}, {.rack_ranks = 4}), Algorithm::kDirect);
  operation.algorithm = Algorithm::kHierarchical;
  EXPECT_EQ(choose_algorithm(operation, {0, 8}, {.rack_ranks = 4}), Algorithm::kHierarchical);
  // Any world with two levels has them where a caller asks.
  EXPECT_EQ(choose_algorithm(operation, {0, 8}), Algorithm::kHierarchical);
  EXPECT_EQ(choose_algorithm(operation, {0, 7}), Algorithm::kDirect);
  EXPECT_EQ(choose_algorithm(operation, {0, 2}), Algorithm::kDirect);
  operation.kind = Kind::kBroadcast;
  EXPECT_NE(choose_algorithm(operation, {0, 8}, {.rack_ranks = 4}), Algorithm::kHierarchical);
}

TEST(Planner, HostsAreTheFirstLevelAndRacksTheSecond) {
  using Factors = std::vector<std::uint16_t>;
  EXPECT_EQ(level_factors({0, 16}, {.host_ranks = 4}), (Factors{4, 4}));
  EXPECT_EQ(level_factors({0, 16}, {.rack_ranks = 8, .host_ranks = 2}), (Factors{2, 4, 2}));
  EXPECT_EQ(level_factors({0, 16}, {.rack_ranks = 4, .host_ranks = 4}), (Factors{4, 4}));
  EXPECT_EQ(level_factors({0, 12}, {.host_ranks = 4}), (Factors{4, 3}));
  // Sums of runs of three are not nodes of the tree.
  EXPECT_EQ(level_factors({0, 12}, {.host_ranks = 3}), (Factors{2, 2, 3}));
  Operation operation;
  operation.count = 1'000'000;
  EXPECT_EQ(choose_algorithm(operation, {0, 8}, {.host_ranks = 4}), Algorithm::kHierarchical);
  EXPECT_EQ(choose_algorithm(operation, {0, 12}, {.host_ranks = 3}), Algorithm::kDirect);
}

TEST(Planner, AlgorithmFollowsSizeAndWorldUnlessTheCallerSays) {
  Operation operation;
  operation.count = 1'000'000;
  EXPECT_EQ(choose_algorithm(operation, {0, 8}), Algorithm::kDirect);
  EXPECT_EQ(choose_algorithm(operation, {0, 1024}), Algorithm::kTree);
  operation.count = 10'000'000;
  EXPECT_EQ(choose_algorithm(operation, {0, 256}), Algorithm::kHierarchical);
  EXPECT_EQ(choose_algorithm(operation, {0, 255}), Algorithm::kDirect);
  operation.algorithm = Algorithm::kTree;
  EXPECT_EQ(choose_algorithm(operation, {0, 8}), Algorithm::kTree);
  EXPECT_EQ(choose_algorithm(operation, {0, 9, 1}), Algorithm::kServers);
  operation.kind = Kind::kAllGather;  // has no tree
  EXPECT_EQ(choose_algorithm(operation, {0, 8}), Algorithm::kDirect);
  operation.algorithm = Algorithm::kServers;
  EXPECT_EQ(choose_algorithm(operation, {0, 8}), Algorithm::kDirect);
}

TEST(Signature, TellsOperationsApartThatMustNotMeet) {
  Operation operation;
  operation.count = 1000;
  const std::uint64_t base = signature(operation);
  Operation other = operation;
  other.type = DataType::kFloat64;
  EXPECT_NE(signature(other), base);
  other = operation;
  other.op = ReduceOp::kMax;
  EXPECT_NE(signature(other), base);
  other = operation;
  other.kind = Kind::kBroadcast;
  EXPECT_NE(signature(other), base);
  other = operation;
  other.count = 1001;
  EXPECT_NE(signature(other), base);
  EXPECT_EQ(describe_signature(base), "all_reduce of float32 (sum)");
  Operation send;
  send.kind = Kind::kSend;
  Operation receive = send;
  receive.kind = Kind::kReceive;
  EXPECT_EQ(signature(send), signature(receive));
}

}  // namespace
}  // namespace spillway::collective
