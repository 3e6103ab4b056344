// SPDX-License-Identifier: Apache-2.0
//
// A job's status, as one of its members sees it: JSON for tools (`spillway job ls`), and
// Prometheus' text with names that begin with spillway_job_.
//
// Plain values and pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace spillway::runtime {

struct MemberReport {
  std::optional<std::uint32_t> rank{};  // unset: a standby
  std::uint64_t id = 0;
  std::string name{};
  std::string address{};
  bool waits = false;  // a newcomer, not in the view until the next change
};

struct JobReport {
  std::string job{};  // Ticket::name(), since readers of reports may not have the ticket
  std::uint32_t epoch = 0;
  std::optional<std::uint32_t> rank{};  // this member's rank; unset: a standby
  std::uint64_t step = 0;
  std::vector<MemberReport> members{};  // ranks in order, then standbys
  std::vector<std::string> stragglers{};
  std::string waits_for{};

  // The last change, in wall-clock times.
  std::string why{};
  std::uint64_t change_step = 0;
  std::int64_t interrupted_ns = 0;
  std::int64_t parked_ns = 0;
  std::int64_t decided_ns = 0;

  // Counted since this process became a member.
  std::uint64_t changes = 0;
  std::uint64_t interruptions = 0;  // of running steps
  base::Duration stopping{};        // from the order to stop until parked
  base::Duration deciding{};        // from parked to decided; not counted at standbys
};

std::string status_json(const JobReport& report);
std::string metrics_text(const JobReport& report);

}  // namespace spillway::runtime
