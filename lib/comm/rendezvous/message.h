// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a rendezvous: frames of a header and a body on a TCP or Unix stream, little-endian.
//
//   header    magic 4, protocol 2, type 2, body length 4 = 12 bytes
//   opening   joiner to host: keying 1, random 32
//   challenge host to joiner: keying 1, random 32, proof 32 (only with a key)
//   proof     joiner to host: proof 32 (only with a key)
//   hello     joiner to host: nonce 16, random 32, instance 8, world 4, rank 4, patience 4, left 4
//             (both ms), version text (1 + n), blob (4 + n)
//   welcome   host to joiner: no body; the hello was accepted, wait for the other ranks
//   refusal   host to joiner: final 1, reason text (the rest)
//   failure   host to joiner: reason text (all); the rendezvous has failed
//   gather    host to joiner, in parts of kMaxPartBytes; only the last has this type:
//             world 4, drawn 32, then each rank's random 32 and blob (4 + n)
//
// With a key (handshake.h), only opening, challenge and a refusal without job data are sent before
// both sides have proved that they know it. All frames after the proof are sealed (Channel):
// their body is ciphertext and tag.
//
// Pure functions: any bytes give a value or an error. Limits: kMaxBlobBytes per blob, kMaxText per
// text. Readers are given the longest acceptable body before they see its length.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "launch/launch.h"
#include "wire/key.h"

namespace spillway::comm {

using Blob = std::vector<std::uint8_t>;
using Random = std::array<std::uint8_t, 32>;
using Proof = std::array<std::uint8_t, 32>;

inline constexpr std::size_t kMaxBlobBytes = 4096;
inline constexpr std::size_t kMaxText = 1024;
inline constexpr std::size_t kMaxPartBytes = 32768;
inline constexpr std::size_t kFrameHeaderBytes = 12;
inline constexpr std::size_t kSealBytes = 16;  // what sealing adds to a body

// The longest bodies: from unproven clients, and from all others.
inline constexpr std::size_t kMaxHandshakeBytes = 1 + sizeof(Random) + sizeof(Proof);
inline constexpr std::size_t kMaxHelloBytes =
    16 + sizeof(Random) + 8 + 4 * 4 + 1 + 255 + 4 + kMaxBlobBytes + kSealBytes;
inline constexpr std::size_t kMaxAnswerBytes = kMaxPartBytes + kSealBytes;
static_assert(1 + kMaxText <= kMaxPartBytes && kMaxHelloBytes <= kMaxAnswerBytes);

// Size limit of all parts of a gather together.
constexpr std::size_t most_gather_bytes(std::uint32_t world) {
  return 4 + wire::RunKey::kBytes + std::size_t{world} * (sizeof(Random) + 4 + kMaxBlobBytes);
}

enum class FrameType : std::uint16_t {
  kHello = 1,
  kWelcome = 2,
  kRefusal = 3,
  kFailure = 4,
  kGather = 5,
  kGatherPart = 6,  // more parts follow
  kOpening = 7,
  kChallenge = 8,
  kProof = 9,
  // Frames of a job's mesh, after the same handshake (elastic/mesh_message.h).
  kMember = 16,
  kWelcomeMember = 17,
  kRoster = 18,
  kMemberMessage = 19,
  kQuestion = 20,
  kReply = 21,
};

struct Frame {
  FrameType type = FrameType::kHello;
  Blob body{};
};

// The frame's body as text.
inline std::string text_of(const Frame& frame) {
  return {frame.body.begin(), frame.body.end()};
}

// The knowledge that ranks share before they meet.
enum class Keying : std::uint8_t {
  kNone = 0,    // nothing
  kId = 1,      // the nonce of a unique id, known only to ranks that got the id
  kSecret = 2,  // the job's secret
};

struct Opening {
  Keying keying = Keying::kNone;
  Random random{};
};

struct Challenge {
  Keying keying = Keying::kNone;
  Random random{};
  Proof proof{};  // not sent without keying
};

struct Hello {
  launch::Nonce nonce{};
  Random random{};             // this rank's part of the run's key
  std::uint64_t instance = 0;  // tells a reconnecting process from a second one with the same rank
  std::uint32_t world = 0;
  std::uint32_t rank = 0;
  base::Duration patience{};  // how long the joiner waits in total
  base::Duration left{};      // the part of it that is left
  std::string version{};      // of the library
  Blob blob{};
};

struct Refusal {
  bool final = false;  // a retry would not help
  std::string reason{};
};

struct Gather {
  wire::RunKey drawn{};           // the host's part of the run's key
  std::vector<Random> randoms{};  // by rank
  std::vector<Blob> blobs{};      // by rank
};

// Texts that are too long are cut.
Frame encode(const Opening& opening);
Frame encode(const Challenge& challenge);
Frame encode(const Proof& proof);
Frame encode(const Hello& hello);
Frame encode(const Refusal& refusal);
Frame encode_welcome();
Frame encode_failure(const std::string& reason);
std::vector<Frame> encode(const Gather& gather);

// Parse a frame's body.
base::Result<Opening> parse_opening(base::ByteView body);
base::Result<Challenge> parse_challenge(base::ByteView body);
base::Result<Proof> parse_proof(base::ByteView body);
base::Result<Hello> parse_hello(base::ByteView body);
base::Result<Refusal> parse_refusal(base::ByteView body);
base::Result<std::string> parse_failure(base::ByteView body);
// `body`: all parts, joined.
base::Result<Gather> parse_gather(base::ByteView body, std::uint32_t world);

// Encode as on the stream.
std::array<std::uint8_t, kFrameHeaderBytes> header_of(FrameType type, std::size_t body_bytes);
Blob to_bytes(const Frame& frame);

// Splits a stream into frames. Holds at most one frame and the bytes appended after it.
class FrameReader {
 public:
  explicit FrameReader(std::size_t most_body_bytes) : most_body_bytes_(most_body_bytes) {}

  // Sets the limit for the next frames.
  void set_most_body_bytes(std::size_t bytes) { most_body_bytes_ = bytes; }
  void append(base::ByteView bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // The next frame; nullopt while it is incomplete. After an error, the stream is unusable.
  base::Result<std::optional<Frame>> next();

 private:
  std::size_t most_body_bytes_;
  Blob bytes_{};
};

}  // namespace spillway::comm
