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

// Odd, so that distinct indices start distinct CRCs.
constexpr std::uint32_t kIndexSpread = 0x9E3779B1U;

// A section's part of its nonce. No two sections of a direction have the same nonce.
//
//   number 8, path 1, kind of packet and section 1, index of the tail segment 2, bytes 4 = 16
enum class Part : std::uint8_t { kHead = 0, kTail = 1, kScale = 2, kControl = 3 };

std::array<std::uint8_t, 16> nonce_of(const PacketName& name, Part part, std::size_t index,
                                      std::size_t bytes) {
  std::array<std::uint8_t, 16> nonce{};
  base::store_le(nonce.data(), name.number);
  nonce[8] = name.path;
  nonce[9] = static_cast<std::uint8_t>(part);
  base::store_le(nonce.data() + 10, static_cast<std::uint16_t>(index));
  base::store_le(nonce.data() + 12, static_cast<std::uint32_t>(bytes));
  return nonce;
}

Check check_of(std::uint64_t tag) {
  Check check;
  base::store_le(check.bytes.data(), tag);
  return check;
}

}  // namespace

struct PacketAuth::Keys : InKeyMemory {
  SectionKeys sections;

  std::uint64_t tag(Way way, const Section& section) const {
    std::uint64_t tag = 0;
    const SectionKernels& kernels = section_kernels();
    (way == Way::kSeal ? kernels.seal : kernels.open)(sections, &section, 1, &tag);
    return tag;
  }
};

PacketAuth::PacketAuth(std::uint32_t salt, std::unique_ptr<Keys> keys)
    : salt_(salt), keys_(std::move(keys)) {}
PacketAuth::PacketAuth(PacketAuth&&) noexcept = default;
PacketAuth& PacketAuth::operator=(PacketAuth&&) noexcept = default;
PacketAuth::~PacketAuth() = default;

PacketAuth PacketAuth::crc32c(std::uint32_t salt) {
  return PacketAuth(salt, nullptr);
}

PacketAuth PacketAuth::expanded(const Key<48>& key, Protection protection) {
  auto keys = std::make_unique<Keys>();
  expand(key, protection == Protection::kEncryption, keys->sections);
  return PacketAuth(0, std::move(keys));
}

base::Result<PacketAuth> PacketAuth::make(const RunKey& run, const PacketCourse& course,
                                          Protection protection) {
  if (protection == Protection::kCrc32c) {
    return crc32c(0);
  }
  Key<48> key;
  const KeyContext context{
      .use = KeyUse::kPackets, .epoch = course.epoch, .from = course.from, .to = course.to};
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
  if (protection == Protection::kCrc32c) {
    return crc32c(0);
  }
  Key<48> key;
  if (base::Status status = derive(secret, {}, KeyLabel::kPacketsOfSecret, key.bytes);
      !status.ok()) {
    return status;
  }
  return expanded(key, protection);
}

bool PacketAuth::encrypts() const {
  return keys_ != nullptr && keys_->sections.encrypts;
}

Check PacketAuth::check(const PacketName& name, base::ByteView packet) const {
  if (!keys_) {
    return check_of(~wire::crc32c(~salt_, packet));
  }
  // Control packets are tagged in place and never encrypted, so opening and sealing are the same.
  return check_of(
      keys_->tag(Way::kOpen, {.prefix = nullptr,
                              .prefix_bytes = 0,
                              .from = packet.data(),
                              .to = nullptr,
                              .bytes = packet.size(),
                              .nonce = nonce_of(name, Part::kControl, 0, packet.size())}));
}

Check PacketAuth::head(Way way, const PacketName& name, base::ByteView header,
                       base::ByteView planes, std::uint8_t* out) const {
  if (!keys_) {
    const std::uint32_t started = wire::crc32c(~salt_, header);
    return check_of(
        ~(out == nullptr ? wire::crc32c(started, planes) : copy_crc32c(started, planes, out)));
  }
  return check_of(
      keys_->tag(way, {.prefix = header.data(),
                       .prefix_bytes = header.size(),
                       .from = planes.data(),
                       .to = out,
                       .bytes = planes.size(),
                       .nonce = nonce_of(name, Part::kHead, 0, header.size() + planes.size())}));
}

Check PacketAuth::seal_head(const PacketName& name, base::ByteView header, base::ByteView planes,
                            std::uint8_t* out) const {
  return head(Way::kSeal, name, header, planes, out);
}

Check PacketAuth::open_head(const PacketName& name, base::ByteView header, base::ByteView planes,
                            std::uint8_t* out) const {
  return head(Way::kOpen, name, header, planes, out);
}

void PacketAuth::segments(Way way, const PacketName& name, const Check& head, std::uint32_t index,
                          const StridedCopy& copy, std::span<Check> checks) const {
  SPILLWAY_CHECK(checks.size() <= kSegmentsAtOnce);
  const std::size_t count = checks.size();
  if (!keys_) {
    std::array<std::uint32_t, kSegmentsAtOnce> states;
    for (std::size_t i = 0; i < count; ++i) {
      // The start value depends on head and index, which binds the segment to its place.
      states[i] = ~base::load_le<std::uint32_t>(head.bytes.data()) ^
                  static_cast<std::uint32_t>(index + i + 1) * kIndexSpread;
    }
    if (copy.to == nullptr) {
      SPILLWAY_CHECK(count == 1);
      states[0] = wire::crc32c(states[0], {copy.from, copy.last_length});
    } else {
      copy_crc32c(copy, std::span(states).first(count));
    }
    for (std::size_t i = 0; i < count; ++i) {
      checks[i] = check_of(static_cast<std::uint32_t>(~states[i]));
    }
    return;
  }
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
                   .nonce = nonce_of(name, Part::kTail, index + i, bytes)};
  }
  const SectionKernels& kernels = section_kernels();
  (way == Way::kSeal ? kernels.seal : kernels.open)(keys_->sections, sections.data(), count,
                                                    tags.data());
  std::transform(tags.begin(), tags.begin() + static_cast<std::ptrdiff_t>(count), checks.begin(),
                 check_of);
}

void PacketAuth::seal_segments(const PacketName& name, const Check& head, std::uint32_t index,
                               const StridedCopy& copy, std::span<Check> checks) const {
  segments(Way::kSeal, name, head, index, copy, checks);
}

void PacketAuth::open_segments(const PacketName& name, const Check& head, std::uint32_t index,
                               const StridedCopy& copy, std::span<Check> checks) const {
  segments(Way::kOpen, name, head, index, copy, checks);
}

std::uint32_t PacketAuth::cipher_scale(const PacketName& name, std::uint32_t scale) const {
  if (!encrypts()) {
    return scale;
  }
  std::array<std::uint8_t, sizeof scale> bytes;
  base::store_le(bytes.data(), scale);
  keys_->tag(Way::kSeal, {.prefix = nullptr,
                          .prefix_bytes = 0,
                          .from = bytes.data(),
                          .to = bytes.data(),
                          .bytes = bytes.size(),
                          .nonce = nonce_of(name, Part::kScale, 0, bytes.size())});
  return base::load_le<std::uint32_t>(bytes.data());
}

bool PacketAuth::matches(const Check& expected, base::ByteView received) {
  return received.size() == expected.bytes.size() &&
         CRYPTO_memcmp(expected.bytes.data(), received.data(), received.size()) == 0;
}

}  // namespace spillway::wire
