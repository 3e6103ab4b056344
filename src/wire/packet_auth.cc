// SPDX-License-Identifier: Apache-2.0
#include "wire/packet_auth.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace spillway::wire {

struct OpensslFree {
  void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

namespace {

// Separates this use of the job's secret from any other.
constexpr std::string_view kKeyLabel = "spillway packet tag v1";
constexpr std::size_t kKeySize = 16;
// An odd constant: distinct indices start distinct CRCs.
constexpr std::uint32_t kIndexSpread = 0x9E3779B1U;

Check check_of(std::uint32_t crc) {
  Check check;
  base::store_le(check.bytes.data(), crc);
  return check;
}

base::Status openssl_failed(const char* what) {
  return {base::StatusCode::kUnavailable,
          std::string("OpenSSL cannot ") + what + "; keyed packets need OpenSSL 3 with SipHash"};
}

bool derive_key(base::ByteView secret, std::array<std::uint8_t, kKeySize>& key) {
  const std::unique_ptr<EVP_MD_CTX, OpensslFree> digest(EVP_MD_CTX_new());
  std::array<std::uint8_t, EVP_MAX_MD_SIZE> hash{};
  unsigned size = 0;
  if (!digest || EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr) != 1 ||
      EVP_DigestUpdate(digest.get(), kKeyLabel.data(), kKeyLabel.size()) != 1 ||
      EVP_DigestUpdate(digest.get(), secret.data(), secret.size()) != 1 ||
      EVP_DigestFinal_ex(digest.get(), hash.data(), &size) != 1 || size < kKeySize) {
    return false;
  }
  std::copy_n(hash.begin(), kKeySize, key.begin());
  OPENSSL_cleanse(hash.data(), hash.size());
  return true;
}

}  // namespace

struct PacketAuth::Keyed {
  std::unique_ptr<EVP_MAC, OpensslFree> mac;
  std::unique_ptr<EVP_MAC_CTX, OpensslFree> context;  // holds the key; started anew for every tag

  Check tag(base::ByteView first, base::ByteView second, base::ByteView third) const {
    Check check;
    std::size_t size = 0;
    // A set-up context cannot fail on memory it already has; if it does, the process is broken.
    SPILLWAY_CHECK(EVP_MAC_init(context.get(), nullptr, 0, nullptr) == 1);
    for (const base::ByteView part : {first, second, third}) {
      SPILLWAY_CHECK(EVP_MAC_update(context.get(), part.data(), part.size()) == 1);
    }
    SPILLWAY_CHECK(EVP_MAC_final(context.get(), check.bytes.data(), &size, check.bytes.size()) ==
                       1 &&
                   size == SPILLWAY_TAG_SIZE);
    return check;
  }
};

PacketAuth::PacketAuth(std::uint32_t salt, std::unique_ptr<Keyed> keyed)
    : salt_(salt), keyed_(std::move(keyed)) {}
PacketAuth::PacketAuth(PacketAuth&&) noexcept = default;
PacketAuth& PacketAuth::operator=(PacketAuth&&) noexcept = default;
PacketAuth::~PacketAuth() = default;

PacketAuth PacketAuth::crc32c(std::uint32_t salt) {
  return PacketAuth(salt, nullptr);
}

base::Result<PacketAuth> PacketAuth::keyed(base::ByteView secret) {
  if (secret.size() < kMinSecretBytes) {
    return base::invalid_argument("the job key has " + std::to_string(secret.size()) +
                                  " bytes; give at least " + std::to_string(kMinSecretBytes));
  }
  auto keyed = std::make_unique<Keyed>();
  keyed->mac.reset(EVP_MAC_fetch(nullptr, "SIPHASH", nullptr));
  if (!keyed->mac) {
    return openssl_failed("find the SipHash algorithm");
  }
  keyed->context.reset(EVP_MAC_CTX_new(keyed->mac.get()));
  std::size_t tag_size = SPILLWAY_TAG_SIZE;
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &tag_size),
                               OSSL_PARAM_construct_end()};
  std::array<std::uint8_t, kKeySize> key{};
  const bool ready = keyed->context && derive_key(secret, key) &&
                     EVP_MAC_init(keyed->context.get(), key.data(), key.size(), params) == 1;
  OPENSSL_cleanse(key.data(), key.size());
  if (!ready) {
    return openssl_failed("set up a SipHash context");
  }
  return PacketAuth(0, std::move(keyed));
}

Check PacketAuth::head_check(base::ByteView header, base::ByteView planes) const {
  if (keyed_) {
    return keyed_->tag(header, planes, {});
  }
  return check_of(~wire::crc32c(wire::crc32c(~salt_, header), planes));
}

Check PacketAuth::copy_head(base::ByteView header, base::ByteView planes, std::uint8_t* out) const {
  if (keyed_) {
    std::copy(planes.begin(), planes.end(), out);
    return keyed_->tag(header, planes, {});
  }
  return check_of(~copy_crc32c(wire::crc32c(~salt_, header), planes, out));
}

void PacketAuth::copy_segments(const Check& head, std::uint32_t index, const StridedCopy& copy,
                               std::span<Check> checks) const {
  if (keyed_) {
    for (std::size_t i = 0; i < checks.size(); ++i) {
      std::array<std::uint8_t, sizeof index> index_bytes;
      base::store_le(index_bytes.data(), static_cast<std::uint32_t>(index + i));
      const base::ByteView planes(copy.from + i * copy.from_stride,
                                  i + 1 < checks.size() ? copy.length : copy.last_length);
      checks[i] = keyed_->tag(head.bytes, index_bytes, planes);
      std::copy(planes.begin(), planes.end(), copy.to + i * copy.to_stride);
    }
    return;
  }
  std::array<std::uint32_t, kSegmentsAtOnce> states;
  SPILLWAY_CHECK(checks.size() <= states.size());
  for (std::size_t i = 0; i < checks.size(); ++i) {
    // A start that depends on the head and the index binds the segment to its place.
    states[i] = ~base::load_le<std::uint32_t>(head.bytes.data()) ^
                static_cast<std::uint32_t>(index + i + 1) * kIndexSpread;
  }
  copy_crc32c(copy, std::span(states).first(checks.size()));
  for (std::size_t i = 0; i < checks.size(); ++i) {
    checks[i] = check_of(~states[i]);
  }
}

bool PacketAuth::matches(const Check& expected, base::ByteView received) const {
  if (received.size() != check_size()) {
    return false;
  }
  if (!keyed_) {  // no secret to protect
    return base::load_le<std::uint32_t>(expected.bytes.data()) ==
           base::load_le<std::uint32_t>(received.data());
  }
  return CRYPTO_memcmp(expected.bytes.data(), received.data(), check_size()) == 0;
}

}  // namespace spillway::wire
