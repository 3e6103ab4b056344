// SPDX-License-Identifier: Apache-2.0
#include "wire/key.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <memory>
#include <vector>

#include "base/check.h"

namespace spillway::wire {
namespace {

struct FreeKdf {
  void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};

// OpenSSL's parameters are not const, but it does not write to these.
OSSL_PARAM octets(const char* name, const std::uint8_t* data, std::size_t size) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<std::uint8_t*>(data), size);
}

KeyLabel label_of(KeyUse use) {
  switch (use) {
    case KeyUse::kPackets:
      return KeyLabel::kPackets;
    case KeyUse::kSumParts:
      return KeyLabel::kSumParts;
    case KeyUse::kSumResults:
      return KeyLabel::kSumResults;
    case KeyUse::kNumbers:
      return KeyLabel::kNumbers;
    case KeyUse::kJob:
      return KeyLabel::kJob;
    case KeyUse::kTicket:
      return KeyLabel::kTicket;
    case KeyUse::kCommunicator:
      break;
  }
  return KeyLabel::kCommunicator;
}

// HMAC pads salts with zeros, so each layout has one length or encodes how many members follow.
std::vector<std::uint8_t> salt_of(const KeyContext& context) {
  std::vector<std::uint8_t> salt;
  const auto add = [&salt](auto value) {
    salt.resize(salt.size() + sizeof(value));
    base::store_le(salt.data() + salt.size() - sizeof(value), value);
  };
  switch (context.use) {
    case KeyUse::kPackets:
      add(context.epoch);
      add(context.from);
      add(context.to);
      break;
    case KeyUse::kSumParts:
    case KeyUse::kSumResults:
      add(context.epoch);
      break;
    case KeyUse::kNumbers:
    case KeyUse::kJob:
    case KeyUse::kTicket:
      break;
    case KeyUse::kCommunicator:
      SPILLWAY_CHECK(context.members.size() <= UINT16_MAX);
      salt.assign(context.nonce.begin(), context.nonce.end());
      add(context.epoch);
      add(context.channel);
      add(static_cast<std::uint16_t>(context.members.size()));
      for (const std::uint64_t member : context.members) {
        add(member);
      }
      break;
  }
  return salt;
}

}  // namespace

base::Status derive(const RunKey& parent, const KeyContext& context, base::MutableByteView out) {
  return derive(parent.bytes, salt_of(context), label_of(context.use), out);
}

void wipe(base::MutableByteView bytes) {
  OPENSSL_cleanse(bytes.data(), bytes.size());
}

base::Status derive(base::ByteView secret, base::ByteView salt, KeyLabel label,
                    base::MutableByteView out) {
  return hkdf_sha256(secret, salt, kKeyLabels[static_cast<std::size_t>(label)], out);
}

base::Status hkdf_sha256(base::ByteView secret, base::ByteView salt, std::string_view info,
                         base::MutableByteView out) {
  const std::unique_ptr<EVP_KDF, FreeKdf> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const std::unique_ptr<EVP_KDF_CTX, FreeKdf> context(kdf ? EVP_KDF_CTX_new(kdf.get()) : nullptr);
  char digest[] = "SHA256";
  // HMAC pads its key with zeros, so by RFC 5869 one zero byte equals an empty salt.
  const std::uint8_t zero = 0;
  const base::ByteView salted = salt.empty() ? base::ByteView(&zero, 1) : salt;
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      octets(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      octets(OSSL_KDF_PARAM_SALT, salted.data(), salted.size()),
      octets(OSSL_KDF_PARAM_INFO, reinterpret_cast<const std::uint8_t*>(info.data()), info.size()),
      OSSL_PARAM_construct_end()};
  if (!context || EVP_KDF_derive(context.get(), out.data(), out.size(), parameters) != 1) {
    return {base::StatusCode::kUnavailable,
            "OpenSSL cannot derive keys; Spillway needs OpenSSL 3 with HKDF-SHA256"};
  }
  return {};
}

}  // namespace spillway::wire
