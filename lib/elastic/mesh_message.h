// SPDX-License-Identifier: Apache-2.0
//
// Messages that members of a job exchange over streams, and the key that proves who sends them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/message.h"
#include "elastic/membership/view.h"
#include "net/address.h"
#include "wire/key.h"

namespace spillway::elastic {

// ------------------------------------------------------------------ the key of a member

// The key that makes a process the only one with its member id.
//
// All members of a job share one credential, so the credential tells nobody who a peer is. Each
// process therefore draws an X25519 key when it starts. Its id is a hash of the public half, so
// nobody needs a list of keys: a view's ids name them.
//
//   id = SHA-256(label, public key), the first 8 bytes
//   keys of a stream = HKDF(X25519(own private, peer's public) and the credential;
//                           randoms of the handshake, both public keys, SHA-256 of both hellos)
//
// The dialler's value comes first in each pair. Only the two processes can derive a stream's keys.
// A frame that opens under them proves the sender's id, and that neither hello was changed on its
// way: an attacker with the ticket could otherwise rewrite addresses and names. The proof is worth
// nothing on another stream or to another member. To take a member's id, an attacker must find a
// second key with the same hash: about 2^64 attempts.
//
// Plain values; any thread. Functions fail only if OpenSSL lacks something. channel_between() also
// fails for public keys that make the shared secret a constant.

using MemberPublicKey = std::array<std::uint8_t, 32>;

base::Result<membership::MemberId> id_of(const MemberPublicKey& key);

class MemberKey {
 public:
  MemberKey() = default;  // nobody's
  static base::Result<MemberKey> draw();

  const MemberPublicKey& public_key() const { return public_; }
  membership::MemberId id() const { return id_; }
  const comm::SealKey& private_key() const { return private_; }

 private:
  comm::SealKey private_;
  MemberPublicKey public_{};
  membership::MemberId id_ = 0;
};

// One stream between two members.
struct MemberStream {
  const comm::Credential& credential;
  MemberPublicKey peer{};
  bool is_dialler = false;  // this side dialled
  comm::Random own{};       // the handshake's
  comm::Random peers{};
  base::ByteView own_hello{};  // bodies of the MEMBER frames, as they were said and heard
  base::ByteView peers_hello{};
};
// The channel that only `own` and the stream's peer can use.
base::Result<comm::Channel> channel_between(const MemberKey& own, const MemberStream& stream);

// ------------------------------------------------------------------ messages

// Messages between a job's members, and from tools that ask about it, after the handshake
// (rendezvous/handshake.h). Frames are those of rendezvous/message.h, little-endian.
//
//   member    the first frame of either side: job's nonce 16, standing 1, public key 32,
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
  launch::Nonce job{};
  Standing standing = Standing::kMember;
  MemberPublicKey key{};  // the card's id is its id
  std::string version{};  // of the library
  MemberCard card{};
};

struct MemberWelcome {
  wire::RunKey key{};  // the job's key, from which all epochs' keys derive
  std::vector<MemberCard> cards{};
};

comm::Frame encode(const MemberHello& hello);
comm::Frame encode_member_proof();
comm::Frame encode(const MemberWelcome& welcome);
comm::Frame encode_roster(const std::vector<MemberCard>& cards);
comm::Frame encode_text(comm::FrameType type, std::string_view text);

base::Result<MemberHello> parse_member_hello(base::ByteView body);
base::Result<MemberWelcome> parse_member_welcome(base::ByteView body);
base::Result<std::vector<MemberCard>> parse_roster(base::ByteView body);

// A member's handle, which membership carries: the cards of its places, one per channel. The format
// is a count (1 byte), then for each card its length (2 bytes) and its bytes. Any bytes give cards
// or an error. Pure.

base::Result<membership::Handle> encode_handle(const std::vector<comm::Blob>& cards);
base::Result<std::vector<comm::Blob>> parse_handle(const membership::Handle& handle);

}  // namespace spillway::elastic
