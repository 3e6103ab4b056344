// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/stage_durations.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace spillway::emulate {

namespace {

constexpr base::Duration kLongestTransfer = base::seconds(1'000'000);

World empty_world(std::uint32_t size) {
  World world;
  world.ranks.resize(size);
  world.has_trace.resize(size, false);
  return world;
}

}  // namespace

std::vector<std::vector<std::uint32_t>> sibling_groups(const std::vector<std::uint32_t>& ranks,
                                                       std::uint32_t world) {
  const auto size = static_cast<std::uint32_t>(ranks.size());
  const std::uint32_t stride = stride_of(ranks);
  if (stride == 0) {
    return {ranks};
  }
  const std::uint64_t block = std::uint64_t{stride} * size;
  // The pattern must begin where a division of the world has one of its groups.
  if (world % block != 0 || ranks[0] % block >= stride) {
    return {ranks};
  }
  std::vector<std::vector<std::uint32_t>> siblings = {ranks};
  for (std::uint32_t start = 0; start < world; start += static_cast<std::uint32_t>(block)) {
    for (std::uint32_t offset = 0; offset < stride; ++offset) {
      if (start + offset == ranks[0]) {
        continue;
      }
      std::vector<std::uint32_t>& made = siblings.emplace_back();
      for (std::uint32_t i = 0; i < size; ++i) {
        made.push_back(start + offset + i * stride);
      }
    }
  }
  return siblings;
}

FlowDurations::FlowDurations(std::uint32_t world, FabricPaths paths,
                             const FlowModelOptions& options)
    : world_(empty_world(world)), paths_(std::move(paths)), model_(world_, paths_, options) {}

const FlowDurations::Division& FlowDurations::division_of(const std::vector<std::uint32_t>& ranks) {
  const auto [at, is_new] = divisions_.try_emplace(ranks);
  if (is_new) {
    std::vector<std::vector<std::uint32_t>> siblings = sibling_groups(ranks, world_.size());
    at->second = {static_cast<std::uint32_t>(world_.groups.size()),
                  static_cast<std::uint32_t>(siblings.size())};
    for (std::vector<std::uint32_t>& sibling : siblings) {
      world_.groups.push_back({fmt::format("{}", world_.groups.size()), std::move(sibling)});
    }
  }
  return at->second;
}

base::Result<base::Duration> FlowDurations::collective(const StagedCollective& collective) {
  const Division division = division_of(collective.ranks);
  const Key key{division.first, collective.kind, collective.root, collective.bytes};
  if (const auto found = remembered_.find(key); found != remembered_.end()) {
    return found->second;
  }
  const auto place = static_cast<std::size_t>(
      std::lower_bound(collective.ranks.begin(), collective.ranks.end(), collective.root) -
      collective.ranks.begin());
  std::vector<Transfer> transfers(division.count);
  for (std::uint32_t i = 0; i < division.count; ++i) {
    const std::vector<std::uint32_t>& ranks = world_.groups[division.first + i].ranks;
    transfers[i].match = i;
    transfers[i].collective = collective.kind;
    transfers[i].group = division.first + i;
    transfers[i].root = ranks[std::min(place, ranks.size() - 1)];
    transfers[i].bytes = collective.bytes;
  }
  const base::Result<base::Duration> took = run(transfers);
  if (took.ok() && remembered_.size() < kMaxRemembered) {
    remembered_.emplace(key, *took);
  }
  return took;
}

base::Result<base::Duration> FlowDurations::message(std::uint32_t from, std::uint32_t to,
                                                    std::uint64_t bytes) {
  Transfer transfer;
  transfer.is_message = true;
  transfer.from = from;
  transfer.to = to;
  transfer.bytes = bytes;
  return run({transfer});
}

