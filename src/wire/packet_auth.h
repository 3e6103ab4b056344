// SPDX-License-Identifier: Apache-2.0
//
// The checks that let a receiver trust what is left of a packet. One of two kinds per job:
//
//   CRC32C      against accidents: 4 bytes. Seeded with a salt of the job's, so that packets of
//               other jobs, or of a sender with another rotation seed, do not pass by chance.
//   keyed tag   against forgery: 8 bytes of SipHash-2-4 (a PRF made for short inputs) under a key
//               derived from the job's secret with SHA-256.
//
// The head's check covers the header and the head's planes. A tail segment's check covers its
// planes, its index and the head's check, so segments cannot be moved between packets.
//
// A PacketAuth holds cipher scratch: one per thread. Replay protection is the transport's:
// identical packets have identical checks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/crc32c.h"
#include "wire/packet.h"

namespace spillway::wire {

struct Check {
  std::array<std::uint8_t, SPILLWAY_TAG_SIZE> bytes{};
};

class PacketAuth {
 public:
  // Shortest accepted job secret.
  static constexpr std::size_t kMinSecretBytes = 16;

  static PacketAuth crc32c(std::uint32_t salt);
  static base::Result<PacketAuth> keyed(base::ByteView secret);

  PacketAuth(PacketAuth&&) noexcept;
  PacketAuth& operator=(PacketAuth&&) noexcept;
  ~PacketAuth();

  bool is_keyed() const { return keyed_ != nullptr; }
  std::size_t check_size() const { return spillway_check_size(is_keyed()); }

  Check head_check(base::ByteView header, base::ByteView planes) const;
  // The same, and the head's planes are copied to `out`.
  Check copy_head(base::ByteView header, base::ByteView planes, std::uint8_t* out) const;

  static constexpr std::size_t kSegmentsAtOnce = 3;
  // Copies up to kSegmentsAtOnce tail segments, the first of which has the index `index`, and fills
  // in their checks.
  void copy_segments(const Check& head, std::uint32_t index, const StridedCopy& copy,
                     std::span<Check> checks) const;

  // Whether `received` (check_size() bytes) is `expected`. Keyed, both answers take the same time.
  bool matches(const Check& expected, base::ByteView received) const;

 private:
  struct Keyed;
  PacketAuth(std::uint32_t salt, std::unique_ptr<Keyed> keyed);

  std::uint32_t salt_;
  std::unique_ptr<Keyed> keyed_;
};

}  // namespace spillway::wire
