// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/sum_soak.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "base/check.h"
#include "base/random.h"
#include "sim/network.h"

namespace spillway::sim {
namespace {

using transport::SumOptions;
using wire::RankSet;

// Longer than any fault, so that no peer is given up.
constexpr base::Duration kSumPeerTimeout = base::seconds(100);
// How long the network runs on after all sums have ended.
constexpr base::Duration kSumQuiet = base::seconds(1);

// First words of derived keys.
constexpr std::uint32_t kSumStartKeys = 1;
constexpr std::uint32_t kSumNeedKeys = 2;
constexpr std::uint32_t kSumNetworkKey = 3;

scenario::NodeId switch_of(const scenario::Topology& topology, HostId host) {
  const auto link = std::ranges::find_if(
      topology.links, [host](const scenario::Link& of) { return std::min(of.a, of.b) == host; });
  return std::max(link->a, link->b);
}

RankSet contributors_of(const SumJobPlan& job, std::uint16_t piece) {
  RankSet ranks = RankSet::below(job.ranks);
  ranks.erase(job.owners[piece]);
  return ranks;
}

// The numbers of parts that switches wait for, as a job counts them that knows its racks. Level 0:
// the contributors at this rank's switch. Level 1: those that are not at the owner's switch.
std::array<std::uint8_t, SPILLWAY_SUM_LEVELS> need_of(const scenario::Topology& topology,
                                                      const SumJobPlan& job, std::uint16_t piece,
                                                      std::uint16_t rank) {
  std::array<std::uint8_t, SPILLWAY_SUM_LEVELS> need{};
  const auto node = [&](std::uint16_t of) { return switch_of(topology, job.first_host + of); };
  contributors_of(job, piece).for_each([&](std::uint16_t other) {
    need[0] += node(other) == node(rank) ? 1 : 0;
    need[1] += node(other) != node(job.owners[piece]) ? 1 : 0;
  });
  return need;
}

class SumSoak {
 public:
  explicit SumSoak(SumWorld world)
      : world_(std::move(world)),
        topology_(scenario::build_topology(world_.scenario).value()),
        network_(topology_, base::derive_key(world_.seed, {kSumNetworkKey, 0, 0, 0})) {}

  SumSoakResult run() {
    for (std::uint32_t job = 0; job < world_.jobs.size(); ++job) {
      add_job(job);
    }
    if (world_.attack) {
      network_.add_stack(world_.attack->host, std::make_unique<SumForger>(world_, network_.pool()));
      network_.wake(world_.attack->host);
    }
    for (const scenario::Fault& fault : world_.scenario.faults) {
      SPILLWAY_CHECK(network_.add_fault(fault).ok());
    }
    network_.run_until(world_.limit, is_over_);
    network_.run_until(network_.now() + kSumQuiet);
    finish();
    std::vector<std::string> failures = check_sums(world_, record_);
    return {std::move(world_), std::move(record_), std::move(failures)};
  }

 private:
  using Name = std::tuple<std::uint32_t, std::uint64_t, std::uint16_t, std::uint16_t>;

  void add_job(std::uint32_t index) {
    const SumJobPlan& job = world_.jobs[index];
    std::vector<SumStack*>& stacks = stacks_.emplace_back();
    for (HostId host = 0; host < network_.hosts(); ++host) {
      const bool takes_part = host >= job.first_host && host < job.first_host + job.ranks;
      auto stack = std::make_unique<SumStack>(
          config_of(job, index, takes_part ? host - job.first_host : 0), network_.pool(),
          [this, index, rank = static_cast<std::uint16_t>(host - job.first_host)](
              const transport::SumReport& report) { on_report(index, rank, report); });
      if (takes_part) {
        stacks.push_back(stack.get());
      }
      SPILLWAY_CHECK(network_.add_stack(host, std::move(stack)) == index);
    }
    for (std::uint64_t operation = 0; operation < job.operations; ++operation) {
      for (std::uint16_t rank = 0; rank < job.ranks; ++rank) {
        schedule(index, operation, rank);
      }
    }
  }

  static SumStack::Config config_of(const SumJobPlan& job, std::uint32_t index, HostId rank) {
    SumStack::Config config;
    config.endpoint.job = job.number;
    config.endpoint.rank = static_cast<std::uint16_t>(rank);
    config.endpoint.exchange.peer_timeout = kSumPeerTimeout;
    config.session.key.bytes.fill(static_cast<std::uint8_t>(job.number));
    config.stack = static_cast<std::uint8_t>(index);
    config.first_host = job.first_host;
    config.ranks = job.ranks;
    return config;
  }

