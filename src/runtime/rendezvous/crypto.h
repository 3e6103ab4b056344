// SPDX-License-Identifier: Apache-2.0
//
// What a handshake is made of, from the kernel and OpenSSL: random bytes, HMAC-SHA256, SHA-256, and
// AES-256-GCM over one message. Pure but for draw(); any thread. Errors only where OpenSSL lacks or
// refuses something; tampering is kCorrupt.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "runtime/rendezvous/message.h"

namespace spillway::runtime {

using SealKey = wire::Key<32>;
using Digest = std::array<std::uint8_t, 32>;

// From the kernel.
base::Result<Random> draw_random();
base::Result<wire::RunKey> draw_key();

base::Result<Proof> hmac_sha256(const SealKey& key, base::ByteView message);
base::Result<Digest> sha256(base::ByteView message);
// Takes as long whatever differs.
bool is_same(const Proof& one, const Proof& other);

// One message under one key: no `number` is used twice. `beside` is not hidden, but as safe.
struct SealedMessage {
  const SealKey& key;
  std::uint64_t number = 0;
  base::ByteView beside{};
};
// kSealBytes longer than `plain`.
base::Result<Blob> seal(const SealedMessage& message, base::ByteView plain);
base::Result<Blob> unseal(const SealedMessage& message, base::ByteView sealed);

}  // namespace spillway::runtime