// Runs all at once from now until none is open; returns the first one's duration.
base::Result<base::Duration> FlowDurations::run(const std::vector<Transfer>& transfers) {
  const base::Instant began = now_;
  base::Status failed;
  for (const Transfer& transfer : transfers) {
    if (failed = model_.begin(transfer, began); !failed.ok()) {
      break;
    }
  }
  base::Duration first{};
  std::vector<MatchIndex> ended;
  while (model_.has_open()) {
    ended.clear();
    now_ = model_.advance(began + kLongestTransfer, ended);
    if (std::find(ended.begin(), ended.end(), transfers.front().match) != ended.end()) {
      first = now_ - began;
    }
    if (ended.empty()) {
      return base::Status(base::StatusCode::kLimitExceeded,
                          "a transfer of more than 11 days: see the network's rates");
    }
  }
  if (!failed.ok()) {
    return failed;
  }
  return first;
}

namespace {

using nlohmann::json;

constexpr int kTableVersion = 1;
constexpr double kLongestUs = 1e12;

base::Status no_table(std::string why) {
  return {base::StatusCode::kMalformed,
          fmt::format("no table of `spillway emulate calibrate`: {}", why)};
}

std::optional<base::Duration> duration_of(const json& us) {
  if (!us.is_number() || !(us.get<double>() >= 0.0 && us.get<double>() <= kLongestUs)) {
    return std::nullopt;
  }
  return base::nanoseconds(std::llround(us.get<double>() * 1e3));
}

base::Result<MeasuredRow> parse_row(const json& row) {
  const auto is_count = [&row](const char* name) {
    const auto found = row.find(name);
    return found != row.end() && found->is_number_unsigned();
  };
  const auto kind = row.is_object() ? row.find("kind") : row.end();
  const std::optional<CollectiveKind> parsed =
      row.is_object() && kind != row.end() && kind->is_string()
          ? chakra::parse_collective_kind(kind->get_ref<const std::string&>())
          : std::nullopt;
  if (!parsed || !is_count("ranks") || !is_count("stride") || !is_count("bytes") ||
      !row.contains("us") || !row.at("us").is_number()) {
    return no_table("a row has not kind, ranks, stride, bytes and us");
  }
  const std::optional<base::Duration> alone = duration_of(row.at("us"));
  const auto behind = row.find("behind_us");
  const std::optional<base::Duration> follows = behind == row.end() ? alone : duration_of(*behind);
  if (!alone || !follows || row.at("ranks").get<std::uint64_t>() > UINT32_MAX ||
      row.at("stride").get<std::uint64_t>() > UINT32_MAX) {
    return no_table("a row's numbers cannot be");
  }
  return MeasuredRow{*parsed,
                     row.at("ranks").get<std::uint32_t>(),
                     row.at("stride").get<std::uint32_t>(),
                     row.at("bytes").get<std::uint64_t>(),
                     *alone,
                     follows};
}

base::Result<MeasuredMemory> parse_memory(const json& said) {
  const json all = said.is_object() ? said : json::object();
  const json real = all.value("real", json());
  const json bytes = all.value("bytes", json());
  if (!real.is_array() || !bytes.is_number_unsigned() ||
      bytes.get<std::uint64_t>() > kMaxTableMemory) {
    return no_table("its memory has not real ranks and bytes that can be");
  }
  MeasuredMemory memory{{}, bytes.get<std::uint64_t>()};
  for (const json& rank : real) {
    if (!rank.is_number_unsigned() || rank.get<std::uint64_t>() > UINT32_MAX) {
      return no_table("its memory's real ranks are no ranks");
    }
    memory.real.push_back(rank.get<std::uint32_t>());
  }
  return memory;
}

// Interpolates on the line through two different points.
double on_line(std::pair<std::uint64_t, double> a, std::pair<std::uint64_t, double> b,
               std::uint64_t bytes) {
  const double from_a = static_cast<double>(bytes) - static_cast<double>(a.first);
  const double slope =
      (b.second - a.second) / (static_cast<double>(b.first) - static_cast<double>(a.first));
  return a.second + slope * from_a;
}

}  // namespace

