// SPDX-License-Identifier: Apache-2.0
//
// Primitives of the handshake, from the kernel and OpenSSL: random bytes, HMAC-SHA256, SHA-256, and
// AES-256-GCM over one message. Any thread; pure, except for draw_random() and draw_key().
// Functions fail only if OpenSSL lacks or refuses something; tampering is kCorrupt.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "comm/rendezvous/message.h"

namespace spillway::runtime {

using SealKey = wire::Key<32>;
using Digest = std::array<std::uint8_t, 32>;

// From the kernel.
base::Result<Random> draw_random();
base::Result<wire::RunKey> draw_key();

base::Result<Proof> hmac_sha256(const SealKey& key, base::ByteView message);
base::Result<Digest> sha256(base::ByteView message);
// Constant-time comparison.
bool is_same(const Proof& one, const Proof& other);

// One message under one key; `number` must never repeat. `beside` is authenticated but not
// encrypted.
struct SealedMessage {
  const SealKey& key;
  std::uint64_t number = 0;
  base::ByteView beside{};
};
// The result is kSealBytes longer than `plain`.
base::Result<Blob> seal(const SealedMessage& message, base::ByteView plain);
base::Result<Blob> unseal(const SealedMessage& message, base::ByteView sealed);

}  // namespace spillway::runtime
