// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cerrno>
#include <memory>

#include "net/system_call.h"

namespace spillway::runtime {
namespace {

constexpr std::size_t kSealNonceBytes = 12;

struct FreeCipher {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using CipherContext = std::unique_ptr<EVP_CIPHER_CTX, FreeCipher>;

base::Status no_crypto(const char* what) {
  return {base::StatusCode::kUnavailable,
          std::string("OpenSSL has no ") + what + "; Spillway needs OpenSSL 3 with it"};
}

std::array<std::uint8_t, kSealNonceBytes> nonce_of_message(std::uint64_t number) {
  std::array<std::uint8_t, kSealNonceBytes> nonce{};
  base::store_le(nonce.data(), number);
  return nonce;
}

}  // namespace

base::Result<Random> draw_random() {
  Random random{};
  const base::Status status = net::fill_random(random);
  return status.ok() ? base::Result<Random>(random) : status;
}

base::Result<wire::RunKey> draw_key() {
  wire::RunKey key;
  const base::Status status = net::fill_random(key.bytes);
  return status.ok() ? base::Result<wire::RunKey>(key) : status;
}

base::Result<Proof> hmac_sha256(const SealKey& key, base::ByteView message) {
  Proof proof{};
  unsigned size = 0;
  const bool done = ::HMAC(EVP_sha256(), key.bytes.data(), static_cast<int>(key.bytes.size()),
                           message.data(), message.size(), proof.data(), &size) != nullptr;
  return done && size == proof.size() ? base::Result<Proof>(proof) : no_crypto("HMAC-SHA256");
}

base::Result<Digest> sha256(base::ByteView message) {
  Digest digest{};
  unsigned size = 0;
  const bool done =
      EVP_Digest(message.data(), message.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1;
  return done && size == digest.size() ? base::Result<Digest>(digest) : no_crypto("SHA-256");
}

bool is_same(const Proof& one, const Proof& other) {
  return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

base::Result<Blob> seal(const SealedMessage& message, base::ByteView plain) {
  const auto nonce = nonce_of_message(message.number);
  const CipherContext context(EVP_CIPHER_CTX_new());
  Blob sealed(plain.size() + kSealBytes);
  int beside = 0;
  int written = 0;
  int rest = 0;
  const bool done =
      context &&
      EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, message.key.bytes.data(),
                         nonce.data()) == 1 &&
      EVP_EncryptUpdate(context.get(), nullptr, &beside, message.beside.data(),
                        static_cast<int>(message.beside.size())) == 1 &&
      (plain.empty() || EVP_EncryptUpdate(context.get(), sealed.data(), &written, plain.data(),
                                          static_cast<int>(plain.size())) == 1) &&
      EVP_EncryptFinal_ex(context.get(), sealed.data() + written, &rest) == 1 &&
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, kSealBytes,
                          sealed.data() + plain.size()) == 1;
  return done ? base::Result<Blob>(std::move(sealed)) : no_crypto("AES-256-GCM");
}

base::Result<Blob> unseal(const SealedMessage& message, base::ByteView sealed) {
  const base::Status wrong(base::StatusCode::kCorrupt,
                           "what came is not what was sealed: it was changed on its way");
  if (sealed.size() < kSealBytes) {
    return wrong;
  }
  const auto nonce = nonce_of_message(message.number);
  const std::size_t size = sealed.size() - kSealBytes;
  Blob tag(sealed.begin() + static_cast<std::ptrdiff_t>(size), sealed.end());
  const CipherContext context(EVP_CIPHER_CTX_new());
  Blob plain(size);
  int beside = 0;
  int written = 0;
  int rest = 0;
  std::array<std::uint8_t, kSealBytes> nothing{};
  const bool ready =
      context &&
      EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, message.key.bytes.data(),
                         nonce.data()) == 1 &&
      EVP_DecryptUpdate(context.get(), nullptr, &beside, message.beside.data(),
                        static_cast<int>(message.beside.size())) == 1 &&
      (size == 0 || EVP_DecryptUpdate(context.get(), plain.data(), &written, sealed.data(),
                                      static_cast<int>(size)) == 1) &&
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, kSealBytes, tag.data()) == 1;
  if (!ready) {
    return no_crypto("AES-256-GCM");
  }
  if (EVP_DecryptFinal_ex(context.get(), nothing.data(), &rest) != 1) {
    wire::wipe(plain);
    return wrong;
  }
  return plain;
}

}  // namespace spillway::runtime
