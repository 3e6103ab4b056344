// SPDX-License-Identifier: Apache-2.0
//
// What the members of a job, and tools that ask about it, say to each other behind a handshake
// (rendezvous/handshake.h): frames as in rendezvous/message.h, little-endian.
//
//   member    first word of whoever dials: job's nonce 16, what it is 1, version text, card
//             and the first of whoever is dialled
//   welcome   to a newcomer: the job's key 32, cards: count 2, cards
//   roster    cards of members that the other may not know of: count 2, cards
//   speech    a message of membership::Member, as it is
//   question  of a tool: text; reply: text
//
//   card      id 8, address text, name text; a text is its length in 2 bytes and so many bytes
//
// Pure functions: any bytes give a value or an error. Limits: kMaxRoster cards, kMaxMeshText a
// text, kMaxReplyBytes a reply.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "membership/view.h"
#include "net/address.h"
#include "runtime/rendezvous/message.h"
#include "wire/key.h"

namespace spillway::runtime {

inline constexpr std::size_t kMaxRoster = membership::kMaxMembers;
inline constexpr std::size_t kMaxMeshText = 65535;
inline constexpr std::size_t kMaxReplyBytes = 4 * 1024 * 1024;

// Who a member is, and where it can be spoken to.
struct MemberCard {
  membership::MemberId id = 0;
  net::SocketAddress address{};
  std::string name{};  // host and process: "host3:4711"

  friend bool operator==(const MemberCard&, const MemberCard&) = default;
};

enum class Standing : std::uint8_t {
  kMember = 0,
  kNewcomer = 1,  // wants to be one
};

struct MemberHello {
  Nonce job{};
  Standing standing = Standing::kMember;
  std::string version{};  // of the library
  MemberCard card{};
};

struct MemberWelcome {
  wire::RunKey key{};  // what the keys of all epochs follow from
  std::vector<MemberCard> cards{};
};

Frame encode(const MemberHello& hello);
Frame encode(const MemberWelcome& welcome);
Frame encode_roster(const std::vector<MemberCard>& cards);
Frame encode_text(FrameType type, std::string_view text);

base::Result<MemberHello> parse_member_hello(base::ByteView body);
base::Result<MemberWelcome> parse_member_welcome(base::ByteView body);
base::Result<std::vector<MemberCard>> parse_roster(base::ByteView body);

}  // namespace spillway::runtime
