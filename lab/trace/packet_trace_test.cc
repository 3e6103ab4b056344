// SPDX-License-Identifier: Apache-2.0
#include "lab/trace/packet_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lab/trace/packet_paths.h"
#include "switch/dataplane/frame.h"

namespace spillway::lab {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kWholeBytes = 1500;
constexpr std::uint32_t kTrimmedBytes = 256;

spillway_packet_header data_header(std::uint16_t packet) {
  spillway_packet_header header = {};
  header.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_PLANES;
  header.source = 1;
  header.operation = 3;
  header.piece = 2;
  header.service = 5 << 3 | 4;
  header.packet = packet;
  return header;
}

PacketCapture capture(bool leaves, std::uint16_t packet, std::int64_t at_us,
                      std::uint32_t bytes = kWholeBytes) {
  PacketCapture capture;
  capture.at = base::Instant(base::microseconds(at_us));
  capture.header = data_header(packet);
  capture.bytes = bytes;
  capture.host = leaves ? 1 : 0;
  capture.to = 0;
  capture.leaves = leaves;
  return capture;
}

spillway_event event(std::uint16_t packet, std::int64_t at_us, spillway_reason reason,
                     std::uint32_t bytes_left) {
  spillway_event event = {};
  event.time_ns = static_cast<std::uint64_t>(at_us) * 1000;
  event.bytes = kWholeBytes;
  event.bytes_left = bytes_left;
  event.queued = 3000;
  event.reason = static_cast<std::uint8_t>(reason);
  event.queue = bytes_left == kTrimmedBytes ? SPILLWAY_CONTROL_QUEUE : 5;
  event.is_data = 1;
  event.header = data_header(packet);
  return event;
}

PacketLog log_of_two_hosts() {
  PacketLog log;
  log.hosts = {"host0", "host1"};
  log.ports = {"switch0->host0", "switch0->host1"};
  return log;
}

// One packet whole, one trimmed, one dropped.
PacketLog three_packets() {
  PacketLog log = log_of_two_hosts();
  log.captures = {capture(true, 17, 100), capture(true, 18, 110), capture(true, 19, 120),
                  capture(false, 17, 150), capture(false, 18, 140, kTrimmedBytes)};
  log.events = {event(17, 101, SPILLWAY_REASON_ADMITTED, kWholeBytes),
                event(18, 111, SPILLWAY_REASON_TRIMMED, kTrimmedBytes),
                event(19, 121, SPILLWAY_REASON_EARLY, 0)};
  return log;
}

Json trace_of(const PacketLog& log) {
  std::string text;
  write_packet_trace(join_paths(log), log, [&](std::string_view piece) { text += piece; });
  return Json::parse(text);
}

std::vector<Json> events_of(const Json& trace, const std::string& phase) {
  std::vector<Json> events;
  std::ranges::copy_if(trace["traceEvents"], std::back_inserter(events),
                       [&](const Json& event) { return event["ph"] == phase; });
  return events;
}

std::vector<Json> bars_named(const Json& trace, const std::string& name) {
  std::vector<Json> bars = events_of(trace, "X");
  std::erase_if(bars, [&](const Json& bar) { return bar["name"] != name; });
  return bars;
}

TraceSummary summary_of(const PacketLog& log) {
  return summarise_paths(join_paths(log), log);
}

// Every arrow starts once and ends once, at the same packet, and does not go back in time.
void expect_whole_arrows(const Json& trace) {
  std::map<int, std::string> phases;
  std::map<int, double> last;
  for (const Json& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "s" || phase == "t" || phase == "f") {
      const int id = event["id"];
      phases[id] += phase;
      EXPECT_GE(event["ts"].get<double>(), last[id]);
      last[id] = event["ts"];
    }
  }
  for (const auto& [id, order] : phases) {
    EXPECT_TRUE(order == "sf" || order == "stf") << id << ": " << order;
  }
}