base::Result<MeasuredTable> parse_table(std::string_view text) {
  const json read = json::parse(text, nullptr, false);
  if (!read.is_object() || !read.contains("rows") || !read.at("rows").is_array() ||
      read.value("table", json(0)) != json(kTableVersion)) {
    return no_table("not JSON with table 1 and rows");
  }
  if (read.at("rows").size() > kMaxTableRows) {
    return no_table(fmt::format("more than {} rows", kMaxTableRows));
  }
  MeasuredTable table;
  if (const auto about = read.find("about"); about != read.end() && about->is_string()) {
    table.about = about->get<std::string>();
  }
  for (const json& row : read.at("rows")) {
    const base::Result<MeasuredRow> parsed = parse_row(row);
    if (!parsed.ok()) {
      return parsed.status();
    }
    table.rows.push_back(*parsed);
  }
  if (const auto memory = read.find("memory"); memory != read.end()) {
    base::Result<MeasuredMemory> parsed = parse_memory(*memory);
    if (!parsed.ok()) {
      return parsed.status();
    }
    table.memory = std::move(parsed).value();
  }
  return table;
}

std::string table_text(const MeasuredTable& table) {
  json rows = json::array();
  for (const MeasuredRow& row : table.rows) {
    rows.push_back({{"kind", chakra::collective_kind_name(row.kind)},
                    {"ranks", row.ranks},
                    {"stride", row.stride},
                    {"bytes", row.bytes},
                    {"us", base::microseconds_of(row.duration)}});
    if (row.behind) {
      rows.back()["behind_us"] = base::microseconds_of(*row.behind);
    }
  }
  json text{{"table", kTableVersion}, {"about", table.about}, {"rows", rows}};
  if (table.memory) {
    text["memory"] = {{"real", table.memory->real}, {"bytes", table.memory->bytes}};
  }
  return text.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

MeasuredDurations::MeasuredDurations(const MeasuredTable& table, StageDurations& otherwise)
    : otherwise_(otherwise) {
  for (const MeasuredRow& row : table.rows) {
    Curves& curves = curves_[{row.kind, row.ranks, row.stride}];
    curves.alone[row.bytes] = static_cast<double>(row.duration.count());
    curves.behind[row.bytes] = static_cast<double>(row.behind.value_or(row.duration).count());
  }
}

base::Result<base::Duration> MeasuredDurations::collective(const StagedCollective& collective) {
  const std::uint32_t stride = stride_of(collective.ranks);
  const auto found = curves_.find({collective.kind, collective.ranks.size(), stride});
  const std::string what =
      fmt::format("{} among {} ranks {} apart", chakra::collective_kind_name(collective.kind),
                  collective.ranks.size(), stride);
  if (found == curves_.end()) {
    uncovered_.insert(what);
    return otherwise_.collective(collective);
  }
  const Curve& curve = collective.is_behind ? found->second.behind : found->second.alone;
  auto above = curve.lower_bound(collective.bytes);
  if (above == curve.end() && curve.size() > 1) {
    uncovered_.insert(fmt::format("{} beyond {} bytes", what, curve.rbegin()->first));
    --above;
  }
  if (above == curve.end() || above == curve.begin()) {
    const double nearest = above == curve.end() ? curve.rbegin()->second : above->second;
    return base::nanoseconds(std::llround(nearest));
  }
  const double found_ns = on_line(*std::prev(above), *above, collective.bytes);
  return base::nanoseconds(std::llround(std::clamp(found_ns, 0.0, kLongestUs * 1e3)));
}

base::Result<base::Duration> MeasuredDurations::message(std::uint32_t from, std::uint32_t to,
                                                        std::uint64_t bytes) {
  uncovered_.insert("messages");
  return otherwise_.message(from, to, bytes);
}

}  // namespace spillway::emulate
