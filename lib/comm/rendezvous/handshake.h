// SPDX-License-Identifier: Apache-2.0
//
// How a guest and the host of a rendezvous prove to each other that they know the job's key before
// they exchange job data; and the channel that protects the rest.
//
//   guest ── opening: its random ─────────────────────────────────────────► host
//   guest ◄─ challenge: its random, HMAC(key, "host" | both randoms) ────── host
//   guest ── proof: HMAC(key, "guest" | both randoms) ────────────────────► host
//   both     a key for each direction follows from key and both randoms (channel.h)
//
// Randoms are fresh for each connection, so replayed proofs fail. The words "host" and "guest" keep
// a proof from being reflected to its maker. Without a key there are no proofs and the channel is
// plain: neither side then knows its peer. A side with a key and one without do not meet.
//
// Any client gets the host's proof and can test guesses of the secret against it offline, so a
// secret must be random. There is no forward secrecy: the secret opens recorded connections.
//
// Pure state machines, given frames and randoms. Any frame gives an answer or an error; errors are
// final. The key is wiped with its credential. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "comm/rendezvous/channel.h"
#include "comm/rendezvous/crypto.h"
#include "comm/rendezvous/message.h"

namespace spillway::runtime {

// What a rank uses to prove that it belongs to the job.
class Credential {
 public:
  Credential() = default;  // no key
  static base::Result<Credential> of_secret(base::ByteView secret);
  static base::Result<Credential> of_id(const Nonce& nonce);

  Keying keying() const { return keying_; }
  // All other keys derive from this one; zeros without keying.
  const SealKey& key() const { return key_; }

 private:
  Keying keying_ = Keying::kNone;
  SealKey key_{};
};

// Why a client was rejected.
enum class StrangerKind : std::uint8_t {
  kNoise,     // sent something else, or another protocol version
  kKeying,    // keyed by other means than the host
  kUnproven,  // no valid proof, or a changed frame
  kSilent,    // timed out, or was silent when it had to make room for others
  kCrowded,   // found no place, or had to make room after an answer: ranks then connect again
};
inline constexpr std::size_t kStrangerKinds = 5;

class GuestHandshake {
 public:
  GuestHandshake(const Credential& credential, const Random& own)
      : credential_(credential), own_(own) {}

  // The first frame to send.
  Frame opening() const { return encode(Opening{credential_.keying(), own_}); }
  // Takes the host's frame; returns the frame to send next, if any. A refusal is an error too, but
  // not final for the rank: the host has not proved anything yet.
  base::Result<std::optional<Frame>> take(const Frame& frame);

  bool is_done() const { return state_ == State::kDone; }
  // Valid once is_done(), for all later frames.
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

  // Takes the guest's frame; returns the answer, if any. An error's message may be sent to a
  // stranger.
  base::Result<std::optional<Frame>> take(const Frame& frame);

  bool is_done() const { return state_ == State::kDone; }
  const Channel& channel() const { return channel_; }
  // Valid after an error.
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