TEST(PacketTrace, FollowsAPacketFromSenderOverSwitchToReceiver) {
  const Json trace = trace_of(three_packets());
  const std::vector<Json> at_hosts = bars_named(trace, "PLANES 1>0 operation 3 piece 2 #17");
  const std::vector<Json> admitted = bars_named(trace, "admitted");
  ASSERT_EQ(at_hosts.size(), 2U);
  ASSERT_EQ(admitted.size(), 1U);
  EXPECT_EQ(at_hosts[0]["ts"], 0.0);
  EXPECT_EQ(admitted[0]["ts"], 1.0);
  EXPECT_EQ(admitted[0]["dur"], 49.0);
  EXPECT_EQ(at_hosts[1]["ts"], 50.0);
  EXPECT_EQ(at_hosts[1]["args"]["arrived"], "whole");
  EXPECT_EQ(admitted[0]["args"]["queue"], "queue 5");
  EXPECT_EQ(admitted[0]["args"]["priority"], 5);
  EXPECT_EQ(admitted[0]["args"]["importance"], 4);
  EXPECT_EQ(admitted[0]["args"]["queued"], 3000);
  expect_whole_arrows(trace);
}

TEST(PacketTrace, NamesEveryTypeAndTheRanks) {
  const std::vector<std::pair<unsigned, std::string>> names = {
      {SPILLWAY_TYPE_PROBE, "PROBE"},   {SPILLWAY_TYPE_STOP, "STOP"},
      {SPILLWAY_TYPE_BITMAP, "BITMAP"}, {SPILLWAY_TYPE_CREDIT, "CREDIT"},
      {SPILLWAY_TYPE_WAIT, "WAIT"},     {SPILLWAY_TYPE_LEAVE, "LEAVE"}};
  for (const auto& [type, name] : names) {
    PacketLog log = log_of_two_hosts();
    log.captures = {capture(true, 0, 1)};
    log.captures[0].header.version_type = static_cast<__u8>(SPILLWAY_WIRE_VERSION << 4 | type);
    log.captures[0].header.destination = 7;  // a rank, whatever its host's number
    const Json trace = trace_of(log);
    EXPECT_EQ(bars_named(trace, name + " 1>7 operation 3 piece 2").size(), 1U) << name;
  }
}

TEST(PacketTrace, SaysWhatATrimLeft) {
  const Json trace = trace_of(three_packets());
  const std::vector<Json> trimmed = bars_named(trace, "trimmed");
  ASSERT_EQ(trimmed.size(), 1U);
  EXPECT_EQ(trimmed[0]["args"]["bytes"], kWholeBytes);
  EXPECT_EQ(trimmed[0]["args"]["bytes_left"], kTrimmedBytes);
  EXPECT_EQ(trimmed[0]["args"]["queue"], "control queue");
  const std::vector<Json> at_hosts = bars_named(trace, "PLANES 1>0 operation 3 piece 2 #18");
  ASSERT_EQ(at_hosts.size(), 2U);
  EXPECT_EQ(at_hosts[1]["args"]["arrived"], "trimmed");
  EXPECT_EQ(at_hosts[1]["args"]["bytes"], kTrimmedBytes);
}

TEST(PacketTrace, APacketThatWasDroppedEndsAtTheSwitch) {
  const Json trace = trace_of(three_packets());
  const std::string reason(outcome_name(PacketOutcome::kEarly));
  const std::vector<Json> dropped = bars_named(trace, reason);
  ASSERT_EQ(dropped.size(), 1U);
  EXPECT_EQ(bars_named(trace, "PLANES 1>0 operation 3 piece 2 #19").size(), 1U);
  const std::vector<Json> ends = events_of(trace, "f");
  EXPECT_TRUE(std::ranges::any_of(ends, [&](const Json& end) {
    return end["ts"] == dropped[0]["ts"] && end["pid"] == dropped[0]["pid"];
  }));
}

TEST(PacketTrace, CountsOutcomesAndTimes) {
  const TraceSummary summary = summary_of(three_packets());
  EXPECT_EQ(summary.of(PacketOutcome::kWhole), 1U);
  EXPECT_EQ(summary.of(PacketOutcome::kTrimmed), 1U);
  EXPECT_EQ(summary.of(PacketOutcome::kEarly), 1U);
  EXPECT_EQ(summary.of(PacketOutcome::kLost), 0U);
  EXPECT_EQ(summary.median, base::microseconds(29));
  EXPECT_EQ(summary.p99, base::microseconds(49));
  EXPECT_EQ(summary.missed, 0U);
}

