// SPDX-License-Identifier: Apache-2.0
#include "wire/packet_auth.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "wire/section_kernels.h"

namespace spillway::wire {
namespace {

// Stands in the nonce of a section. No two sections of a direction have the same nonce:
//
//   number 8, path 1, kind of packet and section 1, index of the tail segment 2, bytes 4 = 16
enum class SectionKind : std::uint8_t { kHead = 0, kTail = 1, kScale = 2, kControl = 3 };

std::array<std::uint8_t, 16> nonce_of(const PacketName& name, SectionKind kind, std::size_t index,
                                      std::size_t bytes) {
  std::array<std::uint8_t, 16> nonce{};
  base::store_le(nonce.data(), name.number);
  nonce[8] = name.path;
  nonce[9] = static_cast<std::uint8_t>(kind);
  base::store_le(nonce.data() + 10, static_cast<std::uint16_t>(index));
  base::store_le(nonce.data() + 12, static_cast<std::uint32_t>(bytes));
  return nonce;
}

Check check_of(std::uint64_t tag) {
  Check check;
  base::store_le(check.bytes.data(), tag);
  return check;
}

// The longest header of a packet with a head, in whole blocks of POLYVAL.
constexpr std::size_t kPaddedHeader = (sizeof(spillway_planes_header) + 15) / 16 * 16;

}  // namespace

struct PacketAuth::Keys : InKeyMemory {
  SectionKeys sections;

