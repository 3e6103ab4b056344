// SPDX-License-Identifier: Apache-2.0
#include "capi/options.h"

#include <fmt/format.h>

#include <cstring>

namespace spillway::capi {
namespace {

base::Status check_options(const spillway_packet_options* options) {
  if (options == nullptr || options->size != sizeof(spillway_packet_options)) {
    return base::invalid_argument(
        "options are missing or of another size; set them up with spillway_packet_options_init");
  }
  if (options->ip_version != 4 && options->ip_version != 6) {
    return base::invalid_argument(
        fmt::format("ip_version {} is neither 4 nor 6", options->ip_version));
  }
  if (options->phase > 3 || options->priority > 7 || options->importance > 7) {
    return base::invalid_argument("phase must be 0..3, priority and importance 0..7");
  }
  if (options->estimate > SPILLWAY_ESTIMATE_MINIMUM_ERROR) {
    return base::invalid_argument(fmt::format("estimate {} is unknown", options->estimate));
  }
  if (options->key == nullptr && options->key_size != 0) {
    return base::invalid_argument("key_size is set but key is NULL");
  }
  return {};
}

packetize::Envelope envelope_from(const spillway_packet_options& options) {
  return {.job = {.id = options.job, .epoch = options.epoch, .seed = options.seed},
          .message = {.step = options.step,
                      .bucket = options.bucket,
                      .shard = options.shard,
                      .source = options.source,
                      .phase = static_cast<wire::Phase>(options.phase)},
          .priority = options.priority,
          .importance = options.importance};
}

}  // namespace

base::Result<Settings> settings_from(const spillway_packet_options* options, std::size_t count) {
  if (const base::Status status = check_options(options); !status.ok()) {
    return status;
  }
  const bool keyed = options->key != nullptr;
  const packetize::Fabric fabric{
      .mtu = options->mtu,
      .trim_bytes = options->trim_bytes,
      .ip = options->ip_version == 4 ? packetize::IpVersion::kV4 : packetize::IpVersion::kV6};
  base::Result<packetize::PacketPlan> plan = packetize::PacketPlan::make(
      count, fabric, {.planes = options->precision, .row_log2 = options->row_log2, .keyed = keyed});
  if (!plan.ok()) {
    return plan.status();
  }
  const packetize::Envelope envelope = envelope_from(*options);
  base::Result<wire::PacketAuth> auth =
      keyed ? wire::PacketAuth::keyed({options->key, options->key_size})
            : base::Result<wire::PacketAuth>(packetize::unkeyed_auth(envelope.job));
  if (!auth.ok()) {
    return auth.status();
  }
  return Settings{std::move(plan).value(), std::move(auth).value(), envelope,
                  static_cast<codec::Estimate>(options->estimate)};
}

}  // namespace spillway::capi
