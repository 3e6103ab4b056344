// SPDX-License-Identifier: Apache-2.0
//
// What a prober and a listener say to each other, over UDP: questions and their answers, one
// datagram each. All numbers are little-endian.
//
//   0  magic 4 | version 1 | type 1 | tos 1 | answer_tos 1
//   8  session 8
//  16  sequence 4 | size 2 (of the whole datagram) | zero 2
//  24  sent 8 | received 8 | answered 8 (nanoseconds of the time of day)
//  48  a summary, in answers to kSummary (arrival_summary.h); else padding that nobody looks at
//
// A question to kSummary is as long as its answer and no other answer is longer than a bare
// header, so nothing is ever answered with more bytes than were asked with. The first byte is none
// that a Spillway packet begins with. Reading is a pure function of the bytes and takes any; what
// was cut on the way does not have its size and is refused. No state; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

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

}  // namespace spillway::doctor
