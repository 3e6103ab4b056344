// SPDX-License-Identifier: Apache-2.0
//
// Checks that let a receiver trust what is left of a packet, and an optional cipher. A PacketAuth
// covers one direction between two ranks in one epoch of one run. Packets recorded elsewhere or at
// another time fail its checks, and nobody without the run's key can forge one.
//
//   tags      always: 8 bytes per section (ADR 14). A section is the header with the head's planes,
//             a tail segment, or a control packet. Each tag is made under the packet's whole
//             number, its path and the section's place, so that no section passes for another.
//   cipher    optional: encrypts scale and planes with a keystream that restarts at every section,
//             so that a packet cut by a switch still decrypts. The tag covers the ciphertext.
//   CRC32C    replaces both, in the same 8 bytes: a baseline for benchmarks that detects accidents
//             only.
//
// A number is used once: a retransmitted packet gets a new one. The transport must refuse replays.
// Keys are wiped with their owner. A value; const functions may run on many threads.
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

// Names a packet within its direction. Each kind has its own numbering.
struct PacketName {
  enum class Kind : std::uint8_t { kData = 0, kControl = 1 };

  std::uint64_t number = 0;
  std::uint8_t path = 0;
  Kind kind = Kind::kData;
};

// Direction and time of packets: `from` one rank `to` another, in one epoch.
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
  // For packets outside any run: one key for all holders of the secret and both directions.
  static base::Result<PacketAuth> of_secret(base::ByteView secret,
                                            Protection protection = Protection::kTags);
  static PacketAuth crc32c(std::uint32_t salt);

  PacketAuth(PacketAuth&&) noexcept;
  PacketAuth& operator=(PacketAuth&&) noexcept;
  ~PacketAuth();

  bool encrypts() const;

  // The check of bytes that stay in place: a control packet without its check.
  Check check(const PacketName& name, base::ByteView packet) const;

  // The check of a header and the head's planes. Sealing copies the planes to `out`, encrypted if
  // the cipher is on. Opening takes the planes as received; `out` gets plaintext, or is null.
  Check seal_head(const PacketName& name, base::ByteView header, base::ByteView planes,
                  std::uint8_t* out) const;
  Check open_head(const PacketName& name, base::ByteView header, base::ByteView planes,
                  std::uint8_t* out) const;

  static constexpr std::size_t kSegmentsAtOnce = 3;
  // Copies up to kSegmentsAtOnce tail segments and fills in their checks. `index` is that of the
  // first segment, `head` the head's check.
  void seal_segments(const PacketName& name, const Check& head, std::uint32_t index,
                     const StridedCopy& copy, std::span<Check> checks) const;
  void open_segments(const PacketName& name, const Check& head, std::uint32_t index,
                     const StridedCopy& copy, std::span<Check> checks) const;

  // Encrypts or decrypts a row's scale.
  std::uint32_t cipher_scale(const PacketName& name, std::uint32_t scale) const;

  // True if `received` equals `expected`. Constant time.
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

  std::uint32_t salt_;          // for CRC32C
  std::unique_ptr<Keys> keys_;  // null: CRC32C
};

}  // namespace spillway::wire
