// SPDX-License-Identifier: Apache-2.0
//
// Tags packets with OpenSSL's EVP interface, part by part: the competitors in `bench checks`.
// Nonces and one-time keys are set for every part, as in real use; deriving one-time keys is not
// included. Throws CommandError if OpenSSL lacks an algorithm. One per thread.
#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tools/bench/checks/check_layout.h"

namespace spillway::bench {

enum class OpensslMac : std::uint8_t { kSipHash, kGmac, kPoly1305 };

// Copies each part, then computes its tag.
class OpensslTag {
 public:
  explicit OpensslTag(OpensslMac kind);
  void move(const CheckLayout& layout, const std::uint8_t* from, std::uint8_t* to);

 private:
  struct Free {
    void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
    void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
  };

  bool start();

  OpensslMac kind_;
  std::unique_ptr<EVP_MAC, Free> mac_;
  std::unique_ptr<EVP_MAC_CTX, Free> context_;
};

// AES-128-GCM: encrypts while copying.
class OpensslGcm {
 public:
  OpensslGcm();
  void move(const CheckLayout& layout, const std::uint8_t* from, std::uint8_t* to);

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  };

  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
};

}  // namespace spillway::bench
