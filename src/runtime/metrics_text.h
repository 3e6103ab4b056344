// SPDX-License-Identifier: Apache-2.0
//
// Communicators' counts as Prometheus' text (format 0.0.4). Names begin with
// spillway_communicator_, as a switch's begin with spillway_switch_; every sample carries the
// labels communicator and rank.
//
// Pure functions; any thread.
//
// Limits: kMostPeers series per communicator and count, those of the ranks with most trouble; the
// rest is summed up as peer="other". In larger jobs a rank can enter the first group later: then
// "other" drops, which Prometheus reads as a restart.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/communicator_metrics.h"

namespace spillway::runtime {

inline constexpr std::size_t kMostPeers = 64;

std::string metrics_text(std::span<const CommunicatorMetrics> communicators);

// What may stand between the quotes of a label: valid UTF-8, with \, " and line ends escaped.
std::string escaped_label(std::string_view value);

}  // namespace spillway::runtime
