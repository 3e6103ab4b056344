// SPDX-License-Identifier: Apache-2.0
//
// What a prober and a listener say to each other, over UDP: questions and their answers, one
// datagram each. All numbers are little-endian.
//
//   0  magic 4 | version 1 | type 1 | tos 1 | answer_tos 1
//   8  session 8
//  16  sequence 4 | size 2 (of the whole datagram) | zero 2
//  24  sent 8 | received 8 | answered 8 (nanoseconds of the time of day)
//  48  a summary, in answers to kSummary; else padding that nobody looks at
//
// A summary is what the listener counted of a prober's burst: how many datagrams arrived with which
// length and DSCP, and how many frames only the wire saw.
//
//  48  flags 4 (bit 0: watches) | overflowed 4 | others 4 | stale 4
//  64  stale_smallest 2 | stale_largest 2 | kinds 1 | zero 3
//  72  interface 16 | host 64 (padded with zeros)
// 152  kMaxKinds times: length 2 | dscp 1 | zero 1 | count 4
//
// A question to kSummary is as long as its answer and no other answer is longer than a bare
// header, so nothing is ever answered with more bytes than were asked with. The first byte is none
// that a Spillway packet begins with. Reading is a pure function of the bytes and takes any: what
// was cut on the way does not have its size and is refused, and so is a summary whose names hold
// anything but letters, digits and -._:@, because they end up in commands that people copy.
// Bounded: kMaxKinds lengths, the rest is counted together. Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace spillway::doctor {

enum class ProbeType : std::uint8_t {
  kEcho = 1,  // say when and how this came
  kEchoAnswer = 2,
  kStart = 3,  // forget what was counted for this session, and count
  kStartAnswer = 4,
  kSummary = 5,  // say what was counted
  kSummaryAnswer = 6,
};

inline constexpr std::size_t kProbeBytes = 48;
inline constexpr std::size_t kSummaryBytes = 320;  // of a kSummary and of its answer, at least
inline constexpr std::size_t kLongestProbe = 9000;

struct ProbePacket {
  ProbeType type = ProbeType::kEcho;
  std::uint8_t tos = 0;         // question: as it was sent; answer: as the question arrived
  std::uint8_t answer_tos = 0;  // with which the answer is sent
  std::uint64_t session = 0;    // drawn by the prober
  std::uint32_t sequence = 0;
  std::int64_t sent_ns = 0;      // question left, by the prober's clock
  std::int64_t received_ns = 0;  // question came, by the listener's
  std::int64_t answered_ns = 0;  // answer left, by the listener's

  friend bool operator==(const ProbePacket&, const ProbePacket&) = default;
};

bool is_question(ProbeType type);
ProbeType answer_to(ProbeType question);

// Nothing where the bytes are not a whole probe of this version.
std::optional<ProbePacket> read_probe(base::ByteView bytes);

// Fills all of `out`, whose size becomes that of the datagram: kProbeBytes to kLongestProbe.
void write_probe(const ProbePacket& probe, base::MutableByteView out);

struct ArrivalKind {
  std::uint16_t length = 0;  // of the UDP payload
  std::uint8_t dscp = 0;
  std::uint32_t count = 0;

  friend bool operator==(const ArrivalKind&, const ArrivalKind&) = default;
};

struct ArrivalSummary {
  static constexpr std::size_t kMaxKinds = 16;

  bool watches = false;              // the listener may look at the wire
  std::uint32_t overflowed = 0;      // datagrams lost at the listener's own socket
  std::uint32_t others = 0;          // arrivals of yet other kinds
  std::uint32_t stale = 0;           // frames shorter than their IP or UDP header says
  std::uint16_t stale_smallest = 0;  // their sizes, from the Ethernet header on
  std::uint16_t stale_largest = 0;
  std::uint8_t kind_count = 0;
  std::array<ArrivalKind, kMaxKinds> kinds{};
  std::string interface {};  // where stale frames came in
  std::string host{};        // the listener's name

  std::span<const ArrivalKind> seen() const { return std::span(kinds).first(kind_count); }

  void count(std::size_t length, std::uint8_t dscp);
  void count_stale(std::size_t frame_bytes, std::string_view on_interface);

  friend bool operator==(const ArrivalSummary&, const ArrivalSummary&) = default;
};

inline constexpr std::size_t kSummaryBodyBytes = 232;

// Behind the header of a probe of at least kSummaryBytes.
void write_summary(const ArrivalSummary& summary, base::MutableByteView probe);
std::optional<ArrivalSummary> read_summary(base::ByteView probe);

// `name` with what a summary must not hold replaced, as long as it may be.
std::string plain_name(std::string_view name);

}  // namespace spillway::doctor
