// SPDX-License-Identifier: Apache-2.0
#include "launch/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace spillway::launch {
namespace {

using Names = std::vector<std::string>;

// No node has a longer number, which might not fit into 32 bits.
constexpr std::size_t kMaxDigits = 9;

base::Status malformed_list(std::string_view list) {
  return base::invalid_argument(
      fmt::format("'{}' is not a list of nodes such as gnode[10,20-25],login1", list));
}

base::Status too_many(std::string_view list) {
  return {base::StatusCode::kLimitExceeded,
          fmt::format("the list of nodes '{}' names more than {}", list, kMaxNodes)};
}

bool parse_number(std::string_view text, std::uint32_t& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && text.size() <= kMaxDigits;
}

// Returns the item before the next comma outside brackets, and removes both from `list`.
std::string_view take_item(std::string_view& list) {
  int depth = 0;
  std::size_t end = 0;
  for (; end < list.size() && (depth > 0 || list[end] != ','); ++end) {
    depth += list[end] == '[' ? 1 : 0;
    depth -= list[end] == ']' ? 1 : 0;
  }
  const std::string_view item = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  return item;
}

// Appends the numbers of "20-25" or "037". Returns false if malformed or too many.
bool append_range(std::string_view range, Names& numbers) {
  const std::size_t dash = std::min(range.find('-'), range.size());
  const std::string_view first_text = range.substr(0, dash);
  const std::string_view last_text = dash < range.size() ? range.substr(dash + 1) : first_text;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  if (!parse_number(first_text, first) || !parse_number(last_text, last) || last < first ||
      last - first >= kMaxNodes) {
    return false;
  }
  for (std::uint32_t number = first; number <= last; ++number) {
    numbers.push_back(fmt::format("{:0{}}", number, first_text.size()));
  }
  return numbers.size() <= kMaxNodes;
}

// The inside of a bracket: "10,20-25,037".
bool parse_bracket(std::string_view inside, Names& numbers) {
  do {
    const std::size_t comma = std::min(inside.find(','), inside.size());
    if (!append_range(inside.substr(0, comma), numbers)) {
      return false;
    }
    inside.remove_prefix(std::min(comma + 1, inside.size()));
  } while (!inside.empty());
  return true;
}

// Every name with every ending, the endings varying fastest.
Names joined(const Names& names, const Names& endings) {
  Names longer;
  longer.reserve(names.size() * endings.size());
  for (const std::string& name : names) {
    for (const std::string& ending : endings) {
      longer.push_back(name + ending);
    }
  }
  return longer;
}

// One item of the list, "rack[1-2]n[01-04]". `whole` is for messages.
base::Result<Names> expand_item(std::string_view item, std::string_view whole) {
  if (item.empty()) {
    return malformed_list(whole);
  }
  Names names = {""};
  while (!item.empty()) {
    const std::size_t open = std::min(item.find('['), item.size());
    names = joined(names, {std::string(item.substr(0, open))});
    item.remove_prefix(open);
    if (item.empty()) {
      break;
    }
    const std::size_t close = item.find(']');
    Names numbers;
    if (close == std::string_view::npos || !parse_bracket(item.substr(1, close - 1), numbers)) {
      return malformed_list(whole);
    }
    if (names.size() * numbers.size() > kMaxNodes) {
      return too_many(whole);
    }
    names = joined(names, numbers);
    item.remove_prefix(close + 1);
  }
  return names;
}

bool only_name_characters(std::string_view list) {
  return std::all_of(list.begin(), list.end(), [](unsigned char c) { return c > ' ' && c < 127; });
}

}  // namespace

base::Result<Names> expand_node_list(std::string_view list) {
  const std::string_view whole = list;
  if (list.empty() || list.back() == ',' || !only_name_characters(list)) {
    return malformed_list(whole);
  }
  Names names;
  while (!list.empty()) {
    base::Result<Names> item = expand_item(take_item(list), whole);
    if (!item.ok()) {
      return item.status();
    }
    if (names.size() + item->size() > kMaxNodes) {
      return too_many(whole);
    }
    names.insert(names.end(), item->begin(), item->end());
  }
  if (std::any_of(names.begin(), names.end(), [](const std::string& name) {
        return name.find_first_of("[]") != std::string::npos;
      })) {
    return malformed_list(whole);
  }
  return names;
}

