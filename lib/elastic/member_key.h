// SPDX-License-Identifier: Apache-2.0
//
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
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "comm/rendezvous/channel.h"
#include "comm/rendezvous/crypto.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/message.h"
#include "elastic/membership/view.h"

namespace spillway::runtime {

using MemberPublicKey = std::array<std::uint8_t, 32>;

base::Result<membership::MemberId> id_of(const MemberPublicKey& key);

class MemberKey {
 public:
  MemberKey() = default;  // nobody's
  static base::Result<MemberKey> draw();

  const MemberPublicKey& public_key() const { return public_; }
  membership::MemberId id() const { return id_; }
  const SealKey& private_key() const { return private_; }

 private:
  SealKey private_;
  MemberPublicKey public_{};
  membership::MemberId id_ = 0;
};

// One stream between two members.
struct MemberStream {
  const Credential& credential;
  MemberPublicKey peer{};
  bool is_dialler = false;  // this side dialled
  Random own{};             // the handshake's
  Random peers{};
  base::ByteView own_hello{};  // bodies of the MEMBER frames, as they were said and heard
  base::ByteView peers_hello{};
};
// The channel that only `own` and the stream's peer can use.
base::Result<Channel> channel_between(const MemberKey& own, const MemberStream& stream);

}  // namespace spillway::runtime
