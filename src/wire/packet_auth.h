// SPDX-License-Identifier: Apache-2.0
//
// The checks that let a receiver trust what is left of a packet, and the cipher for those who ask
// for one: those of one direction between two ranks in one epoch of one run. Nothing that was
// recorded elsewhere, or at another time, passes here, and nobody without the run's key can make
// what does.
//
//   tags      always: 8 bytes per section (ADR 14). A section is the header with the head's planes,
//             a tail segment, or a control packet. Each tag is made under the packet's whole
//             number, its path and the section's place, so that no section passes in another's
//             stead.
//   cipher    if asked for: scale and planes, by a keystream that starts anew with every section,
//             so that a packet that a switch has cut still decrypts. The tag is over what travels.
//   CRC32C    instead of both, in the same 8 bytes: the yardstick of benchmarks, against accidents
//             alone.
//
// A number is used once: the same packet sent again has a new one. Replays are the transport's to
// refuse. Keys are wiped with their owner. A value; const functions may run on many threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/crc32c.h"
#include "wire/key.h"
#include "wire/packet.h"

namespace spillway::wire {

struct Check {
  std::array<std::uint8_t, SPILLWAY_CHECK_SIZE> bytes{};
};

// Which packet of its direction, and of which kind, each of which is numbered by itself.
struct PacketName {
  enum class Kind : std::uint8_t { kData = 0, kControl = 1 };

  std::uint64_t number = 0;
  std::uint8_t path = 0;
  Kind kind = Kind::kData;
};

// Which way packets go, and when: `from` one rank `to` another.
struct PacketCourse {
  std::uint64_t epoch = 0;
  std::uint16_t from = 0;
  std::uint16_t to = 0;
};

enum class Protection : std::uint8_t { kTags, kEncryption, kCrc32c };

class PacketAuth {
 public:
  // Shortest accepted secret.
  static constexpr std::size_t kMinSecretBytes = 16;

  static base::Result<PacketAuth> make(const RunKey& run, const PacketCourse& course,
                                       Protection protection = Protection::kTags);
  // For packets that are not of a run: whoever has the secret, whatever the direction.
  static base::Result<PacketAuth> of_secret(base::ByteView secret,
                                            Protection protection = Protection::kTags);
  static PacketAuth crc32c(std::uint32_t salt);

  PacketAuth(PacketAuth&&) noexcept;
  PacketAuth& operator=(PacketAuth&&) noexcept;
  ~PacketAuth();

  bool encrypts() const;

  // Of bytes that stay where they are: a control packet without its check.
  Check check(const PacketName& name, base::ByteView packet) const;

  // Of a header and the head's planes. Sealing: the planes are copied to `out` as they travel.
  // Opening: the planes are as they travelled; their plain copy goes to `out`, if there is one.
  Check seal_head(const PacketName& name, base::ByteView header, base::ByteView planes,
                  std::uint8_t* out) const;
  Check open_head(const PacketName& name, base::ByteView header, base::ByteView planes,
                  std::uint8_t* out) const;

  static constexpr std::size_t kSegmentsAtOnce = 3;
  // Copies up to kSegmentsAtOnce tail segments, the first of which has the index `index`, and fills
  // in their checks. `head` is the head's.
  void seal_segments(const PacketName& name, const Check& head, std::uint32_t index,
                     const StridedCopy& copy, std::span<Check> checks) const;
  void open_segments(const PacketName& name, const Check& head, std::uint32_t index,
                     const StridedCopy& copy, std::span<Check> checks) const;

  // A row's scale as it travels, and back.
  std::uint32_t cipher_scale(const PacketName& name, std::uint32_t scale) const;

  // Whether `received` is `expected`, in a time that does not depend on the answer.
  static bool matches(const Check& expected, base::ByteView received);

 private:
  struct Keys;
  PacketAuth(std::uint32_t salt, std::unique_ptr<Keys> keys);

  static PacketAuth expanded(const Key<48>& key, Protection protection);

  enum class Way : std::uint8_t { kSeal, kOpen };
  Check head(Way way, const PacketName& name, base::ByteView header, base::ByteView planes,
             std::uint8_t* out) const;
  void segments(Way way, const PacketName& name, const Check& head, std::uint32_t index,
                const StridedCopy& copy, std::span<Check> checks) const;

  std::uint32_t salt_;          // of CRC32C
  std::unique_ptr<Keys> keys_;  // null: CRC32C
};

}  // namespace spillway::wire
