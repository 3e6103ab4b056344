// SPDX-License-Identifier: Apache-2.0
#include "wire/key.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <memory>

namespace spillway::wire {
namespace {

struct FreeKdf {
  void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};

// OpenSSL's parameters are not const; it does not write to these.
OSSL_PARAM octets(const char* name, const std::uint8_t* data, std::size_t size) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<std::uint8_t*>(data), size);
}

}  // namespace

void wipe(base::MutableByteView bytes) {
  OPENSSL_cleanse(bytes.data(), bytes.size());
}

base::Status derive(base::ByteView secret, base::ByteView salt, std::string_view label,
                    base::MutableByteView out) {
  const std::unique_ptr<EVP_KDF, FreeKdf> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const std::unique_ptr<EVP_KDF_CTX, FreeKdf> context(kdf ? EVP_KDF_CTX_new(kdf.get()) : nullptr);
  char digest[] = "SHA256";
  // HMAC's key is filled up with zeros: to RFC 5869, one of them and no salt are the same.
  const std::uint8_t zero = 0;
  const base::ByteView salted = salt.empty() ? base::ByteView(&zero, 1) : salt;
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      octets(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      octets(OSSL_KDF_PARAM_SALT, salted.data(), salted.size()),
      octets(OSSL_KDF_PARAM_INFO, reinterpret_cast<const std::uint8_t*>(label.data()),
             label.size()),
      OSSL_PARAM_construct_end()};
  if (!context || EVP_KDF_derive(context.get(), out.data(), out.size(), parameters) != 1) {
    return {base::StatusCode::kUnavailable,
            "OpenSSL cannot derive keys; Spillway needs OpenSSL 3 with HKDF-SHA256"};
  }
  return {};
}

}  // namespace spillway::wire
