// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/peer/trim_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "wire/frame_overhead.h"
#include "wire/traffic_class.h"

namespace spillway::doctor {
namespace {

constexpr const char* kTrim = "trim";
constexpr const char* kTold = "trim-told";
constexpr const char* kStale = "stale-lengths";
constexpr unsigned kAskTries = 10;
constexpr std::chrono::milliseconds kUntilDrained{200};  // for queues and the listener

unsigned frame_bytes_of(std::size_t payload, bool ipv6) {
  return static_cast<unsigned>(payload + spillway_frame_overhead(ipv6));
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string size_text(const TrimOutcome& trims) {
  if (trims.smallest == trims.largest) {
    return fmt::format("{} bytes", trims.frame_bytes);
  }
  return fmt::format("{} bytes ({} to {})", trims.frame_bytes, trims.smallest, trims.largest);
}

Finding nothing_trimmed(const BurstOutcome& burst, const TrimOutcome& trims) {
  if (trims.lost == 0) {
    return {kTrim, Severity::kNote,
            fmt::format("all {} packets arrived whole: one sender alone fills no queue where all "
                        "links have one rate",
                        burst.sent.packets),
            "run this from two or three hosts at once, or with a higher --trim-rate"};
  }
  return {kTrim, Severity::kNote,
          fmt::format("{:.1f} % of {} packets were lost and none was trimmed ({} of them at the "
                      "listener's socket)",
                      percent(trims.lost, burst.sent.packets), burst.sent.packets,
                      burst.arrived.overflowed),
          "turn on trimming where the switches can; Spillway works without, with more loss"};
}

Finding trimmed(const BurstOutcome& burst, const TrimOutcome& trims) {
  const std::string text = fmt::format(
      "frames are cut to {}, DSCP {}; of {} packets {:.1f} % were cut, {:.1f} % lost",
      size_text(trims), trims.dscp, burst.sent.packets, percent(trims.trimmed, burst.sent.packets),
      percent(trims.lost, burst.sent.packets));
  if (trims.dscp != SPILLWAY_DSCP_TRIMMED) {
    return {kTrim, Severity::kNote, text,
            fmt::format("have the switch give trimmed packets DSCP {} and a queue of their own",
                        SPILLWAY_DSCP_TRIMMED)};
  }
  return {kTrim, Severity::kOk, text};
}

// Heads longer than the trimmed packet cannot be verified, so the whole packet is lost.
Finding check_told(unsigned told, unsigned smallest) {
  const std::string remedy = fmt::format("set SPILLWAY_TRIM_BYTES={}", smallest);
  const std::string text =
      fmt::format("SPILLWAY_TRIM_BYTES is {}, frames are cut to {}", told, smallest);
  if (told > smallest) {
    return {kTold, Severity::kError, text + ": cut packets would be useless", remedy};
  }
  if (told + SPILLWAY_VLAN_TAG < smallest) {
    return {kTold, Severity::kWarning, text + ": less of each is used than could be", remedy};
  }
  return {kTold, Severity::kOk, text};
}

Finding check_stale(const BurstOutcome& burst, const TrimOutcome& trims) {
  const ArrivalSummary& arrived = burst.arrived;
  if (arrived.stale > 0) {
    return {kStale, Severity::kError,
            fmt::format("{} of {} trimmed packets ({} to {} bytes of frame) came with stale "
                        "lengths and were thrown away by the kernel",
                        arrived.stale, arrived.stale + trims.trimmed, arrived.stale_smallest,
                        arrived.stale_largest),
            fmt::format("spillway fixup attach --interface {} (on {})",
                        arrived.interface.empty() ? "NAME" : arrived.interface,
                        arrived.host.empty() ? "the listener's host" : arrived.host)};
  }
  if (!arrived.watches) {
    return {kStale, Severity::kNote,
            "the listener may not look at the wire, so nobody knows of packets that were trimmed "
            "without correcting their lengths",
            "run spillway doctor --listen as root, or with CAP_NET_RAW"};
  }
  return {kStale, Severity::kOk, "the listener saw none on the wire"};
}

}  // namespace

TrimOutcome trims_of(const BurstOutcome& burst) {
  TrimOutcome trims;
  std::uint32_t most = 0;
  for (const ArrivalKind& kind : burst.arrived.seen()) {
    if (kind.length >= burst.sent.payload_bytes) {
      trims.whole += kind.count;
      continue;
    }
    const unsigned frame = frame_bytes_of(kind.length, burst.ipv6);
    trims.smallest = trims.trimmed == 0 ? frame : std::min(trims.smallest, frame);
    trims.largest = std::max(trims.largest, frame);
    trims.trimmed += kind.count;
    if (kind.count > most) {
      most = kind.count;
      trims.frame_bytes = frame;
      trims.dscp = kind.dscp;
    }
  }
  trims.trimmed += burst.arrived.others;
  const std::uint64_t came = trims.whole + trims.trimmed + burst.arrived.stale;
  trims.lost = burst.sent.packets > came ? burst.sent.packets - came : 0;
  return trims;
}

Findings check_trims(const BurstOutcome& burst, std::optional<unsigned> told_bytes) {
  const TrimOutcome trims = trims_of(burst);
  Findings findings;
  const bool cuts = trims.frame_bytes != 0;
  findings.push_back(cuts ? trimmed(burst, trims) : nothing_trimmed(burst, trims));
  if (cuts && told_bytes) {
    findings.push_back(check_told(*told_bytes, trims.smallest));
  }
  findings.push_back(check_stale(burst, trims));
  return findings;
}

std::optional<BurstOutcome> provoke_trims(PeerLink& link, std::size_t payload_limit,
                                          const TrimOptions& options) {
  if (!link.ask_again({.type = ProbeType::kStart}, kAskTries)) {
    return std::nullopt;
  }
  const base::Result<BurstSent> sent =
      send_burst({.peer = link.peer(),
                  .tag = static_cast<std::uint32_t>(link.session()),
                  .payload_limit = payload_limit,
                  .rate = options.rate,
                  .length = options.length});
  std::this_thread::sleep_for(kUntilDrained);
  const std::optional<PeerAnswer> answer =
      link.ask_again({.type = ProbeType::kSummary, .bytes = kSummaryBytes}, kAskTries);
  if (!sent.ok() || !answer || !answer->summary) {
    return std::nullopt;
  }
  return BurstOutcome{.sent = *sent, .arrived = *answer->summary, .ipv6 = link.peer().is_ipv6()};
}

}  // namespace spillway::doctor
