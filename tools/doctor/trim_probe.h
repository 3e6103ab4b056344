// SPDX-License-Identifier: Apache-2.0
//
// Finds out whether the path to another host trims packets, and whether it leaves them with stale
// lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/system_call.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/probe_packet.h"
#include "tools/doctor/probe_socket.h"
#include "wire/packet_auth.h"

namespace spillway::doctor {

// ------------------------------------------------------------------ stale packets

// Stale packets: packets that a switch cut without correcting their lengths. The IP or UDP header
// promises more bytes than there are, so the kernel drops them and no socket ever sees them.
//
// stale_payload() parses the raw bytes of an IP packet and trusts none of them. It does not look
// into fragments or IPv6 extension headers. Pure; any thread.
//
// WireWatch sees stale packets to one port on all interfaces through a packet socket, which needs
// CAP_NET_RAW. A kernel filter passes only such packets, so watching costs nothing while there are
// none. Non-blocking; one thread.

// Returns the remaining UDP payload of a packet to `port` whose lengths are stale, nothing for all
// other packets. `packet` begins with the IP header.
std::optional<base::ByteView> stale_payload(base::ByteView packet, std::uint16_t port);

struct StalePacket {
  base::ByteView payload;       // the remaining part of the UDP payload
  std::size_t frame_bytes = 0;  // from the Ethernet header on
  std::string interface {};
};

class WireWatch {
 public:
  static base::Result<WireWatch> open(bool ipv6, std::uint16_t port);

  int fd() const { return fd_.get(); }
  // Handles at most a few hundred waiting frames, so that other sockets get their turn.
  void drain(const std::function<void(const StalePacket&)>& handle);

 private:
  WireWatch(net::UniqueFd fd, std::uint16_t port);

  net::UniqueFd fd_;
  std::uint16_t port_;
  std::vector<std::uint8_t> buffer_;
};

// ------------------------------------------------------------------ the probe

// Sends about a second of full-size data packets to a listener. They fill a queue on the path and
// show what the switch does then. Never faster than `rate`, and of the lowest priority.
//
// These are Spillway's own data packets, with header and checks, so that a switch treats them as
// such. They belong to job 65535, which no job should use. Their operation is the lower half of the
// session (the tag), so a listener can attribute even a trimmed packet.
//
// Making and reading packets is pure; send_burst() blocks for the burst's length. Any thread.

// Lowest priority, so that other traffic goes first. Important enough that a Spillway switch does
// not drop the packets early: then none would be trimmed.
std::uint8_t burst_tos();

// The check of burst packets. Its key is public: it only makes the packets valid.
wire::PacketAuth burst_auth();

// Fills `limit` bytes of UDP payload to within 40 bytes; `limit` is at least 256.
std::vector<std::uint8_t> make_burst_packet(std::uint32_t tag, std::size_t limit);

// Returns the tag of a packet of a burst, even a trimmed one; nothing for other bytes.
std::optional<std::uint32_t> burst_tag_of(base::ByteView payload);

struct BurstOptions {
  net::SocketAddress peer;
  std::uint32_t tag = 0;
  std::size_t payload_limit = 0;  // bytes of UDP payload that fit the path
  base::BitRate rate;
  base::Duration length;
};

struct BurstSent {
  std::uint64_t packets = 0;
  std::size_t payload_bytes = 0;  // per packet
};

base::Result<BurstSent> send_burst(const BurstOptions& options);

// The size to which the switches on the path trim packets, found by filling a queue. It compares
// the listener's counts of a burst with the packets sent and with the ranks' setting (the variable
// SPILLWAY_TRIM_BYTES). Sizes are those of frames from the Ethernet header on, as switches see
// them. A tag removed on the way makes a difference of 4 bytes. The judgement is pure.

struct BurstOutcome {
  BurstSent sent;
  ArrivalSummary arrived;
  bool ipv6 = false;
};

struct TrimOutcome {
  std::uint64_t whole = 0;
  std::uint64_t trimmed = 0;  // with corrected lengths, so that sockets receive them
  std::uint64_t lost = 0;     // neither arrived nor stale
  unsigned frame_bytes = 0;   // of most trimmed frames; 0: none
  unsigned smallest = 0;
  unsigned largest = 0;
  std::uint8_t dscp = 0;  // of most trimmed packets
};

TrimOutcome trims_of(const BurstOutcome& burst);

// `configured_bytes`: the value of SPILLWAY_TRIM_BYTES, if set.
Findings check_trims(const BurstOutcome& burst, std::optional<unsigned> configured_bytes);

struct TrimOptions {
  base::BitRate rate;
  base::Duration length;
};

// Returns nothing if the listener did not reply. `payload_limit`: as for a burst.
std::optional<BurstOutcome> provoke_trims(PeerLink& link, std::size_t payload_limit,
                                          const TrimOptions& options);

}  // namespace spillway::doctor