  void schedule(std::uint32_t index, std::uint64_t operation, std::uint16_t rank) {
    const SumJobPlan& job = world_.jobs[index];
    base::RandomSequence random(base::derive_key(
        world_.seed, {kSumStartKeys, index, static_cast<std::uint32_t>(operation), rank}));
    const auto late = static_cast<std::int64_t>(
        random.next_below(static_cast<std::uint64_t>(job.jitter.count()) + 1));
    const base::Instant when(job.gap * static_cast<std::int64_t>(operation) +
                             base::nanoseconds(late));
    open_[{index, operation, rank}] = job.owners.size();
    network_.at(when, [this, index, operation, rank](base::Instant now) {
      for (std::uint16_t piece = 0; piece < world_.jobs[index].owners.size(); ++piece) {
        begin({index, operation, piece, rank}, now);
      }
      network_.wake(world_.jobs[index].first_host + rank);
    });
  }

  void begin(const Name& name, base::Instant now) {
    const auto [index, operation, piece, rank] = name;
    const SumJobPlan& job = world_.jobs[index];
    SumRecord& sum = sums_[name];
    sum = {.job = index,
           .operation = operation,
           .piece = piece,
           .rank = rank,
           .words = {},
           .ranks = std::vector<RankSet>(job.chunks)};
    sum.words.resize(std::size_t{job.chunks} * SPILLWAY_SUM_WORDS);
    const bool is_owner = job.owners[piece] == rank;
    if (!is_owner || job.owners_contribute) {
      for (std::size_t i = 0; i < sum.words.size(); ++i) {
        sum.words[i] = sum_part(job, operation, piece, rank, i);
      }
    }
    SPILLWAY_CHECK(stacks_[index][rank]->begin(options_of(name, sum), now).ok());
  }

  SumOptions options_of(const Name& name, SumRecord& sum) const {
    const auto [index, operation, piece, rank] = name;
    const SumJobPlan& job = world_.jobs[index];
    SumOptions options;
    options.id = {.operation = operation,
                  .signature = sum_signature(job.number, operation),
                  .piece = piece,
                  .owner = job.owners[piece]};
    options.contributors = contributors_of(job, piece);
    options.recipients = options.contributors;
    options.owner_contributes = job.owners_contribute;
    options.need = need_of(topology_, job, piece, rank);
    if (job.is_wrong_about_need) {
      base::RandomSequence random(
          base::derive_key(world_.seed, {kSumNeedKeys, index, piece, rank}));
      options.need = {static_cast<std::uint8_t>(random.next_below(12)),
                      static_cast<std::uint8_t>(random.next_below(12))};
    }
    options.urgency = job.urgency;
    options.loss_bound_ppm = job.loss_bound_ppm;
    options.words = sum.words;
    options.ranks = sum.ranks;
    return options;
  }

  void on_report(std::uint32_t index, std::uint16_t rank, const transport::SumReport& report) {
    if (report.stage != transport::SumStage::kOver) {
      return;
    }
    sums_.at({index, report.id.operation, report.id.piece, rank}).is_over = true;
    const auto open = open_.find({index, report.id.operation, rank});
    if (--open->second == 0) {
      open_.erase(open);
      stacks_[index][rank]->retire(report.id.operation);
    }
    is_over_ = open_.empty();
  }

  void finish() {
    for (auto& [name, sum] : sums_) {
      note_missing(sum);
      record_.sums.push_back(std::move(sum));
    }
    for (const AdderTotals& adder : network_.adders()) {
      for (unsigned i = 0; i < SPILLWAY_SUM_OUTCOMES; ++i) {
        record_.switches.outcomes[i] += adder.counters.outcomes[i];
      }
      record_.switches.lost_slots += adder.counters.lost_slots;
      record_.switches.copies += adder.counters.copies;
    }
    for (const std::vector<SumStack*>& stacks : stacks_) {
      for (const SumStack* stack : stacks) {
        for (const std::uint64_t faults : stack->port().faults()) {
          record_.refused += faults;
        }
      }
    }
    const NetworkTotals totals = network_.totals();
    record_.packets = totals.sent;
    record_.packets_left = network_.pool().in_use();
    record_.digest = totals.sent * 31 + totals.delivered * 37 + totals.lost * 41 +
                     static_cast<std::uint64_t>(network_.now().since_zero().count()) * 43 +
                     network_.events_run();
  }

  void note_missing(const SumRecord& sum) {
    const SumJobPlan& job = world_.jobs[sum.job];
    if (job.owners[sum.piece] != sum.rank) {
      return;
    }
    for (const RankSet& ranks : sum.ranks) {
      const RankSet contributors = contributors_of(job, sum.piece);
      record_.parts += contributors.size();
      record_.missing += (contributors - ranks).size();
    }
  }

