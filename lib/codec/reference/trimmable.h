// SPDX-License-Identifier: Apache-2.0
//
// The packets of the trimmable-gradients paper (Chen, Vargaftik, Ben Basat, HotNets'24), for
// comparison with Spillway's planes. Each coordinate has a head of one bit and a tail of 31 bits. A
// packet holds all its heads, then all its tails; a switch that trims it leaves the heads.
//
//   packet of n    ceil(n / 8) bytes of heads | ceil(31 n / 8) bytes of tails   (coordinates.h)
//
// Decoding: a whole packet gives its values, a trimmed one the estimates from its heads, a lost one
// zeros. The encodings below, sign-magnitude, sq, sd and rht, say what whole packets lose, and how
// NaN, infinities and denormals are treated. Metadata (a deviation per tensor or a scale per row)
// is kept aside and assumed to arrive, as in the paper.
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

// ------------------------------------------------------------------ the four encodings
//
// The meaning of the one-bit head, and the error of trimmed packets:
//
//   encoding         the head is                              error when trimmed
//   sign-magnitude   the sign; stands for the deviation       0.404, biased
//   sq               a draw: stochastic quantisation to +-L   5.28, unbiased
//   sd               a draw: subtractive dithering in +-L     2.08, unbiased
//   rht              the sign after a random rotation         0.571, unbiased
//
// Errors are relative to the energy of Gaussian data; above 1, zeros would be better. L is 2.5
// standard deviations of the tensor (TernGrad's rule, Wen et al., NIPS'17). The heads of sq and sd
// are not the sign. So their tails alone must restore the value and have no room for its last
// mantissa bit.
//
// Edges of the first three: a constant tensor has no spread, so its trimmed packets decode to zero.
// A NaN or an infinity anywhere makes the spread and every trimmed coordinate NaN; whole packets
// still carry their values. Denormals are treated like other numbers.

// The head is the sign bit of the IEEE float (1 is negative), the tail its other 31 bits. Trimmed
// packets decode to sign * sigma, where sigma, the tensor's standard deviation, is the only
// metadata value. Mean |x| instead would be optimal. On heavy tails the error exceeds 1.
//
// Whole packets are exact to the bit, NaN payloads included. The seed is unused.
class SignMagnitude final : public TrimmableEncoding {
 public:
  explicit SignMagnitude(std::size_t coordinates_per_packet)
      : TrimmableEncoding(coordinates_per_packet) {}

  std::string_view name() const override { return "sign-magnitude"; }

 private:
  std::size_t word_count(std::size_t count) const override { return count; }
  std::size_t metadata_count(std::size_t /*count*/) const override { return 1; }
  Coded to_words(std::span<const float> tensor, std::uint64_t seed) const override;
  void from_words(const Received& received, std::span<const float> metadata, std::uint64_t seed,
                  std::span<float> out) const override;
};

// With v clipped to [-L, L], the head is 1 with probability (v + L) / 2L. Trimmed packets decode to
// L or -L; L is the only metadata value.
//
// Unbiased over seeds within the clip, with an error of L^2 - v^2.
class StochasticQuantisation final : public TrimmableEncoding {
 public:
  explicit StochasticQuantisation(std::size_t coordinates_per_packet)
      : TrimmableEncoding(coordinates_per_packet) {}

  std::string_view name() const override { return "sq"; }

 private:
  std::size_t word_count(std::size_t count) const override { return count; }
  std::size_t metadata_count(std::size_t /*count*/) const override { return 1; }
  Coded to_words(std::span<const float> tensor, std::uint64_t seed) const override;
  void from_words(const Received& received, std::span<const float> metadata, std::uint64_t seed,
                  std::span<float> out) const override;
};

// Roberts, IRE Trans. Inf. Theory 8, 1962: both ends draw u uniform in [-L, L) per coordinate. The
// head is 1 if v + u >= 0. Trimmed packets decode to +-L - u, limited to the largest float. L is
// the only metadata value.
//
// Unbiased over seeds for |v| <= L, with an error of L^2 / 3 for every v.
class SubtractiveDithering final : public TrimmableEncoding {
 public:
  explicit SubtractiveDithering(std::size_t coordinates_per_packet)
      : TrimmableEncoding(coordinates_per_packet) {}

  std::string_view name() const override { return "sd"; }

 private:
  std::size_t word_count(std::size_t count) const override { return count; }
  std::size_t metadata_count(std::size_t /*count*/) const override { return 1; }
  Coded to_words(std::span<const float> tensor, std::uint64_t seed) const override;
  void from_words(const Received& received, std::span<const float> metadata, std::uint64_t seed,
                  std::span<float> out) const override;
};

// DRIVE (Vargaftik et al., NeurIPS'21): each row x of n coordinates (coordinates.h) is rotated,
// y = H D x / sqrt(n), and y travels as sign bits (heads) and the other 31 bits of each float
// (tails). Metadata is f = |x|_2^2 / |y|_1 per row.
//
// Trimmed coordinates decode to f * sign(y), lost ones to zero, both in the rotated domain.
// Rotating back spreads the damage over the whole row. With a fraction t trimmed the error is (pi/2
// - 1) t of the energy for any data. It is unbiased over seeds for rows whose rotation looks
// Gaussian. Whole packets are exact in y; x comes back up to fp32 rounding, about 1e-7 of the norm
// of the row. Packets may straddle rows.
//
// Edges: a row of zeros decodes to zeros. A row with a NaN, an infinity, or values so large (beyond
// 2^112) that rotating may overflow decodes to all NaN. Denormals round to multiples of the
// smallest one.
class RotatedSign final : public TrimmableEncoding {
 public:
  explicit RotatedSign(std::size_t coordinates_per_packet)
      : TrimmableEncoding(coordinates_per_packet) {}

  std::string_view name() const override { return "rht"; }

 private:
  std::size_t word_count(std::size_t count) const override;
  std::size_t metadata_count(std::size_t count) const override;
  Coded to_words(std::span<const float> tensor, std::uint64_t seed) const override;
  void from_words(const Received& received, std::span<const float> metadata, std::uint64_t seed,
                  std::span<float> out) const override;
};

}  // namespace spillway::codec::reference
