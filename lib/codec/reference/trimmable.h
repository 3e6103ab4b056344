// SPDX-License-Identifier: Apache-2.0
//
// The packets of the trimmable-gradients paper (Chen, Vargaftik, Ben Basat, HotNets'24), for
// comparison with Spillway's planes. Each coordinate has a head of one bit and a tail of 31 bits. A
// packet holds all its heads, then all its tails; a switch that trims it leaves the heads.
//
//   packet of n    ceil(n / 8) bytes of heads | ceil(31 n / 8) bytes of tails   (bit_packing.h)
//
// Decoding: a whole packet gives its values, a trimmed one the estimates from its heads, a lost one
// zeros. The encodings are sign-magnitude, sq, sd and rht. trimmable_encodings.h says what whole
// packets lose, and how NaN, infinities and denormals are treated. Metadata (a deviation per tensor
// or a scale per row) is kept aside and assumed to arrive, as in the paper.
//
// Invariants: decode reads only the head bytes of a trimmed packet and nothing of a lost one,
// accepts any bytes, and writes `out` only on success. Encodings hold no mutable state: any thread.
// Limits: kMaxCoordinatesPerPacket, kMaxTensorLength (reference_codec.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace spillway::codec::reference {

// The paper's trim size of 87 bytes: 42 bytes of headers and 45 of heads.
inline constexpr std::size_t kDefaultCoordinatesPerPacket = 360;
inline constexpr std::size_t kMaxCoordinatesPerPacket = 65536;
inline constexpr unsigned kTailBits = 31;

enum class PacketFate : std::uint8_t { kWhole, kTrimmed, kLost };

struct TrimmableMessage {
  std::vector<std::vector<std::uint8_t>> packets;
  std::vector<float> metadata;
};

std::size_t head_bytes(std::size_t coordinates);
std::size_t packet_bytes(std::size_t coordinates);

class TrimmableEncoding {
 public:
  virtual ~TrimmableEncoding() = default;

  virtual std::string_view name() const = 0;
  std::size_t coordinates_per_packet() const { return coordinates_per_packet_; }
  // Number of packets for a tensor of `count` coordinates.
  std::size_t packet_count(std::size_t count) const;

  TrimmableMessage encode(std::span<const float> tensor, std::uint64_t seed) const;

  // Simulates the network: drops the tails of trimmed packets and all of lost ones. `fates` must
  // have one entry per packet; otherwise an error leaves the message unchanged.
  base::Status damage(TrimmableMessage& message, std::span<const PacketFate> fates,
                      std::size_t count) const;

  // Estimates the tensor, whose length is out.size(), given each packet's fate.
  base::Status decode(const TrimmableMessage& message, std::span<const PacketFate> fates,
                      std::uint64_t seed, std::span<float> out) const;

 protected:
  explicit TrimmableEncoding(std::size_t coordinates_per_packet);

  // Coordinates as words: the head in bit 31, the tail below.
  struct Coded {
    std::vector<std::uint32_t> words;
    std::vector<float> metadata;
  };
  // The received part of each word: the tail of a trimmed word and all of a lost one are zero.
  struct Received {
    std::vector<std::uint32_t> words;
    std::vector<PacketFate> fates;
  };

 private:
  // The number of words and metadata values for a tensor of `count` coordinates.
  virtual std::size_t word_count(std::size_t count) const = 0;
  virtual std::size_t metadata_count(std::size_t count) const = 0;
  virtual Coded to_words(std::span<const float> tensor, std::uint64_t seed) const = 0;
  virtual void from_words(const Received& received, std::span<const float> metadata,
                          std::uint64_t seed, std::span<float> out) const = 0;

  std::size_t coordinates_in(std::size_t packet, std::size_t words) const;
  base::Status check(const TrimmableMessage& message, std::span<const PacketFate> fates,
                     std::size_t count) const;

  std::size_t coordinates_per_packet_;
};

// All encodings: sign-magnitude, sq, sd, rht.
std::vector<std::unique_ptr<TrimmableEncoding>> all_trimmable_encodings();

// The encoding of that name. Fails for an unknown name (the error lists all names) and for a packet
// size outside 1 .. kMaxCoordinatesPerPacket.
base::Result<std::unique_ptr<TrimmableEncoding>> make_trimmable_encoding(
    std::string_view name, std::size_t coordinates_per_packet = kDefaultCoordinatesPerPacket);

}  // namespace spillway::codec::reference
