// SPDX-License-Identifier: Apache-2.0
//
// Checks that let a receiver trust the part of a packet that arrived, and an optional cipher. A
// PacketAuth covers one direction between two ranks in one epoch of one run. Packets recorded
// elsewhere or at another time fail its checks, and nobody without the run's key can forge one.
//
//   tags      always: 8 bytes per section (ADR 14). A section is the header with the head's planes,
//             a tail segment, or a control packet. Each tag is made under the packet's whole
//             number, its path and the section's place, so that no section passes for another.
//   cipher    optional: encrypts scale and planes with a keystream that restarts at every section,
//             so that a packet trimmed by a switch still decrypts. The tag covers the ciphertext.
//
// A number is used once: a retransmitted packet gets a new one. The transport must refuse replays.
// Keys are wiped when their PacketAuth is destroyed. A value; const functions may run on many
// threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
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

// The packets that share keys: those `from` one rank `to` another, in one epoch.
struct PacketDirection {
  std::uint64_t epoch = 0;
  std::uint16_t from = 0;
  std::uint16_t to = 0;
};

enum class Protection : std::uint8_t { kTags, kEncryption };

// Runs of `length` bytes, `from_stride` apart, copied to places `to_stride` apart. The last run has
// `last_length` bytes.
struct StridedCopy {
  const std::uint8_t* from = nullptr;
  std::size_t from_stride = 0;
  std::uint8_t* to = nullptr;  // null: the bytes are only checked
  std::size_t to_stride = 0;
  std::size_t length = 0;
  std::size_t last_length = 0;  // at most length
};

class PacketAuth {
 public:
  // Shortest accepted secret.
  static constexpr std::size_t kMinSecretBytes = 16;

  static base::Result<PacketAuth> make(const RunKey& run, const PacketDirection& direction,
                                       Protection protection = Protection::kTags);
  // For packets outside any run: all holders of the secret use one key, for both directions.
  static base::Result<PacketAuth> of_secret(base::ByteView secret,
                                            Protection protection = Protection::kTags);

  PacketAuth(PacketAuth&&) noexcept;
  PacketAuth& operator=(PacketAuth&&) noexcept;
  ~PacketAuth();

  bool encrypts() const;

  // The check of bytes that stay in place: a control packet without its check.
  Check check(const PacketName& name, base::ByteView packet) const;

  // The check of a header and the head's planes, which may be none. Sealing copies the planes to
  // `out`, encrypted if the cipher is on. Opening takes the planes as received; `out` gets
  // plaintext, or is null.
  Check seal_head(const PacketName& name, base::ByteView header, base::ByteView planes,
                  std::uint8_t* out) const;
  Check open_head(const PacketName& name, base::ByteView header, base::ByteView planes,
                  std::uint8_t* out) const;

  static constexpr std::size_t kSegmentsAtOnce = 3;
  // Copies up to kSegmentsAtOnce tail segments and fills in their checks. `index` is that of the
  // first segment.
  void seal_segments(const PacketName& name, std::uint32_t index, const StridedCopy& copy,
                     std::span<Check> checks) const;
  void open_segments(const PacketName& name, std::uint32_t index, const StridedCopy& copy,
                     std::span<Check> checks) const;

  // Encrypts or decrypts a row's scale.
  std::uint32_t cipher_scale(const PacketName& name, std::uint32_t scale) const;

  // True if `received` equals `expected`. Constant time.
  static bool matches(const Check& expected, base::ByteView received);

 private:
  struct Keys;
  explicit PacketAuth(std::unique_ptr<Keys> keys);

  static PacketAuth expanded(const Key<48>& key, Protection protection);

  enum class Mode : std::uint8_t { kSeal, kOpen };
  Check head(Mode mode, const PacketName& name, base::ByteView header, base::ByteView planes,
             std::uint8_t* out) const;
  void segments(Mode mode, const PacketName& name, std::uint32_t index, const StridedCopy& copy,
                std::span<Check> checks) const;

  std::unique_ptr<Keys> keys_;
};

}  // namespace spillway::wire