TEST(PacketTrace, TheOrderOfWhatWasSeenDoesNotMatter) {
  PacketLog log = three_packets();
  const Json in_order = trace_of(log);
  std::ranges::reverse(log.captures);
  std::ranges::reverse(log.events);
  EXPECT_EQ(trace_of(log), in_order);
}

TEST(PacketTrace, NothingIsDecidedBeforeItLeft) {
  PacketLog log = log_of_two_hosts();
  log.captures = {capture(true, 1, 10), capture(false, 1, 20)};
  log.events = {event(1, 9, SPILLWAY_REASON_ADMITTED, kWholeBytes)};
  const Json trace = trace_of(log);
  expect_whole_arrows(trace);
  EXPECT_EQ(bars_named(trace, "admitted")[0]["dur"], 10.0);
}

TEST(PacketTrace, QueuesAreCounters) {
  const std::vector<Json> counters = events_of(trace_of(three_packets()), "C");
  ASSERT_EQ(counters.size(), 2U);  // none for the trimmed packet, whose own queue is not reported
  EXPECT_EQ(counters[0]["name"], "bytes in queue 5");
  EXPECT_EQ(counters[0]["args"]["bytes"], 3000);
}

TEST(PacketTrace, PacketsThatLookTheSameGoByTheirOrder) {
  PacketLog log = log_of_two_hosts();
  log.captures = {capture(true, 1, 10), capture(true, 1, 20), capture(true, 1, 30),
                  capture(false, 1, 41), capture(false, 1, 51)};
  log.events = {event(1, 11, SPILLWAY_REASON_ADMITTED, kWholeBytes),
                event(1, 21, SPILLWAY_REASON_QUEUE_FULL, 0),
                event(1, 31, SPILLWAY_REASON_ADMITTED, kWholeBytes)};
  const TraceSummary summary = summary_of(log);
  EXPECT_EQ(summary.of(PacketOutcome::kWhole), 2U);
  EXPECT_EQ(summary.of(PacketOutcome::kQueueFull), 1U);
  EXPECT_EQ(summary.p99, base::microseconds(30));
  expect_whole_arrows(trace_of(log));
}

TEST(PacketTrace, APacketSeenTwiceBreaksNothing) {
  PacketLog log = three_packets();
  log.captures.push_back(log.captures[0]);
  log.captures.push_back(log.captures[3]);
  log.events.push_back(log.events[1]);
  const Json trace = trace_of(log);
  expect_whole_arrows(trace);
  const TraceSummary summary = summary_of(log);
  EXPECT_EQ(summary.of(PacketOutcome::kWhole), 2U);
}

TEST(PacketTrace, OverlappingBarsAreInDifferentLanes) {
  const Json trace = trace_of(three_packets());
  const Json admitted = bars_named(trace, "admitted")[0];
  const Json trimmed = bars_named(trace, "trimmed")[0];
  EXPECT_EQ(admitted["pid"], trimmed["pid"]);
  EXPECT_NE(admitted["tid"], trimmed["tid"]);
}

TEST(PacketTrace, WithoutASwitchThatTellsTheEndsSpeak) {
  PacketLog log = three_packets();
  log.ports.clear();
  log.events.clear();
  const Json trace = trace_of(log);
  EXPECT_EQ(bars_named(trace, "fabric").size(), 2U);
  EXPECT_EQ(bars_named(trace, "lost in the fabric").size(), 1U);
  EXPECT_NE(trace["otherData"]["note"], "");
  expect_whole_arrows(trace);
  const TraceSummary summary = summary_of(log);
  EXPECT_EQ(summary.of(PacketOutcome::kWhole), 1U);
  EXPECT_EQ(summary.of(PacketOutcome::kTrimmed), 1U);
  EXPECT_EQ(summary.of(PacketOutcome::kLost), 1U);
  EXPECT_EQ(summary.p99, base::microseconds(50));
}