base::Result<std::vector<std::uint32_t>> expand_task_counts(std::string_view list) {
  const base::Status wrong = base::invalid_argument(
      fmt::format("'{}' is not a list of tasks per node such as 2(x3),1", list));
  std::vector<std::uint32_t> counts;
  do {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view item = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    std::uint32_t times = 1;
    const std::size_t open = item.find("(x");
    if (open != std::string_view::npos) {
      if (item.back() != ')' ||
          !parse_number(item.substr(open + 2, item.size() - open - 3), times)) {
        return wrong;
      }
      item = item.substr(0, open);
    }
    std::uint32_t tasks = 0;
    if (!parse_number(item, tasks) || times + counts.size() > kMaxNodes) {
      return wrong;
    }
    counts.insert(counts.end(), times, tasks);
  } while (!list.empty());
  return counts;
}

namespace {

// A step's variables override the job's: a job's first step may use only half of its nodes.
std::string_view either(const base::Environment& environment, std::string_view of_step,
                        std::string_view of_job) {
  return environment.has(of_step) ? of_step : of_job;
}

base::Result<std::uint32_t> number_or_zero(const base::Environment& environment,
                                           std::string_view name, std::uint32_t most) {
  return environment.has(name) ? environment.number_of(name, {0, most})
                               : base::Result<std::uint32_t>(0);
}

// Number of tasks on this node; 1 if Slurm does not say.
base::Result<std::uint32_t> tasks_here(const base::Environment& environment) {
  const std::string_view name =
      either(environment, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  if (!environment.has(name)) {
    return std::uint32_t{1};
  }
  const auto counts = expand_task_counts(environment.get_or(name, ""));
  const auto node = number_or_zero(environment, "SLURM_NODEID", kMaxNodes);
  if (!counts.ok()) {
    return base::invalid_argument(fmt::format("{}: {}", name, counts.status().message()));
  }
  if (!node.ok()) {
    return node.status();
  }
  return *node < counts->size() ? (*counts)[*node] : std::uint32_t{1};
}

base::Result<RankPosition> slurm_position(const base::Environment& environment) {
  base::Result<RankPosition> position = read_position(
      environment,
      {"SLURM_PROCID", either(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), {}, {}});
  if (!position.ok()) {
    return position;
  }
  const auto local_rank = number_or_zero(environment, "SLURM_LOCALID", kMaxRanks - 1);
  const auto local_world = tasks_here(environment);
  if (!local_rank.ok()) {
    return local_rank.status();
  }
  if (!local_world.ok()) {
    return local_world.status();
  }
  if (*local_rank >= *local_world || *local_world > position->world) {
    return base::invalid_argument(fmt::format(
        "Slurm's variables do not fit together: SLURM_LOCALID is {} of {} tasks on this "
        "node and {} in all; set SPILLWAY_RANK and SPILLWAY_WORLD_SIZE",
        *local_rank, *local_world, position->world));
  }
  position.value().local_rank = static_cast<std::uint16_t>(*local_rank);
  position.value().local_world = static_cast<std::uint16_t>(*local_world);
  position.value().is_local_known = environment.has("SLURM_LOCALID");
  return position;
}

base::Result<RendezvousPoint> meeting_of_step(const base::Environment& environment,
                                              const RankPosition&) {
  return slurm_meeting(environment);
}

}  // namespace

std::vector<std::string> slurm_identity(const base::Environment& environment) {
  return words_of(environment, {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"});
}

base::Result<RendezvousPoint> slurm_meeting(const base::Environment& environment) {
  const std::string_view name = either(environment, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  if (!environment.has(name) || !environment.has("SLURM_JOB_ID")) {
    return no_meeting_place(fmt::format(
        "Slurm set no {}",
        environment.has(name) ? "SLURM_JOB_ID" : "SLURM_STEP_NODELIST or SLURM_JOB_NODELIST"));
  }
  const auto nodes = expand_node_list(environment.get_or(name, ""));
  if (!nodes.ok()) {
    return base::invalid_argument(fmt::format("{}: {}", name, nodes.status().message()));
  }
  RendezvousPoint point;
  point.places = derived_places(nodes->front(), slurm_identity(environment));
  return point;
}

const LaunchFamily kSlurmFamily = {.launcher = "slurm",
                                   .rank_variable = "SLURM_PROCID",
                                   .world_variable = "SLURM_NTASKS",
                                   .position = slurm_position,
                                   .identity = slurm_identity,
                                   .meeting = meeting_of_step};

}  // namespace spillway::launch
