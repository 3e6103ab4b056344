// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <spillway/spillway.h>

#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>

#include "base/status.h"
#include "capi/handles.h"
#include "codec/plane_code.h"
#include "packetize/depacketizer.h"
#include "packetize/packet_plan.h"
#include "packetize/packetizer.h"
#include "wire/packet_auth.h"

namespace spillway::capi {

// The C interface's options, checked and converted for the core.
struct PacketConfig {
  packetize::PacketPlan plan;
  wire::PacketAuth auth;
  packetize::Job job;
  wire::DataStamp stamp;
  codec::Estimate estimate;
};

base::Result<PacketConfig> packet_config_from(const spillway_packet_options* options,
                                              std::size_t count);

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
  if (options->key == nullptr && (options->key_size != 0 || options->encrypt != 0)) {
    return base::invalid_argument("key_size or encrypt is set but key is NULL");
  }
  return {};
}

wire::DataStamp stamp_from(const spillway_packet_options& options) {
  wire::DataStamp stamp;
  stamp.message = {.operation = options.operation,
                   .signature = options.signature,
                   .piece = options.piece,
                   .source = options.source,
                   .phase = static_cast<wire::Phase>(options.phase)};
  stamp.priority = options.priority;
  stamp.importance = options.importance;
  return stamp;
}

// Each message has its own key, so the packets of every message may be numbered from 0.
base::Result<wire::PacketAuth> auth_from(const spillway_packet_options& options) {
  std::array<std::uint8_t, 48> message{};
  base::ByteWriter writer(message);
  writer.write(options.epoch);
  writer.write(options.seed);
  writer.write(options.operation);
  writer.write(options.signature);
  writer.write(options.job);
  writer.write(options.piece);
  writer.write(options.source);
  writer.write(options.phase);
  if (options.key != nullptr && options.key_size < wire::PacketAuth::kMinSecretBytes) {
    return base::invalid_argument(fmt::format("the key has {} bytes; give at least {}",
                                              options.key_size, wire::PacketAuth::kMinSecretBytes));
  }
  wire::RunKey key;
  const base::ByteView secret = options.key != nullptr
                                    ? base::ByteView(options.key, options.key_size)
                                    : base::ByteView(message);
  const base::Status status =
      wire::derive(secret, message, wire::KeyLabel::kPacketsOfMessage, key.bytes);
  if (!status.ok()) {
    return status;
  }
  return wire::PacketAuth::of_secret(
      key.bytes, options.encrypt != 0 ? wire::Protection::kEncryption : wire::Protection::kTags);
}

}  // namespace

base::Result<PacketConfig> packet_config_from(const spillway_packet_options* options,
                                              std::size_t count) {
  if (const base::Status status = check_options(options); !status.ok()) {
    return status;
  }
  const packetize::PacketLimits limits{
      .mtu = options->mtu,
      .trim_bytes = options->trim_bytes,
      .ip = options->ip_version == 4 ? packetize::IpVersion::kV4 : packetize::IpVersion::kV6};
  base::Result<packetize::PacketPlan> plan = packetize::PacketPlan::make(
      count, limits, {.precision = options->precision, .row_log2 = options->row_log2});
  if (!plan.ok()) {
    return plan.status();
  }
  base::Result<wire::PacketAuth> auth = auth_from(*options);
  if (!auth.ok()) {
    return auth.status();
  }
  return PacketConfig{std::move(plan).value(),
                      std::move(auth).value(),
                      {.id = options->job, .epoch = options->epoch, .seed = options->seed},
                      stamp_from(*options),
                      static_cast<codec::Estimate>(options->estimate)};
}

}  // namespace spillway::capi

// The packets and assemblies of include/spillway/spillway.h.
using spillway::capi::fail;
using spillway::capi::guarded;
using spillway::capi::missing;
using spillway::capi::PacketConfig;
using spillway::packetize::DeliveryReport;
using spillway::packetize::PacketOutcome;

struct spillway_packets {
  spillway::packetize::PacketBuffer buffer;
};

struct spillway_assembly {
  PacketConfig config;
  spillway::packetize::Depacketizer depacketizer;
  bool finished = false;

  spillway_assembly(PacketConfig made, std::span<float> values)
      : config(std::move(made)),
        depacketizer(config.plan, config.job, config.stamp.message, values, config.estimate) {}
};

