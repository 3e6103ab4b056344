// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/aggregation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "wire/sum_packet.h"

namespace spillway::scenario {

// ------------------------------------------------------------------ switches that add

namespace {

constexpr std::array<Choice<std::uint8_t>, SPILLWAY_SUM_POLICIES> kPolicies = {
    {{"static", SPILLWAY_SUM_STATIC},
     {"first-come", SPILLWAY_SUM_FIRST_COME},
     {"preemptive", SPILLWAY_SUM_PREEMPTIVE}}};

// Switches keep the lease in 32 bits of microseconds.
ValueReader to_lease(std::uint32_t& lease_us) {
  return [&lease_us](std::string_view text) -> base::Status {
    base::Duration lease;
    if (base::Status status = to_duration(lease)(text); !status.ok()) {
      return status;
    }
    const std::int64_t microseconds = lease.count() / 1000;
    if (microseconds < 1 || microseconds > std::numeric_limits<std::uint32_t>::max()) {
      return base::invalid_argument("a lease is from 1us to 4294s");
    }
    lease_us = static_cast<std::uint32_t>(microseconds);
    return {};
  };
}

// Reads "job:slots".
base::Status read_limit(std::string_view text, std::vector<JobSlots>& limits) {
  JobSlots limit;
  const std::size_t colon = text.find(':');
  const bool is_read =
      colon != std::string_view::npos && to_number(limit.job)(text.substr(0, colon)).ok() &&
      to_number(limit.slots, 1, SPILLWAY_SUM_MAX_SLOTS)(text.substr(colon + 1)).ok();
  if (!is_read) {
    return base::invalid_argument(
        fmt::format("'{}' is not a job and its slots, such as 1:64", text));
  }
  const bool is_known = std::ranges::any_of(
      limits, [&limit](const JobSlots& other) { return other.job == limit.job; });
  if (is_known) {
    return base::invalid_argument(fmt::format("job {} has two limits", limit.job));
  }
  limits.push_back(limit);
  return {};
}

ValueReader to_limits(std::vector<JobSlots>& limits) {
  return [&limits](std::string_view text) -> base::Status {
    base::Status status;
    while (status.ok() && !text.empty()) {
      const std::size_t end = std::min(text.find(','), text.size());
      status = read_limit(text.substr(0, end), limits);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (status.ok() && limits.size() > SPILLWAY_SUM_JOBS) {
      return base::invalid_argument(fmt::format("at most {} jobs", SPILLWAY_SUM_JOBS));
    }
    return status;
  };
}

// Switches keep jobs in a hash table; all limited jobs must fit into it.
base::Status check_rows(const std::vector<JobSlots>& limits) {
  spillway_sum_directory directory = {};
  for (const JobSlots& limit : limits) {
    const std::uint32_t row = spillway_find_row(&directory, spillway_sum_name(limit.job), 0, 0);
    if (row == SPILLWAY_SUM_NO_JOB) {
      return base::invalid_argument(
          fmt::format("there is no room for the limit of job {} beside the others", limit.job));
    }
    directory.seen_s[row] = SPILLWAY_SUM_JOB_FIXED;
  }
  return {};
}

base::Status check(const Aggregation& aggregation, bool gives_pools) {
  const spillway_sum_config& config = aggregation.config;
  if (gives_pools && config.policy != SPILLWAY_SUM_STATIC) {
    return base::invalid_argument("pools= are for policy=static; the others share all slots");
  }
  if (config.pools > config.slots) {
    return base::invalid_argument(fmt::format("{} pools of {} slots: every pool needs one at least",
                                              config.pools, config.slots));
  }
  for (const JobSlots& limit : aggregation.limits) {
    if (limit.slots > config.slots) {
      return base::invalid_argument(fmt::format(
          "job {} may hold {} slots, but there are {}: raise slots=, or lower its limit", limit.job,
          limit.slots, config.slots));
    }
  }
  return check_rows(aggregation.limits);
}

}  // namespace

bool Aggregation::is_for(std::string_view switch_name) const {
  if (switches.empty()) {
    return true;
  }
  return switches.back() == '*'
             ? switch_name.starts_with(std::string_view(switches).substr(0, switches.size() - 1))
             : switch_name == switches;
}

base::Status read_aggregation(const Directive& directive, Aggregation& aggregation) {
  aggregation.place = directive.place;
  spillway_sum_config& config = aggregation.config;
  const base::Status status = read_values(
      directive,
      {{"switch", to_text(aggregation.switches)},
       {"slots", to_number(config.slots, 1, SPILLWAY_SUM_MAX_SLOTS)},
       {"policy", to_choice<std::uint8_t>(config.policy, {kPolicies.begin(), kPolicies.end()})},
       {"level", to_number(config.level, 0, SPILLWAY_SUM_LEVELS - 1)},
       {"lease", to_lease(config.lease_us)},
       {"pools", to_number(config.pools, 1)},
       {"limits", to_limits(aggregation.limits)}});
  if (!status.ok()) {
    return status;
  }
  const bool gives_pools = std::ranges::any_of(
      directive.values, [](const KeyValue& given) { return given.key == "pools"; });
  const base::Status fits = check(aggregation, gives_pools);
  return fits.ok() ? fits
                   : base::invalid_argument(
                         fmt::format("{}: aggregate: {}", directive.place, fits.message()));
}

std::string_view policy_name(std::uint8_t policy) {
  const auto found = std::ranges::find(kPolicies, policy, &Choice<std::uint8_t>::value);
  return found == kPolicies.end() ? "unknown" : found->name;
}

// ------------------------------------------------------------------ training jobs

namespace {

constexpr std::uint64_t kMaxLayers = 1024;
constexpr std::uint64_t kMaxSteps = 1'000'000;
constexpr base::Bytes kMaxLayerBytes = base::bytes(1 << 30);
constexpr base::Duration kLongestLayer = base::seconds(1'000);

// Per-layer values as written: one for all layers, or one for each.
struct LayerLists {
  std::uint32_t layers = 0;  // 0: the length of the longest list
  std::vector<base::Bytes> bytes = {base::bytes(1'000'000)};
  std::vector<base::Duration> forward = {base::milliseconds(1)};
  std::vector<base::Duration> backward = {base::milliseconds(2)};
};

template <typename T>
ValueReader to_list(std::vector<T>& out, ValueReader (*reader)(T&)) {
  return [&out, reader](std::string_view text) -> base::Status {
    out.clear();
    base::Status status;
    while (status.ok() && out.size() < kMaxLayers) {
      const std::size_t comma = text.find(',');
      status = reader(out.emplace_back())(text.substr(0, comma));
      if (comma == std::string_view::npos) {
        return status;
      }
      text.remove_prefix(comma + 1);
    }
    return status.ok() ? not_in_range(text, 1, kMaxLayers) : status;
  };
}

base::Status wrong_training(const Training& training, std::string_view what) {
  return base::invalid_argument(fmt::format("{}: training: {}", training.place, what));
}

template <typename T>
const T& figure_of(const std::vector<T>& list, std::size_t layer) {
  return list.size() == 1 ? list.front() : list[layer];
}

base::Status lay_out(const LayerLists& lists, Training& training) {
  const std::size_t longest =
      std::max({lists.bytes.size(), lists.forward.size(), lists.backward.size()});
  const std::size_t count = lists.layers > 0 ? lists.layers : longest;
  for (const std::size_t size : {lists.bytes.size(), lists.forward.size(), lists.backward.size()}) {
    if (size != 1 && size != count) {
      return wrong_training(
          training,
          fmt::format("a list of {} for {} layers: give one value, or one for each", size, count));
    }
  }
  for (std::size_t layer = 0; layer < count; ++layer) {
    training.layers.push_back({figure_of(lists.bytes, layer), figure_of(lists.forward, layer),
                               figure_of(lists.backward, layer)});
  }
  return {};
}

base::Status check_training(const Training& training) {
  if (training.hosts() > SPILLWAY_SUM_RANKS) {
    return wrong_training(training,
                          fmt::format("at most {} workers and servers", SPILLWAY_SUM_RANKS));
  }
  for (const TrainingLayer& layer : training.layers) {
    if (layer.bytes < base::bytes(sizeof(float)) || layer.bytes > kMaxLayerBytes) {
      return wrong_training(training, "a layer has 4 bytes to 1GiB of gradients");
    }
    if (std::max(layer.forward, layer.backward) > kLongestLayer) {
      return wrong_training(training, "a layer computes for at most 1000s");
    }
  }
  if (training.codec == TrainingCodec::kLevels && training.bits > 4 && training.bits != 8) {
    return wrong_training(training, "bits= with codec=levels are 2, 3, 4 or 8");
  }
  return {};
}

}  // namespace

base::Status read_training(const Directive& directive, Training& training) {
  training.place = directive.place;
  LayerLists lists;
  const base::Status status = read_values(
      directive,
      {{"name", to_text(training.name)},
       {"workers", to_number(training.workers, 2, SPILLWAY_SUM_RANKS)},
       {"servers", to_number(training.servers, 0, SPILLWAY_SUM_RANKS)},
       {"layers", to_number(lists.layers, 1, kMaxLayers)},
       {"bytes", to_list(lists.bytes, to_bytes)},
       {"forward", to_list(lists.forward, to_duration)},
       {"backward", to_list(lists.backward, to_duration)},
       {"jitter", to_fraction(training.jitter)},
       {"steps", to_number(training.steps, 1, kMaxSteps)},
       {"start", to_instant(training.start)},
       {"codec", to_choice<TrainingCodec>(training.codec, {{"levels", TrainingCodec::kLevels},
                                                           {"blocks", TrainingCodec::kBlocks}})},
       {"bits", to_number(training.bits, 2, 8)},
       {"scale", to_choice<ScaleRule>(training.scale, {{"agreed", ScaleRule::kAgreed},
                                                       {"predicted", ScaleRule::kPredicted}})},
       {"urgency",
        to_choice<UrgencyRule>(training.urgency, {{"esa", UrgencyRule::kEsa},
                                                  {"priority", UrgencyRule::kPriority}})}});
  if (!status.ok()) {
    return status;
  }
  const base::Status laid_out = lay_out(lists, training);
  return laid_out.ok() ? check_training(training) : laid_out;
}

}  // namespace spillway::scenario