TEST(PacketTrace, AMarkIsSeenAtTheEndsToo) {
  PacketLog log = log_of_two_hosts();
  log.ports.clear();
  log.captures = {capture(true, 1, 10), capture(false, 1, 20)};
  log.captures[0].ecn = SPILLWAY_ECN_ECT0;
  log.captures[1].ecn = SPILLWAY_ECN_CE;
  EXPECT_EQ(summary_of(log).of(PacketOutcome::kMarked), 1U);
}

TEST(PacketTrace, GapsAreTold) {
  PacketLog log = log_of_two_hosts();
  log.captures = {capture(true, 1, 10), capture(false, 1, 20),         // the switch did not report
                                                                       // it
                  capture(true, 2, 30),                                // nor did it see this one
                  capture(false, 3, 40)};                              // its departure was not seen
  log.events = {event(4, 50, SPILLWAY_REASON_ADMITTED, kWholeBytes)};  // seen only at the switch
  log.missed = 5;
  const TraceSummary summary = summary_of(log);
  EXPECT_EQ(summary.of(PacketOutcome::kWhole), 1U);
  EXPECT_EQ(summary.of(PacketOutcome::kLost), 2U);
  EXPECT_EQ(summary.of(PacketOutcome::kUnseen), 1U);
  EXPECT_EQ(summary.missed, 7U);
  const Json trace = trace_of(log);
  EXPECT_EQ(bars_named(trace, "not told").size(), 1U);
  EXPECT_EQ(bars_named(trace, "lost before the switch").size(), 1U);
  ASSERT_EQ(bars_named(trace, "admitted").size(), 1U);
  EXPECT_EQ(bars_named(trace, "admitted")[0]["args"]["arrived"], false);
  expect_whole_arrows(trace);
}

TEST(PacketTrace, GrayLossIsNamed) {
  PacketLog log = log_of_two_hosts();
  log.captures = {capture(true, 1, 10)};
  log.events = {event(1, 11, SPILLWAY_REASON_ADMITTED, kWholeBytes)};
  log.events[0].is_lost = 1;
  EXPECT_EQ(bars_named(trace_of(log), "lost on the link").size(), 1U);
  EXPECT_EQ(summary_of(log).of(PacketOutcome::kLost), 1U);
}

TEST(PacketTrace, BeyondTheLimitOnlyWholeWaysAreShown) {
  PacketLog log = three_packets();
  std::erase_if(log.captures, [](const PacketCapture& capture) {
    return capture.leaves && capture.header.packet != 17;
  });
  log.left_out = 2;
  EXPECT_EQ(join_paths(log).size(), 1U);
  EXPECT_EQ(summary_of(log).left_out, 2U);
}

TEST(PacketTrace, ASwitchAloneIsATraceOfDecisions) {
  PacketLog log = three_packets();
  log.hosts.clear();
  log.captures.clear();
  const Json trace = trace_of(log);
  EXPECT_EQ(events_of(trace, "X").size(), 3U);
  EXPECT_TRUE(events_of(trace, "s").empty());
  const TraceSummary summary = summary_of(log);
  EXPECT_EQ(summary.of(PacketOutcome::kWhole), 1U);
  EXPECT_EQ(summary.of(PacketOutcome::kTrimmed), 1U);
  EXPECT_EQ(summary.of(PacketOutcome::kEarly), 1U);
}

TEST(PacketTrace, NothingIsATraceToo) {
  const Json trace = trace_of(log_of_two_hosts());
  EXPECT_TRUE(events_of(trace, "X").empty());
  EXPECT_EQ(summary_of(log_of_two_hosts()).packets, TraceSummary().packets);
}

TEST(PacketTrace, NamesAreQuoted) {
  PacketLog log = log_of_two_hosts();
  log.ports[0] = "a \"port\"\n";
  const Json trace = trace_of(log);
  EXPECT_TRUE(std::ranges::any_of(trace["traceEvents"], [](const Json& event) {
    return event["name"] == "process_name" && event["args"]["name"] == "a \"port\"\n";
  }));
}