namespace {

spillway_outcome outcome_of(PacketOutcome outcome) {
  switch (outcome) {
    case PacketOutcome::kWhole:
      return SPILLWAY_OUTCOME_WHOLE;
    case PacketOutcome::kTrimmed:
      return SPILLWAY_OUTCOME_TRIMMED;
    case PacketOutcome::kImproved:
      return SPILLWAY_OUTCOME_IMPROVED;
    case PacketOutcome::kDuplicate:
      return SPILLWAY_OUTCOME_DUPLICATE;
    case PacketOutcome::kForeign:
    case PacketOutcome::kInconsistent:
    case PacketOutcome::kFault:
      return SPILLWAY_OUTCOME_REFUSED;
  }
  return SPILLWAY_OUTCOME_REFUSED;
}

void fill_report(const DeliveryReport& from, unsigned planes, spillway_delivery_report& to) {
  to.expected = from.expected;
  to.whole = from.whole;
  to.trimmed = from.trimmed;
  to.missing = from.missing;
  to.duplicates = from.duplicates;
  to.refused = from.foreign + from.inconsistent +
               std::accumulate(from.faults.begin(), from.faults.end(), std::size_t{0});
  to.corrupt_tails = from.corrupt_tails;
  to.lost_rows = from.lost_rows;
  to.non_finite_rows = from.non_finite_rows;
  to.lost_fraction = from.lost_fraction();
  to.trimmed_fraction = from.trimmed_fraction(planes);
}

}  // namespace

void spillway_packet_options_init(spillway_packet_options* options) {
  if (options == nullptr) {
    return;
  }
  const spillway::packetize::PacketLimits limits;
  *options = {};
  options->size = sizeof *options;
  options->mtu = limits.mtu;
  options->trim_bytes = limits.trim_bytes;
  options->ip_version = 4;
  options->precision = spillway::packetize::kDefaultPrecision;
  options->row_log2 = spillway::packetize::kDefaultRowLog2;
}

spillway_status spillway_packetize(const float* values, size_t count,
                                   const spillway_packet_options* options,
                                   spillway_packets** packets) {
  if (packets == nullptr || (values == nullptr && count != 0)) {
    return missing(packets == nullptr ? "packets" : "values");
  }
  return guarded([&] {
    const spillway::base::Result<PacketConfig> config =
        spillway::capi::packet_config_from(options, count);
    if (!config.ok()) {
      return fail(config.status());
    }
    spillway::packetize::Packetizer packetizer(config->plan);
    *packets = new spillway_packets{
        packetizer.packetize(std::span(values, count), config->job, config->stamp, config->auth)};
    return SPILLWAY_OK;
  });
}

size_t spillway_packets_count(const spillway_packets* packets) {
  return packets == nullptr ? 0 : packets->buffer.size();
}

spillway_status spillway_packets_get(const spillway_packets* packets, size_t index,
                                     const uint8_t** bytes, size_t* size) {
  if (packets == nullptr || bytes == nullptr || size == nullptr) {
    return missing("packets, bytes or size");
  }
  if (index >= packets->buffer.size()) {
    return fail(SPILLWAY_INVALID_ARGUMENT, "there are only " +
                                               std::to_string(packets->buffer.size()) +
                                               " packets, no index " + std::to_string(index));
  }
  const spillway::base::ByteView packet = packets->buffer[index];
  *bytes = packet.data();
  *size = packet.size();
  return SPILLWAY_OK;
}

void spillway_packets_free(spillway_packets* packets) {
  delete packets;
}

spillway_status spillway_assembly_create(float* values, size_t count,
                                         const spillway_packet_options* options,
                                         spillway_assembly** assembly) {
  if (assembly == nullptr || (values == nullptr && count != 0)) {
    return missing(assembly == nullptr ? "assembly" : "values");
  }
  return guarded([&] {
    spillway::base::Result<PacketConfig> config =
        spillway::capi::packet_config_from(options, count);
    if (!config.ok()) {
      return fail(config.status());
    }
    *assembly =
        std::make_unique<spillway_assembly>(std::move(config).value(), std::span(values, count))
            .release();
    return SPILLWAY_OK;
  });
}

spillway_status spillway_assembly_add(spillway_assembly* assembly, const uint8_t* bytes,
                                      size_t size, spillway_outcome* outcome) {
  if (assembly == nullptr || (bytes == nullptr && size != 0)) {
    return missing(assembly == nullptr ? "assembly" : "bytes");
  }
  if (assembly->finished) {
    return fail(SPILLWAY_INVALID_ARGUMENT, "the assembly is finished; make a new one");
  }
  const spillway_outcome result =
      outcome_of(assembly->depacketizer.add({bytes, size}, assembly->config.auth));
  if (outcome != nullptr) {
    *outcome = result;
  }
  return SPILLWAY_OK;
}

spillway_status spillway_assembly_finish(spillway_assembly* assembly,
                                         spillway_delivery_report* report) {
  if (assembly == nullptr) {
    return missing("assembly");
  }
  if (assembly->finished) {
    return fail(SPILLWAY_INVALID_ARGUMENT, "the assembly is finished already");
  }
  if (report != nullptr && report->size != sizeof *report) {
    return fail(SPILLWAY_INVALID_ARGUMENT, "set report.size to sizeof(spillway_delivery_report)");
  }
  assembly->finished = true;
  const DeliveryReport result = assembly->depacketizer.finish();
  if (report != nullptr) {
    fill_report(result, assembly->config.plan.planes(), *report);
  }
  return SPILLWAY_OK;
}

void spillway_assembly_free(spillway_assembly* assembly) {
  delete assembly;
}
