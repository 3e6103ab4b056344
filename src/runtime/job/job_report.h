// SPDX-License-Identifier: Apache-2.0
//
// What a job tells of itself, as one of its members sees it: JSON for tools (`spillway job ls`),
// and Prometheus' text for monitoring, whose names begin with spillway_job_.
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
  std::optional<std::uint32_t> rank{};  // nothing: a standby
  std::uint64_t id = 0;
  std::string name{};
  std::string address{};
  bool waits = false;  // a newcomer: has no part in the view before the next change
};

struct JobReport {
  std::string job{};  // Ticket::name(): reports reach people who may not have the ticket
  std::uint32_t epoch = 0;
  std::optional<std::uint32_t> rank{};  // of who tells it; nothing: a standby
  std::uint64_t step = 0;
  std::vector<MemberReport> members{};  // ranks in order, then standbys
  std::vector<std::string> stragglers{};
  std::string waits_for{};

  // The last change. Times are of the wall clock.
  std::string why{};
  std::uint64_t change_step = 0;
  std::int64_t interrupted_ns = 0;
  std::int64_t parked_ns = 0;
  std::int64_t decided_ns = 0;

  // Since this process is a member.
  std::uint64_t changes = 0;
  std::uint64_t interruptions = 0;  // of steps that were under way
  base::Duration stopping{};        // from being told to stop to standing still
  base::Duration deciding{};        // from there to knowing how it goes on; without standbys' waits
};

std::string status_json(const JobReport& report);
std::string metrics_text(const JobReport& report);

}  // namespace spillway::runtime