TEST(PacketTrace, IsWrittenInPieces) {
  PacketLog log = log_of_two_hosts();
  for (std::uint16_t i = 0; i < 3000; ++i) {
    log.captures.push_back(capture(true, i, 10 * i));
    log.captures.push_back(capture(false, i, 10 * i + 100));
    log.events.push_back(event(i, 10 * i + 1, SPILLWAY_REASON_ADMITTED, kWholeBytes));
  }
  std::size_t pieces = 0;
  std::string text;
  write_packet_trace(join_paths(log), log, [&](std::string_view piece) {
    ++pieces;
    text += piece;
  });
  EXPECT_GT(pieces, 1U);
  const Json trace = Json::parse(text);
  EXPECT_EQ(events_of(trace, "X").size(), 9000U);
  expect_whole_arrows(trace);
}

// ------------------------------------------------------------------ paths

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kHeaders =
    SPILLWAY_ETHERNET_HEADER + SPILLWAY_IPV4_HEADER + SPILLWAY_UDP_HEADER;

// A data packet of 16 planes of 704 coordinates, 80 bytes of head, over IPv4.
Bytes data_frame(std::size_t payload_bytes) {
  Bytes frame(kHeaders + payload_bytes);
  frame[5] = 7;  // last byte of the receiver's address
  frame[12] = 0x08;
  std::uint8_t* ip = frame.data() + SPILLWAY_ETHERNET_HEADER;
  ip[0] = 0x45;
  ip[1] = 9 << 2 | SPILLWAY_ECN_ECT0;
  ip[9] = SPILLWAY_PROTOCOL_UDP;
  spillway_store_be16(ip + 2, static_cast<std::uint32_t>(frame.size()) - SPILLWAY_ETHERNET_HEADER);
  spillway_store_be16(ip + SPILLWAY_IPV4_HEADER + 4,
                      static_cast<std::uint32_t>(SPILLWAY_UDP_HEADER + payload_bytes));
  spillway_planes_header header = {};
  header.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_PLANES;
  header.common.packet = 17;
  header.row_log2 = SPILLWAY_MAX_ROW_LOG2;
  header.planes = 1 << 6 | 16;
  header.quanta = 22;
  header.head_words = 20;
  header.scale = 0x3F800000;
  std::memcpy(frame.data() + kHeaders, &header, sizeof(header));
  return frame;
}

TEST(PacketCapture, ReadsAWholePacketFromItsFirstBytes) {
  Bytes frame = data_frame(1400);
  const std::optional<PacketCapture> capture =
      read_capture({frame.data(), SPILLWAY_LONGEST_HEADERS}, 1442);
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ(capture->bytes, 1442U);
  EXPECT_EQ(+capture->header.packet, 17);
  EXPECT_EQ(capture->ecn, SPILLWAY_ECN_ECT0);
  EXPECT_EQ(receiver_of(frame), (HardwareAddress{0, 0, 0, 0, 0, 7}));
}

TEST(PacketCapture, KnowsAPacketThatWasCutAndKeptItsLengths) {
  Bytes frame = data_frame(1400);
  const std::optional<PacketCapture> capture =
      read_capture({frame.data(), SPILLWAY_LONGEST_HEADERS}, 256);
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ(capture->bytes, 256U);
}

TEST(PacketCapture, TakesNothingElseForSpillways) {
  Bytes other = data_frame(1400);
  other[kHeaders] = (SPILLWAY_WIRE_VERSION + 1) << 4 | SPILLWAY_TYPE_PLANES;
  EXPECT_FALSE(read_capture(other, 1442).has_value());
  Bytes tcp = data_frame(1400);
  tcp[SPILLWAY_ETHERNET_HEADER + 9] = 6;
  EXPECT_FALSE(read_capture(tcp, 1442).has_value());
}

TEST(PacketCapture, ReadsNoFurtherThanThereAreBytes) {
  const Bytes frame = data_frame(1400);
  for (std::size_t kept = 0; kept < kHeaders + sizeof(spillway_planes_header); ++kept) {
    Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(kept));
    EXPECT_FALSE(read_capture(cut, 1442).has_value()) << kept;
    EXPECT_FALSE(read_capture(cut, static_cast<std::uint32_t>(kept)).has_value()) << kept;
  }
}

}  // namespace

}  // namespace spillway::lab
