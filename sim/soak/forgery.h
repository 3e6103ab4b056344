// SPDX-License-Identifier: Apache-2.0
//
// Forgeries that an attacker makes of recorded packets. A forgery is as good as possible without
// the keys: its header looks genuine, so that the packet reaches the check that must refuse it.
//
// Pure functions on whole packets as sent. Packets carry only the low bits of their numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "wire/control_packet.h"
#include "wire/packet_auth.h"

namespace spillway::sim {

using PacketBytes = std::vector<std::uint8_t>;

enum class Attack : std::uint8_t {
  kReplay,      // a recorded packet
  kCut,         // a prefix of one
  kFlip,        // one with bits flipped
  kNoise,       // random bytes, perhaps after the first bytes of one
  kRedirect,    // one sent to a rank that it is not for
  kReaddress,   // one that claims another destination or source
  kReflect,     // one sent back to its sender, as if it were the answer
  kPush,        // one with a number far ahead
  kOtherRun,    // one of another run of the job
  kOtherEpoch,  // one of another epoch of this run
  kLeave,       // made up: a rank's application has aborted
  kEnd,         // made up: a message is over, or has not begun
};
inline constexpr std::size_t kAttacks = 12;

// True if only tags reject the attack; jobs with CRC-32C have no protection against it.
bool needs_tags(Attack attack);

// The source and destination in a packet's header.
struct PacketEnds {
  std::uint16_t source = 0;
  std::uint16_t destination = 0;
};
PacketEnds ends_of(base::ByteView packet);
void set_ends(PacketBytes& packet, const PacketEnds& ends);
void set_epoch(PacketBytes& packet, std::uint64_t epoch);
// Adds to a data packet's number, or a control packet's sequence.
void push_number(PacketBytes& packet, std::uint32_t by);

// The length of the prefix that must arrive unchanged for any of the packet to be trusted.
std::size_t trusted_end(base::ByteView packet);

// The same packet with the checks that these keys give; its full number is the one nearest to
// `near`.
PacketBytes resealed(base::ByteView packet, const wire::PacketAuth& auth, std::uint64_t near);

}  // namespace spillway::sim
