// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a rendezvous: frames of a header and a body on a TCP or Unix stream, little-endian.
//
//   header  magic 4, protocol 2, type 2, body length 4 = 12 bytes
//   hello   guest to host: nonce 16, instance 8, world 4, rank 4, patience 4, left 4 (both ms),
//           version text (1 + n), blob (4 + n)
//   welcome host to guest: no body; the hello was good, wait for the others
//   refusal host to guest: final 1, reason text (the rest)
//   failure host to guest: reason text (all); the rendezvous is over without result
//   gather  host to guest: world 4, then each rank's blob (4 + n)
//
// Pure functions: any bytes give a value or an error. Limits: kMaxBlobBytes a blob, kMaxText a
// text, and readers are told the longest body they shall accept before they see its length.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "runtime/launch/rendezvous_point.h"

namespace spillway::runtime {

using Blob = std::vector<std::uint8_t>;

inline constexpr std::size_t kMaxBlobBytes = 4096;
inline constexpr std::size_t kMaxText = 1024;
inline constexpr std::size_t kFrameHeaderBytes = 12;
inline constexpr std::size_t kMaxHelloBytes = 16 + 8 + 4 * 4 + 1 + 255 + 4 + kMaxBlobBytes;

// The longest that a host of `world` ranks sends: what it gathered, or a text.
constexpr std::size_t most_answer_bytes(std::uint32_t world) {
  return 1 + kMaxText + 4 + std::size_t{world} * (4 + kMaxBlobBytes);
}

enum class FrameType : std::uint16_t {
  kHello = 1,
  kWelcome = 2,
  kRefusal = 3,
  kFailure = 4,
  kGather = 5,
};

struct Hello {
  Nonce nonce{};
  std::uint64_t instance = 0;  // tells a process that comes again from another of the same rank
  std::uint32_t world = 0;
  std::uint32_t rank = 0;
  base::Duration patience{};  // how long the guest waits in all
  base::Duration left{};      // and how long from now
  std::string version{};      // of the library
  Blob blob{};
};

struct Refusal {
  bool final = false;  // to come again would not help
  std::string reason{};
};

// Whole frames. Texts are cut to what fits.
Blob encode(const Hello& hello);
Blob encode(const Refusal& refusal);
Blob encode_welcome();
Blob encode_failure(const std::string& reason);
Blob encode_gather(const std::vector<Blob>& blobs);

// Bodies.
base::Result<Hello> parse_hello(base::ByteView body);
base::Result<Refusal> parse_refusal(base::ByteView body);
base::Result<std::string> parse_failure(base::ByteView body);
base::Result<std::vector<Blob>> parse_gather(base::ByteView body, std::uint32_t world);

struct Frame {
  FrameType type = FrameType::kHello;
  Blob body{};
};

// Makes frames of a stream's bytes. Holds at most one frame and what was appended behind it.
class FrameReader {
 public:
  explicit FrameReader(std::size_t most_body_bytes) : most_body_bytes_(most_body_bytes) {}

  void append(base::ByteView bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // The next frame, nothing while it is incomplete, or an error when these are no frames: then
  // nothing more will come of this stream.
  base::Result<std::optional<Frame>> next();

 private:
  std::size_t most_body_bytes_;
  Blob bytes_{};
};

}  // namespace spillway::runtime
