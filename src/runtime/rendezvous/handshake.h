// SPDX-License-Identifier: Apache-2.0
//
// How a guest and the host of a rendezvous prove to each other that they know the job's key, before
// either says anything about the job, and what protects all that they say then.
//
//   guest ── opening: its random ─────────────────────────────────────────► host
//   guest ◄─ challenge: its random, HMAC(key, "host" | both randoms) ────── host
//   guest ── proof: HMAC(key, "guest" | both randoms) ────────────────────► host
//   both     a key for each direction follows from key and both randoms (channel.h)
//
// Randoms are fresh for each connection, so nothing of an earlier one proves anything; the words
// "host" and "guest" keep a proof from being sent back to whoever made it. Without a key there are
// no proofs and the channel is plain: then host and guest do not know whom they talk to. One side
// with a key and one without do not meet.
//
// Whoever connects gets the host's proof and can test guesses of the secret against it at leisure:
// a secret is drawn, not thought up. No forward secrecy: who learns the secret can read what was
// recorded.
//
// Pure state machines, handed frames and randoms; any frame gives an answer or an error, and after
// an error there is no way on. The key is wiped with its credential. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "runtime/rendezvous/channel.h"
#include "runtime/rendezvous/crypto.h"
#include "runtime/rendezvous/message.h"

namespace spillway::runtime {

// What a rank brings to prove that it belongs.
class Credential {
 public:
  Credential() = default;  // nothing
  static base::Result<Credential> of_secret(base::ByteView secret);
  static base::Result<Credential> of_id(const Nonce& nonce);

  Keying keying() const { return keying_; }
  // Everything else is derived from this; zeros without keying.
  const SealKey& key() const { return key_; }

 private:
  Keying keying_ = Keying::kNone;
  SealKey key_{};
};

// Why someone is no guest.
enum class StrangerKind : std::uint8_t {
  kNoise,     // spoke something else, or another protocol
  kKeying,    // has a secret where the host has none, or the other way round
  kUnproven,  // did not know the key, or what it sent was changed on its way
  kSilent,    // did not say in time what it is, or had to make room for others
};
inline constexpr std::size_t kStrangerKinds = 4;

class GuestHandshake {
 public:
  GuestHandshake(const Credential& credential, const Random& own)
      : credential_(credential), own_(own) {}

  // The first thing to say.
  Frame opening() const { return encode(Opening{credential_.keying(), own_}); }
  // Of the host's frame: what to say next, if anything. A refusal is an error, too: nobody has
  // proved anything yet, so it is not the last word.
  base::Result<std::optional<Frame>> take(const Frame& frame);

  bool is_done() const { return state_ == State::kDone; }
  // Once done: for all that follows.
  const Channel& channel() const { return channel_; }

 private:
  enum class State : std::uint8_t { kChallenge, kDone, kFailed };

  base::Result<std::optional<Frame>> answer(const Frame& frame);

  const Credential& credential_;
  Random own_;
  State state_ = State::kChallenge;
  Channel channel_{};
};

class HostHandshake {
 public:
  HostHandshake(const Credential& credential, const Random& own)
      : credential_(credential), own_(own) {}

  // Of the guest's frame: what to answer, if anything. The sentence of an error may be told to a
  // stranger.
  base::Result<std::optional<Frame>> take(const Frame& frame);

  bool is_done() const { return state_ == State::kDone; }
  const Channel& channel() const { return channel_; }
  // After an error.
  StrangerKind fault() const { return fault_; }

 private:
  enum class State : std::uint8_t { kOpening, kProof, kDone, kFailed };

  base::Result<std::optional<Frame>> answer(const Frame& frame);
  base::Result<std::optional<Frame>> challenge(const Frame& frame);
  base::Status check_proof(const Frame& frame);

  const Credential& credential_;
  Random own_;
  Random guest_{};
  State state_ = State::kOpening;
  StrangerKind fault_ = StrangerKind::kNoise;
  Channel channel_{};
};

}  // namespace spillway::runtime
