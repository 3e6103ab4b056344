// SPDX-License-Identifier: Apache-2.0
//
// How a joiner and the host of a rendezvous prove to each other that they know the job's key before
// they exchange job data; and the channel that protects the rest.
//
//   joiner ── opening: its random ────────────────────────────────────────► host
//   joiner ◄─ challenge: its random, HMAC(key, "host" | both randoms) ───── host
//   joiner ── proof: HMAC(key, "guest" | both randoms) ───────────────────► host
//   both      a key for each direction follows from key and both randoms (Channel)
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

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "comm/rendezvous/message.h"

namespace spillway::comm {

// Primitives of the handshake, from the kernel and OpenSSL: random bytes, HMAC-SHA256, SHA-256, and
// AES-256-GCM over one message. Any thread; pure, except for draw_random() and draw_key().
// Functions fail only if OpenSSL lacks or refuses something; tampering is kCorrupt.

using SealKey = wire::Key<32>;
using Digest = std::array<std::uint8_t, 32>;

// From the kernel.
base::Result<Random> draw_random();
base::Result<wire::RunKey> draw_key();

base::Result<Proof> hmac_sha256(const SealKey& key, base::ByteView message);
base::Result<Digest> sha256(base::ByteView message);
// Constant-time comparison.
bool is_same(const Proof& one, const Proof& other);

// One message under one key; `number` must never repeat. `beside` is authenticated but not
// encrypted.
struct SealedMessage {
  const SealKey& key;
  std::uint64_t number = 0;
  base::ByteView beside{};
};
// The result is kSealBytes longer than `plain`.
base::Result<Blob> seal(const SealedMessage& message, base::ByteView plain);
base::Result<Blob> unseal(const SealedMessage& message, base::ByteView sealed);

// One end of a connection after its handshake: frames to bytes and back, plain or sealed.
//
// A sealed frame is AES-256-GCM under its direction's key, with the frame's number as nonce and its
// header as associated data. A frame that was changed, dropped, repeated, reordered or reflected to
// its sender does not open. Frame types and lengths stay visible. After an error the connection is
// unusable. A plain value whose keys are wiped with it; one thread.

class Channel {
 public:
  Channel() = default;  // plain
  Channel(const SealKey& sending, const SealKey& receiving)
      : sending_(Direction{sending, 0}), receiving_(Direction{receiving, 0}) {}

  bool is_sealed() const { return sending_.has_value(); }
  // Bytes for the stream. Frames must be sent in the order in which they were packed.
  base::Result<Blob> pack(const Frame& frame);
  // Opens the next frame from the stream.
  base::Result<Frame> unpack(Frame frame);

 private:
  struct Direction {
    SealKey key;
    std::uint64_t frames = 0;  // number of frames so far
  };

  std::optional<Direction> sending_{};
  std::optional<Direction> receiving_{};
};

// The secret by which a rank proves that it belongs to the job.
class Credential {
 public:
  Credential() = default;  // no key
  static base::Result<Credential> of_secret(base::ByteView secret);
  static base::Result<Credential> of_id(const launch::Nonce& nonce);

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

class JoinerHandshake {
 public:
  JoinerHandshake(const Credential& credential, const Random& own)
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

  // Takes the joiner's frame; returns the answer, if any. An error's message may be sent to a
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
  Random joiner_{};
  State state_ = State::kOpening;
  StrangerKind fault_ = StrangerKind::kNoise;
  Channel channel_{};
};

}  // namespace spillway::comm