  SumWorld world_;
  scenario::Topology topology_;
  Network network_;
  std::vector<std::vector<SumStack*>> stacks_;  // owned by the network; by job and rank
  std::map<Name, SumRecord> sums_;
  // Number of unfinished sums, by job, operation and rank.
  std::map<std::tuple<std::uint32_t, std::uint64_t, std::uint16_t>, std::size_t> open_;
  bool is_over_ = false;
  SumSoakRecord record_;
};

// ------------------------------------------------------------------ checks

class SumChecker {
 public:
  SumChecker(const SumWorld& world, const SumSoakRecord& record) : world_(world), record_(record) {}

  std::vector<std::string> check() && {
    for (const SumRecord& sum : record_.sums) {
      if (!sum.is_over) {
        fail(sum, "was not over in time");
        continue;
      }
      check_words(sum);
      check_names(sum);
      check_bound(sum);
    }
    if (record_.packets_left != 0) {
      failures_.push_back(fmt::format("{} packets are left on their way", record_.packets_left));
    }
    return std::move(failures_);
  }

 private:
  const SumJobPlan& job_of(const SumRecord& sum) const { return world_.jobs[sum.job]; }

  void fail(const SumRecord& sum, const std::string& what) {
    failures_.push_back(fmt::format("job {} operation {} piece {} at rank {} {}",
                                    job_of(sum).number, sum.operation, sum.piece, sum.rank, what));
  }

  void check_words(const SumRecord& sum) {
    const SumJobPlan& job = job_of(sum);
    for (std::size_t i = 0; i < sum.words.size(); ++i) {
      std::uint64_t expected = 0;
      sum.ranks[i / SPILLWAY_SUM_WORDS].for_each([&](std::uint16_t rank) {
        expected += sum_part(job, sum.operation, sum.piece, rank, i);
      });
      if (sum.words[i] != expected) {
        fail(sum, fmt::format("has a chunk {} that is not the sum of the {} ranks it names",
                              i / SPILLWAY_SUM_WORDS, sum.ranks[i / SPILLWAY_SUM_WORDS].size()));
        return;
      }
    }
  }

  void check_names(const SumRecord& sum) {
    const SumJobPlan& job = job_of(sum);
    const auto owners = std::ranges::find_if(record_.sums, [&](const SumRecord& other) {
      return other.job == sum.job && other.operation == sum.operation && other.piece == sum.piece &&
             other.rank == job.owners[sum.piece];
    });
    if (owners->ranks != sum.ranks) {
      fail(sum, "names other ranks than its owner does");
    }
    const bool names_owner = std::ranges::all_of(sum.ranks, [&](const RankSet& ranks) {
      return ranks.contains(job.owners[sum.piece]) == job.owners_contribute;
    });
    if (!names_owner) {
      fail(sum, "is wrong about whether its owner is in it");
    }
  }

  void check_bound(const SumRecord& sum) {
    const SumJobPlan& job = job_of(sum);
    const RankSet contributors = contributors_of(job, sum.piece);
    std::uint64_t missing = 0;
    for (const RankSet& ranks : sum.ranks) {
      missing += (contributors - ranks).size();
    }
    const std::uint64_t allowed =
        std::uint64_t{contributors.size()} * job.chunks * job.loss_bound_ppm / 1'000'000;
    if (missing > allowed) {
      fail(sum, fmt::format("lacks {} parts, where {} may be missing", missing, allowed));
    }
  }

  const SumWorld& world_;
  const SumSoakRecord& record_;
  std::vector<std::string> failures_;
};

}  // namespace

std::uint64_t sum_part(const SumJobPlan& job, std::uint64_t operation, std::uint16_t piece,
                       std::uint16_t rank, std::size_t word) {
  std::uint64_t value =
      (std::uint64_t{job.number} << 48 | operation << 32 | std::uint64_t{piece} << 16 | rank) *
          0x9E3779B97F4A7C15ULL +
      word * 0xC2B2AE3D27D4EB4FULL;
  value ^= value >> 29;
  // The sum of all ranks' values fits into a word, so switches' sums never overflow.
  return value * 0xBF58476D1CE4E5B9ULL / SPILLWAY_SUM_RANKS;
}

std::vector<std::string> check_sums(const SumWorld& world, const SumSoakRecord& record) {
  return SumChecker(world, record).check();
}

SumSoakResult run_sum_world(std::uint64_t seed) {
  return run_sum_world(draw_sum_world(seed));
}

SumSoakResult run_sum_world(const SumWorld& world) {
  return SumSoak(world).run();
}

}  // namespace spillway::sim
