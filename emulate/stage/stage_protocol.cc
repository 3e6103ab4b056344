// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/stage_protocol.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <numeric>
#include <optional>

namespace spillway::emulate {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxInstant = std::int64_t{1} << 61;  // the sum of two does not overflow
constexpr std::int64_t kMaxPatienceMs = 86'400'000;

// Returns nothing if the field is missing or no whole number from 0 to `most`.
std::optional<std::int64_t> number(const json& said, const char* name, std::int64_t most) {
  const auto found = said.find(name);
  if (found == said.end() || !found->is_number_integer() ||
      (found->is_number_unsigned() &&
       found->get<std::uint64_t>() > static_cast<std::uint64_t>(most))) {
    return std::nullopt;
  }
  const auto value = found->get<std::int64_t>();
  return value < 0 || value > most ? std::nullopt : std::optional(value);
}

double real_number(const json& said, const char* name) {
  const auto found = said.find(name);
  return found != said.end() && found->is_number() ? found->get<double>() : 0.0;
}

base::Status senseless(const char* what) {
  return {base::StatusCode::kMalformed,
          fmt::format("a line of a rank makes no sense: {}; are tool and package of one version?",
                      what)};
}

// Fields of every operation.
struct Heading {
  std::uint64_t ticket = 0;
  std::uint32_t group = 0;
  std::uint64_t bytes = 0;
  base::Instant at;
};

std::optional<Heading> heading_of(const json& said,
                                  const std::map<std::uint32_t, std::uint32_t>& groups) {
  const auto ticket = number(said, "ticket", INT64_MAX);
  const auto group = number(said, "group", StageProtocol::kMaxGroupNumber);
  const auto bytes = number(said, "bytes", INT64_MAX);
  const auto at = number(said, "at", kMaxInstant);
  if (!ticket || !group || !bytes || !at) {
    return std::nullopt;
  }
  const auto known = groups.find(static_cast<std::uint32_t>(*group));
  if (known == groups.end()) {
    return std::nullopt;
  }
  return Heading{static_cast<std::uint64_t>(*ticket), known->second,
                 static_cast<std::uint64_t>(*bytes), base::Instant(base::nanoseconds(*at))};
}

std::string line_of(const json& said) {
  return said.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string line_of(const StageAnswer& answer) {
  if (answer.status.ok()) {
    return fmt::format("{{\"ticket\": {}, \"end\": {}}}\n", answer.ticket,
                       answer.end.since_zero().count());
  }
  return line_of({{"ticket", answer.ticket},
                  {"code", std::string(base::status_code_name(answer.status.code()))},
                  {"error", answer.status.message()}});
}

}  // namespace

base::Status StageProtocol::line(Connection from, std::string_view text) {
  const json said = text.size() > kMaxLineBytes ? json(json::value_t::discarded)
                                                : json::parse(text, nullptr, false);
  base::Status status = said.is_object() ? act(from, said) : senseless("it is no object");
  if (!status.ok()) {
    lines_.emplace_back(from, line_of(json{{"error", status.message()}}));
  }
  return status;
}

base::Status StageProtocol::act(Connection from, const json& said) {
  if (said.contains("enter")) {
    return enter(from, said);
  }
  const auto found = members_.find(from);
  if (found == members_.end()) {
    return senseless("it has not entered");
  }
  Member& member = found->second;
  if (said.contains("call")) {
    return call(member, said);
  }
  if (said.contains("send")) {
    return message(member, said, StageMessage::End::kSend);
  }
  if (said.contains("receive")) {
    return message(member, said, StageMessage::End::kReceive);
  }
  if (said.contains("waited")) {
    return waited(member, said);
  }
  if (said.contains("leave")) {
    leave(from, said.at("leave"));
    return {};
  }
  return said.contains("name") ? make_group(member, said) : senseless("it asks for nothing");
}

base::Status StageProtocol::enter(Connection from, const json& said) {
  if (!said.at("enter").is_null()) {
    const auto number_of_rank = number(said, "enter", UINT32_MAX);
    if (!number_of_rank || !stage_.is_real(static_cast<std::uint32_t>(*number_of_rank))) {
      return base::invalid_argument(
          fmt::format("rank {} is no real rank of this staged world of {}; see --real",
                      said.at("enter").dump(), stage_.config().world));
    }
    const auto rank = static_cast<std::uint32_t>(*number_of_rank);
    if (members_.contains(from) || !connections_.emplace(rank, from).second) {
      return base::invalid_argument(fmt::format("rank {} has entered already", rank));
    }
    members_[from].rank = rank;
  }
  lines_.emplace_back(from, line_of(json{{"world", stage_.config().world},
                                         {"real", stage_.config().real},
                                         {"strict", terms_.is_strict},
                                         {"waits", !stage_.config().slow.empty()},
                                         {"memory", terms_.memory_bytes}}));
  return {};
}

base::Status StageProtocol::make_group(Member& member, const json& said) {
  const auto index = number(said, "group", kMaxGroupNumber);
  const auto ranks = said.find("ranks");
  if (!index || !said.at("name").is_string() || ranks == said.end() || !ranks->is_array()) {
    return senseless("a group");
  }
  std::vector<std::uint32_t> members;
  for (const json& rank : *ranks) {
    if (!rank.is_number_unsigned() || rank.get<std::uint64_t>() > UINT32_MAX) {
      return senseless("a group's rank");
    }
    members.push_back(rank.get<std::uint32_t>());
  }
  if (members.empty()) {
    members.resize(stage_.config().world);
    std::iota(members.begin(), members.end(), 0U);
  }
  const base::Result<std::uint32_t> made =
      stage_.group(said.at("name").get<std::string>(), std::move(members));
  if (!made.ok()) {
    return made.status();
  }
  member.groups[static_cast<std::uint32_t>(*index)] = *made;
  return {};
}

base::Status StageProtocol::call(Member& member, const json& said) {
  const std::optional<Heading> heading = heading_of(said, member.groups);
  const auto root = number(said, "root", UINT32_MAX);
  const std::optional<CollectiveKind> kind =
      said.at("call").is_string()
          ? chakra::parse_collective_kind(said.at("call").get_ref<const std::string&>())
          : std::nullopt;
  if (!heading || !root || !kind) {
    return senseless("a call");
  }
  StageCall call;
  call.ticket = heading->ticket;
  call.kind = *kind;
  call.bytes = heading->bytes;
  call.root = static_cast<std::uint32_t>(*root);
  call.at = heading->at;
  call.is_uneven = said.contains("uneven");
  if (const auto patience = number(said, "patience_ms", kMaxPatienceMs);
      patience && *patience > 0) {
    call.patience = base::milliseconds(*patience);
  }
  stage_.call(member.rank, heading->group, call);
  return {};
}

base::Status StageProtocol::message(Member& member, const json& said, StageMessage::End end) {
  const bool sends = end == StageMessage::End::kSend;
  const std::optional<Heading> heading = heading_of(said, member.groups);
  const auto peer = number(said, sends ? "send" : "receive", UINT32_MAX);
  const auto tag = number(said, "tag", UINT32_MAX);
  if (!heading || !peer || !tag) {
    return senseless("a message");
  }
  stage_.message(member.rank, heading->group,
                 {heading->ticket, end, static_cast<std::uint32_t>(*peer),
                  static_cast<std::uint32_t>(*tag), heading->bytes, heading->at});
  return {};
}

base::Status StageProtocol::waited(const Member& member, const json& said) {
  const json& times = said.at("waited");
  if (!times.is_array() || times.size() % 2 != 0) {
    return senseless("a wait");
  }
  for (std::size_t i = 0; i < times.size(); i += 2) {
    if (!times[i].is_number_unsigned() || !times[i + 1].is_number_unsigned() ||
        times[i].get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxInstant) ||
        times[i + 1].get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxInstant)) {
      return senseless("a wait's times");
    }
    stage_.waited(member.rank, base::Instant(base::nanoseconds(times[i].get<std::int64_t>())),
                  base::Instant(base::nanoseconds(times[i + 1].get<std::int64_t>())));
  }
  return {};
}

void StageProtocol::leave(Connection from, const json& said) {
  const auto found = members_.find(from);
  const std::uint32_t rank = found->second.rank;
  members_.erase(found);
  if (said.is_object()) {
    summaries_[rank] = {static_cast<std::uint64_t>(number(said, "waits", INT64_MAX).value_or(0)),
                        real_number(said, "late_p50_us"), real_number(said, "late_p99_us"),
                        real_number(said, "late_us"),
                        static_cast<std::uint64_t>(number(said, "reads", INT64_MAX).value_or(0))};
  }
  stage_.leave(rank, "has left");
}

void StageProtocol::closed(Connection from) {
  const auto found = members_.find(from);
  if (found != members_.end()) {
    const std::uint32_t rank = found->second.rank;
    members_.erase(found);
    stage_.leave(rank, "has died");
  }
}

std::vector<std::pair<StageProtocol::Connection, std::string>> StageProtocol::take_lines() {
  for (const StageAnswer& answer : stage_.take_answers()) {
    const auto found = connections_.find(answer.rank);
    if (found != connections_.end()) {
      lines_.emplace_back(found->second, line_of(answer));
    }
  }
  return std::exchange(lines_, {});
}

}  // namespace spillway::emulate
