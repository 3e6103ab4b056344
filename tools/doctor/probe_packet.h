// SPDX-License-Identifier: Apache-2.0
//
// The protocol between a prober and a listener over UDP: requests and replies, one datagram each.
// All numbers are little-endian.
//
//   0  magic 4 | version 1 | type 1 | tos 1 | reply_tos 1
//   8  session 8
//  16  sequence 4 | size 2 (of the whole datagram) | zero 2
//  24  sent 8 | received 8 | answered 8 (nanoseconds of the time of day)
//  48  a summary in replies to kSummary; else padding that is ignored
//
// A summary is the listener's count of a prober's burst: how many datagrams arrived of each length
// and DSCP, and how many frames only the wire saw.
//
//  48  flags 4 (bit 0: watches) | overflowed 4 | others 4 | stale 4
//  64  stale_smallest 2 | stale_largest 2 | kinds 1 | zero 3
//  72  interface 16 | host 64 (padded with zeros)
// 152  kMaxKinds times: length 2 | dscp 1 | zero 1 | count 4
//
// A kSummary request is as long as its reply, and every other reply is a bare header. So no
// reply has more bytes than its request. The first byte differs from that of any Spillway packet.
//
// Reading is a pure function that accepts any bytes. It refuses a datagram that was cut, because
// its size is wrong. It refuses a summary whose names hold anything but letters, digits and -._:@,
// because they end up in commands that people copy. Bounded: kMaxKinds kinds; all others are
// counted together. Plain values; any thread.
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
  kEcho = 1,  // asks when and how this arrived
  kEchoReply = 2,
  kStart = 3,  // resets the counts of this session and starts counting
  kStartReply = 4,
  kSummary = 5,  // asks for the counts
  kSummaryReply = 6,
};

inline constexpr std::size_t kProbeBytes = 48;
inline constexpr std::size_t kSummaryBytes = 320;  // least size of a kSummary and of its reply
inline constexpr std::size_t kLongestProbe = 9000;

struct ProbePacket {
  ProbeType type = ProbeType::kEcho;
  std::uint8_t tos = 0;        // request: as sent; reply: as the request arrived
  std::uint8_t reply_tos = 0;  // TOS of the reply
  std::uint64_t session = 0;   // drawn by the prober
  std::uint32_t sequence = 0;
  std::int64_t sent_ns = 0;      // request left, prober's clock
  std::int64_t received_ns = 0;  // request arrived, listener's clock
  std::int64_t replied_ns = 0;   // reply left, listener's clock

  friend bool operator==(const ProbePacket&, const ProbePacket&) = default;
};

bool is_request(ProbeType type);
ProbeType reply_to(ProbeType request);

// Returns nothing unless the bytes are a whole probe of this version.
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

  bool watches = false;              // the listener can see raw frames
  std::uint32_t overflowed = 0;      // datagrams lost at the listener's own socket
  std::uint32_t others = 0;          // arrivals of all other kinds
  std::uint32_t stale = 0;           // frames shorter than their IP or UDP header says
  std::uint16_t stale_smallest = 0;  // their sizes, from the Ethernet header on
  std::uint16_t stale_largest = 0;
  std::uint8_t kind_count = 0;
  std::array<ArrivalKind, kMaxKinds> kinds{};
  std::string interface {};  // where stale frames arrived
  std::string host{};        // the listener's name

  std::span<const ArrivalKind> seen() const { return std::span(kinds).first(kind_count); }

  void count(std::size_t length, std::uint8_t dscp);
  void count_stale(std::size_t frame_bytes, std::string_view on_interface);

  friend bool operator==(const ArrivalSummary&, const ArrivalSummary&) = default;
};

inline constexpr std::size_t kSummaryBodyBytes = 232;

// The summary follows the header of a probe of at least kSummaryBytes.
void write_summary(const ArrivalSummary& summary, base::MutableByteView probe);
std::optional<ArrivalSummary> read_summary(base::ByteView probe);

// Returns `name` with forbidden characters replaced, truncated to the limit.
std::string plain_name(std::string_view name);

}  // namespace spillway::doctor
