// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/checks/openssl_check.h"

#include <openssl/core_names.h>
#include <openssl/params.h>

#include <array>
#include <cstring>

#include "tools/bench/command_error.h"

namespace spillway::bench {
namespace {

constexpr std::size_t kNonce = 12;
constexpr std::size_t kLongestTag = 16;
// The key's value does not affect the time.
constexpr std::array<std::uint8_t, 32> kOpensslKey = {'b', 'e', 'n', 'c', 'h'};

const char* algorithm(OpensslMac kind) {
  switch (kind) {
    case OpensslMac::kSipHash:
      return "SIPHASH";
    case OpensslMac::kGmac:
      return "GMAC";
    case OpensslMac::kPoly1305:
      return "POLY1305";
  }
  return "";
}

void need(bool done, const std::string& what) {
  if (!done) {
    throw CommandError("OpenSSL cannot do " + what + "; `bench checks` needs OpenSSL 3");
  }
}

OSSL_PARAM nonce_parameter() {
  return OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV,
                                           const_cast<std::uint8_t*>(kOpensslKey.data()), kNonce);
}

}  // namespace

OpensslTag::OpensslTag(OpensslMac kind)
    : kind_(kind),
      mac_(EVP_MAC_fetch(nullptr, algorithm(kind), nullptr)),
      context_(mac_ ? EVP_MAC_CTX_new(mac_.get()) : nullptr) {
  char cipher[] = "AES-128-GCM";
  std::size_t tag = CheckLayout::kCheck;
  std::array<OSSL_PARAM, 3> parameters = {OSSL_PARAM_construct_end(), OSSL_PARAM_construct_end(),
                                          OSSL_PARAM_construct_end()};
  if (kind == OpensslMac::kSipHash) {
    parameters[0] = OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &tag);
  } else if (kind == OpensslMac::kGmac) {
    parameters[0] = OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER, cipher, 0);
    parameters[1] = nonce_parameter();
  }
  const std::size_t key = kind == OpensslMac::kPoly1305 ? 32 : 16;
  need(context_ && EVP_MAC_init(context_.get(), kOpensslKey.data(), key, parameters.data()) == 1,
       algorithm(kind));
}

bool OpensslTag::start() {
  switch (kind_) {
    case OpensslMac::kSipHash:
      return EVP_MAC_init(context_.get(), nullptr, 0, nullptr) == 1;
    case OpensslMac::kGmac: {
      const OSSL_PARAM parameters[] = {nonce_parameter(), OSSL_PARAM_construct_end()};
      return EVP_MAC_init(context_.get(), nullptr, 0, parameters) == 1;
    }
    case OpensslMac::kPoly1305:
      return EVP_MAC_init(context_.get(), kOpensslKey.data(), kOpensslKey.size(), nullptr) == 1;
  }
  return false;
}

void OpensslTag::move(const CheckLayout& layout, const std::uint8_t* from, std::uint8_t* to) {
  std::size_t header = CheckLayout::kHeader;  // bytes; only the first tag covers it
  for (const CheckedPart& part : layout.parts) {
    std::array<std::uint8_t, kLongestTag> tag;
    std::size_t size = 0;
    std::memcpy(to + part.at, from + part.at, part.bytes);
    need(start() && EVP_MAC_update(context_.get(), to, header) == 1 &&
             EVP_MAC_update(context_.get(), to + part.at, part.bytes) == 1 &&
             EVP_MAC_final(context_.get(), tag.data(), &size, tag.size()) == 1,
         algorithm(kind_));
    std::memcpy(to + part.check_at, tag.data(), CheckLayout::kCheck);
    header = 0;
  }
}

OpensslGcm::OpensslGcm() : context_(EVP_CIPHER_CTX_new()) {
  need(context_ && EVP_EncryptInit_ex(context_.get(), EVP_aes_128_gcm(), nullptr,
                                      kOpensslKey.data(), kOpensslKey.data()) == 1,
       "AES-128-GCM");
}

void OpensslGcm::move(const CheckLayout& layout, const std::uint8_t* from, std::uint8_t* to) {
  int header = CheckLayout::kHeader;
  for (const CheckedPart& part : layout.parts) {
    std::array<std::uint8_t, kLongestTag> tag;
    int size = 0;
    EVP_CIPHER_CTX* context = context_.get();
    need(EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, kOpensslKey.data()) == 1 &&
             (header == 0 || EVP_EncryptUpdate(context, nullptr, &size, to, header) == 1) &&
             EVP_EncryptUpdate(context, to + part.at, &size, from + part.at,
                               static_cast<int>(part.bytes)) == 1 &&
             EVP_EncryptFinal_ex(context, tag.data(), &size) == 1 &&
             EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kLongestTag, tag.data()) == 1,
         "AES-128-GCM");
    std::memcpy(to + part.check_at, tag.data(), CheckLayout::kCheck);
    header = 0;
  }
}

}  // namespace spillway::bench
