// SPDX-License-Identifier: Apache-2.0
//
// Messages between a job's members, and from tools that ask about it, after the handshake
// (rendezvous/handshake.h). Frames are those of rendezvous/message.h, little-endian.
//
//   member    the first frame of either side: job's nonce 16, standing 1, public key 32
//   (member_key.h),
//             version text, card
//   proof     the second of either side, empty; this and all later ones are sealed with keys that
//             only these two processes can derive
//   welcome   to a newcomer: the job's key 32, cards: count 2, cards
//   roster    cards of members that the peer may not know: count 2, cards
//   speech    a message of membership::Member, unchanged
//   question  from a tool: text; reply: text
//
//   card      id 8, address text, name text; a text is its length (2 bytes) and its bytes
//
// Pure functions: any bytes give a value or an error. Limits: kMaxRoster cards, kMaxMeshText per
// text, kMaxReplyBytes per reply.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/rendezvous/message.h"
#include "elastic/member_key.h"
#include "elastic/membership/view.h"
#include "net/address.h"
#include "wire/key.h"

namespace spillway::runtime {

inline constexpr std::size_t kMaxRoster = membership::kMaxMembers;
inline constexpr std::size_t kMaxMeshText = 65535;
inline constexpr std::size_t kMaxReplyBytes = 4 * 1024 * 1024;

// A member's identity and the address of its mesh.
struct MemberCard {
  membership::MemberId id = 0;
  net::SocketAddress address{};
  std::string name{};  // host and process: "host3:4711"

  friend bool operator==(const MemberCard&, const MemberCard&) = default;
};

enum class Standing : std::uint8_t {
  kMember = 0,
  kNewcomer = 1,  // wants to become a member
};

struct MemberHello {
  Nonce job{};
  Standing standing = Standing::kMember;
  MemberPublicKey key{};  // the card's id is its id
  std::string version{};  // of the library
  MemberCard card{};
};

struct MemberWelcome {
  wire::RunKey key{};  // the job's key, from which all epochs' keys derive
  std::vector<MemberCard> cards{};
};

Frame encode(const MemberHello& hello);
Frame encode_member_proof();
Frame encode(const MemberWelcome& welcome);
Frame encode_roster(const std::vector<MemberCard>& cards);
Frame encode_text(FrameType type, std::string_view text);

base::Result<MemberHello> parse_member_hello(base::ByteView body);
base::Result<MemberWelcome> parse_member_welcome(base::ByteView body);
base::Result<std::vector<MemberCard>> parse_roster(base::ByteView body);

}  // namespace spillway::runtime