  std::uint64_t tag(Mode mode, const Section& section) const {
    std::uint64_t tag = 0;
    const SectionKernels& kernels = section_kernels();
    (mode == Mode::kSeal ? kernels.seal : kernels.open)(sections, &section, 1, &tag);
    return tag;
  }
};

PacketAuth::PacketAuth(std::unique_ptr<Keys> keys) : keys_(std::move(keys)) {}
PacketAuth::PacketAuth(PacketAuth&&) noexcept = default;
PacketAuth& PacketAuth::operator=(PacketAuth&&) noexcept = default;
PacketAuth::~PacketAuth() = default;

PacketAuth PacketAuth::expanded(const Key<48>& key, Protection protection) {
  auto keys = std::make_unique<Keys>();
  expand(key, protection == Protection::kEncryption, keys->sections);
  return PacketAuth(std::move(keys));
}

base::Result<PacketAuth> PacketAuth::make(const RunKey& run, const PacketDirection& direction,
                                          Protection protection) {
  Key<48> key;
  const KeyContext context{.use = KeyUse::kPackets,
                           .epoch = direction.epoch,
                           .from = direction.from,
                           .to = direction.to};
  if (base::Status status = derive(run, context, key.bytes); !status.ok()) {
    return status;
  }
  return expanded(key, protection);
}

base::Result<PacketAuth> PacketAuth::of_secret(base::ByteView secret, Protection protection) {
  if (secret.size() < kMinSecretBytes) {
    return base::invalid_argument("the key has " + std::to_string(secret.size()) +
                                  " bytes; give at least " + std::to_string(kMinSecretBytes));
  }
  Key<48> key;
  if (base::Status status = derive(secret, {}, KeyLabel::kPacketsOfSecret, key.bytes);
      !status.ok()) {
    return status;
  }
  return expanded(key, protection);
}

bool PacketAuth::encrypts() const {
  return keys_->sections.encrypts;
}

Check PacketAuth::check(const PacketName& name, base::ByteView packet) const {
  // Control packets are tagged in place and never encrypted, so opening and sealing are the same.
  return check_of(
      keys_->tag(Mode::kOpen, {.prefix = nullptr,
                               .prefix_bytes = 0,
                               .from = packet.data(),
                               .to = nullptr,
                               .bytes = packet.size(),
                               .nonce = nonce_of(name, SectionKind::kControl, 0, packet.size())}));
}

Check PacketAuth::head(Mode mode, const PacketName& name, base::ByteView header,
                       base::ByteView planes, std::uint8_t* out) const {
  const auto nonce = nonce_of(name, SectionKind::kHead, 0, header.size() + planes.size());
  if (planes.empty()) {
    return check_of(keys_->tag(mode, {.prefix = nullptr,
                                      .prefix_bytes = 0,
                                      .from = header.data(),
                                      .to = nullptr,
                                      .bytes = header.size(),
                                      .nonce = nonce}));
  }
  // Prefixes are whole blocks, so the header is padded with zeros.
  std::array<std::uint8_t, kPaddedHeader> padded{};
  SPILLWAY_CHECK(header.size() <= padded.size());
  std::copy(header.begin(), header.end(), padded.begin());
  return check_of(keys_->tag(mode, {.prefix = padded.data(),
                                    .prefix_bytes = padded.size(),
                                    .from = planes.data(),
                                    .to = out,
                                    .bytes = planes.size(),
                                    .nonce = nonce}));
}

Check PacketAuth::seal_head(const PacketName& name, base::ByteView header, base::ByteView planes,
                            std::uint8_t* out) const {
  return head(Mode::kSeal, name, header, planes, out);
}

Check PacketAuth::open_head(const PacketName& name, base::ByteView header, base::ByteView planes,
                            std::uint8_t* out) const {
  return head(Mode::kOpen, name, header, planes, out);
}

void PacketAuth::segments(Mode mode, const PacketName& name, std::uint32_t index,
                          const StridedCopy& copy, std::span<Check> checks) const {
  SPILLWAY_CHECK(checks.size() <= kSegmentsAtOnce);
  const std::size_t count = checks.size();
  if (count == 0) {
    return;  // kernels need at least one section
  }
  std::array<Section, kSegmentsAtOnce> sections;
  std::array<std::uint64_t, kSegmentsAtOnce> tags;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bytes = i + 1 < count ? copy.length : copy.last_length;
    sections[i] = {.prefix = nullptr,
                   .prefix_bytes = 0,
                   .from = copy.from + i * copy.from_stride,
                   .to = copy.to + i * copy.to_stride,
                   .bytes = bytes,
                   .nonce = nonce_of(name, SectionKind::kTail, index + i, bytes)};
  }
  const SectionKernels& kernels = section_kernels();
  (mode == Mode::kSeal ? kernels.seal : kernels.open)(keys_->sections, sections.data(), count,
                                                      tags.data());
  std::transform(tags.begin(), tags.begin() + static_cast<std::ptrdiff_t>(count), checks.begin(),
                 check_of);
}

void PacketAuth::seal_segments(const PacketName& name, std::uint32_t index, const StridedCopy& copy,
                               std::span<Check> checks) const {
  segments(Mode::kSeal, name, index, copy, checks);
}

void PacketAuth::open_segments(const PacketName& name, std::uint32_t index, const StridedCopy& copy,
                               std::span<Check> checks) const {
  segments(Mode::kOpen, name, index, copy, checks);
}

std::uint32_t PacketAuth::cipher_scale(const PacketName& name, std::uint32_t scale) const {
  if (!encrypts()) {
    return scale;
  }
  std::array<std::uint8_t, sizeof scale> bytes;
  base::store_le(bytes.data(), scale);
  keys_->tag(Mode::kSeal, {.prefix = nullptr,
                           .prefix_bytes = 0,
                           .from = bytes.data(),
                           .to = bytes.data(),
                           .bytes = bytes.size(),
                           .nonce = nonce_of(name, SectionKind::kScale, 0, bytes.size())});
  return base::load_le<std::uint32_t>(bytes.data());
}

bool PacketAuth::matches(const Check& expected, base::ByteView received) {
  return received.size() == expected.bytes.size() &&
         CRYPTO_memcmp(expected.bytes.data(), received.data(), received.size()) == 0;
}

}  // namespace spillway::wire
