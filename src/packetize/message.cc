// SPDX-License-Identifier: Apache-2.0
#include "packetize/message.h"

#include "base/random.h"

namespace spillway::packetize {
namespace {

constexpr std::uint32_t kSaltDomain = 0x53414C54U;  // "SALT"

}  // namespace

std::uint64_t rotation_key(const Job& job, const wire::MessageId& message) {
  const std::uint32_t place = std::uint32_t{message.shard} << 16 | message.bucket;
  const std::uint32_t origin = static_cast<std::uint32_t>(message.phase) << 16 | message.source;
  const std::uint32_t membership = std::uint32_t{job.epoch} << 16 | job.id;
  return base::derive_key(job.seed, {message.step, place, origin, membership});
}

wire::PacketAuth unkeyed_auth(const Job& job) {
  const std::uint64_t salt =
      base::derive_key(job.seed, {kSaltDomain, job.id, job.epoch, kSaltDomain});
  return wire::PacketAuth::crc32c(static_cast<std::uint32_t>(salt));
}

}  // namespace spillway::packetize
