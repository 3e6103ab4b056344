// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/peer/mark_survival.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>

#include "base/clock.h"
#include "wire/traffic_class.h"

namespace spillway::doctor {
namespace {

constexpr base::Duration kMarkPatience = base::seconds(2);
constexpr std::chrono::milliseconds kBetweenRounds{50};

using Arrived = std::optional<std::uint8_t> MarkTrial::*;

// How the texts for DSCP and ECN differ.
struct Field {
  std::string check;
  std::string (*name)(std::uint8_t tos);
  bool (*survived)(std::uint8_t sent, std::uint8_t arrived);
  std::string rewritten_remedy;
};

std::string dscp_name(std::uint8_t tos) {
  return fmt::format("DSCP {}", tos >> 2);
}

std::string ecn_name(std::uint8_t tos) {
  constexpr std::array<const char*, 4> kNames = {"Not-ECT", "ECT(1)", "ECT(0)", "CE"};
  return kNames[tos & 3];
}

bool dscp_survived(std::uint8_t sent, std::uint8_t arrived) {
  return sent >> 2 == arrived >> 2;
}

bool ecn_survived(std::uint8_t sent, std::uint8_t arrived) {
  const unsigned before = sent & 3U;
  const unsigned after = arrived & 3U;
  return before == after || (before != SPILLWAY_ECN_NOT_ECT && after == SPILLWAY_ECN_CE);
}

void try_one(PeerLink& link, MarkTrial& trial) {
  if (const auto both = link.ask({.tos = trial.tos, .answer_tos = trial.tos})) {
    trial.there = both->packet.tos;
    trial.back = both->tos;
    return;
  }
  if (const auto there = link.ask({.tos = trial.tos})) {
    trial.there = there->packet.tos;
  }
  if (const auto back = link.ask({.answer_tos = trial.tos})) {
    trial.back = back->tos;
  }
}

bool is_complete(const MarkTrial& trial) {
  return trial.there && trial.back;
}

Finding rewritten_finding(const Field& field, const std::string& check,
                          std::span<const MarkTrial> trials, Arrived arrived) {
  std::vector<std::string> changes;
  for (const MarkTrial& trial : trials) {
    const std::optional<std::uint8_t>& as = trial.*arrived;
    if (as && !field.survived(trial.tos, *as)) {
      changes.push_back(fmt::format("{} arrives as {}", field.name(trial.tos), field.name(*as)));
    }
  }
  if (changes.empty()) {
    const auto came = std::count_if(trials.begin(), trials.end(), [&](const MarkTrial& one) {
      return (one.*arrived).has_value();
    });
    return {check, Severity::kOk, fmt::format("{} code points arrive unchanged", came)};
  }
  return {check, Severity::kWarning, fmt::format("{}", fmt::join(changes, ", ")),
          field.rewritten_remedy};
}

void check_direction(const Field& field, std::string_view direction,
                     std::span<const MarkTrial> trials, Arrived arrived, Findings& findings) {
  const std::string check = fmt::format("{}-{}", field.check, direction);
  findings.push_back(rewritten_finding(field, check, trials, arrived));
  std::vector<std::string> lost;
  for (const MarkTrial& trial : trials) {
    if (!(trial.*arrived)) {
      lost.push_back(field.name(trial.tos));
    }
  }
  if (!lost.empty()) {
    findings.push_back({check, Severity::kError,
                        fmt::format("packets with {} never arrive", fmt::join(lost, ", ")),
                        "look for filters and policers by class in switches and firewalls on the "
                        "way, and let these through"});
  }
}

Findings check_both(const Field& field, std::span<const MarkTrial> trials) {
  Findings findings;
  check_direction(field, "there", trials, &MarkTrial::there, findings);
  check_direction(field, "back", trials, &MarkTrial::back, findings);
  return findings;
}

}  // namespace

std::vector<MarkTrial> dscp_trials() {
  std::vector<MarkTrial> trials;
  for (std::uint8_t priority = 0; priority < SPILLWAY_PRIORITIES; ++priority) {
    trials.push_back({.tos = static_cast<std::uint8_t>(spillway_dscp_of_priority(priority) << 2)});
  }
  trials.push_back({.tos = SPILLWAY_DSCP_TRIMMED << 2});
  trials.push_back({.tos = SPILLWAY_DSCP_CONTROL << 2});
  return trials;
}

std::vector<MarkTrial> ecn_trials() {
  std::vector<MarkTrial> trials;
  for (const std::uint8_t ecn : {SPILLWAY_ECN_ECT0, SPILLWAY_ECN_ECT1, SPILLWAY_ECN_CE}) {
    trials.push_back({.tos = static_cast<std::uint8_t>(SPILLWAY_DSCP_CONTROL << 2 | ecn)});
  }
  return trials;
}

void try_marks(PeerLink& link, std::span<MarkTrial> trials) {
  const base::MonotonicClock clock;
  const base::Instant end = clock.now() + kMarkPatience;
  for (;;) {
    for (MarkTrial& trial : trials) {
      if (!is_complete(trial)) {
        try_one(link, trial);
      }
    }
    if (std::all_of(trials.begin(), trials.end(), is_complete) || clock.now() >= end) {
      return;
    }
    std::this_thread::sleep_for(kBetweenRounds);
  }
}

Findings check_dscp(std::span<const MarkTrial> trials) {
  return check_both({"dscp", dscp_name, dscp_survived,
                     "have every switch port on the way trust DSCP and not rewrite it"},
                    trials);
}

Findings check_ecn(std::span<const MarkTrial> trials) {
  return check_both(
      {"ecn", ecn_name, ecn_survived,
       "turn off whatever clears or sets ECN on the way: firewalls, tunnels, policers"},
      trials);
}

}  // namespace spillway::doctor
