// SPDX-License-Identifier: Apache-2.0
//
// What an attacker makes of packets he has heard. A forgery here is as good as it can be without
// the keys it would need: its header passes for one of the job's, so that it gets as far as the
// check that has to refuse it.
//
// Pure functions on whole packets as their senders wrote them; of their numbers the low bits count.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "wire/control_packet.h"
#include "wire/packet_auth.h"

namespace spillway::sim {

using PacketBytes = std::vector<std::uint8_t>;

enum class Attack : std::uint8_t {
  kReplay,      // a packet once more
  kCut,         // the beginning of one
  kFlip,        // one with bits flipped
  kNoise,       // random bytes, perhaps behind the beginning of one
  kRedirect,    // one sent to another rank than it is for
  kReaddress,   // one that says it is for another rank, or from another
  kReflect,     // one sent back to its sender, as if it were the answer
  kPush,        // one with its number far ahead
  kOtherRun,    // one of another run of the job
  kOtherEpoch,  // one of another epoch of this run
  kLeave,       // made up: a rank's owner has aborted
  kEnd,         // made up: a message is over, or has not begun
};
inline constexpr std::size_t kAttacks = 12;

// Whether tags alone keep it out. Jobs that make do with CRC32C are promised nothing about those.
bool needs_tags(Attack attack);

// Who it says it is from, and for.
struct PacketEnds {
  std::uint16_t source = 0;
  std::uint16_t destination = 0;
};
PacketEnds ends_of(base::ByteView packet);
void set_ends(PacketBytes& packet, const PacketEnds& ends);
void set_epoch(PacketBytes& packet, std::uint64_t epoch);
// Adds to a data packet's number, or a control packet's sequence.
void push_number(PacketBytes& packet, std::uint32_t by);

// Bytes from its first that have to be there and unchanged for any of it to be believed.
std::size_t trusted_end(base::ByteView packet);

// The same packet with the checks it would have under these keys; its whole number is nearest to
// `near`.
PacketBytes resealed(base::ByteView packet, const wire::PacketAuth& auth, std::uint64_t near);

}  // namespace spillway::sim
