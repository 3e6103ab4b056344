// SPDX-License-Identifier: Apache-2.0
//
// The version, names of statuses, packets and assemblies of include/spillway/spillway.h.
#include <spillway/spillway.h>

#include <memory>
#include <numeric>
#include <span>

#include "base/version.h"
#include "capi/last_error.h"
#include "capi/options.h"
#include "packetize/depacketizer.h"
#include "packetize/packetizer.h"

using spillway::capi::fail;
using spillway::capi::guarded;
using spillway::capi::Settings;
using spillway::packetize::DeliveryReport;
using spillway::packetize::PacketOutcome;

struct spillway_packets {
  spillway::packetize::PacketBuffer buffer;
};

struct spillway_assembly {
  Settings settings;  // the depacketizer refers to its auth
  spillway::packetize::Depacketizer depacketizer;
  bool finished = false;

  spillway_assembly(Settings made, std::span<float> values)
      : settings(std::move(made)),
        depacketizer(settings.plan, settings.envelope.job, settings.envelope.message, settings.auth,
                     values, settings.estimate) {}
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

spillway_status missing(const char* argument) {
  return fail(SPILLWAY_INVALID_ARGUMENT, std::string(argument) + " is NULL");
}

}  // namespace

const char* spillway_version(void) {
  return spillway::base::kVersion;
}

const char* spillway_status_name(spillway_status status) {
  switch (status) {
    case SPILLWAY_OK:
      return "ok";
    case SPILLWAY_INVALID_ARGUMENT:
      return "invalid-argument";
    case SPILLWAY_LIMIT_EXCEEDED:
      return "limit-exceeded";
    case SPILLWAY_UNAVAILABLE:
      return "unavailable";
    case SPILLWAY_INTERNAL:
      return "internal";
    case SPILLWAY_PEER_FAILED:
      return "peer-failed";
    case SPILLWAY_MISMATCH:
      return "mismatch";
    case SPILLWAY_TIMED_OUT:
      return "timed-out";
    case SPILLWAY_ABORTED:
      return "aborted";
    case SPILLWAY_IN_PROGRESS:
      return "in-progress";
  }
  return "unknown";
}

const char* spillway_last_error(void) {
  return spillway::capi::last_error();
}

void spillway_packet_options_init(spillway_packet_options* options) {
  if (options == nullptr) {
    return;
  }
  const spillway::packetize::Fabric fabric;
  *options = {};
  options->size = sizeof *options;
  options->mtu = fabric.mtu;
  options->trim_bytes = fabric.trim_bytes;
  options->ip_version = 4;
  options->precision = spillway::packetize::kDefaultPlanes;
  options->row_log2 = spillway::packetize::kDefaultRowLog2;
}

spillway_status spillway_packetize(const float* values, size_t count,
                                   const spillway_packet_options* options,
                                   spillway_packets** packets) {
  if (packets == nullptr || (values == nullptr && count != 0)) {
    return missing(packets == nullptr ? "packets" : "values");
  }
  return guarded([&] {
    const spillway::base::Result<Settings> settings = spillway::capi::settings_from(options, count);
    if (!settings.ok()) {
      return fail(settings.status());
    }
    spillway::packetize::Packetizer packetizer(settings->plan, settings->auth);
    *packets =
        new spillway_packets{packetizer.packetize(std::span(values, count), settings->envelope)};
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
    spillway::base::Result<Settings> settings = spillway::capi::settings_from(options, count);
    if (!settings.ok()) {
      return fail(settings.status());
    }
    *assembly =
        std::make_unique<spillway_assembly>(std::move(settings).value(), std::span(values, count))
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
  const spillway_outcome result = outcome_of(assembly->depacketizer.add({bytes, size}));
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
    fill_report(result, assembly->settings.plan.planes(), *report);
  }
  return SPILLWAY_OK;
}

void spillway_assembly_free(spillway_assembly* assembly) {
  delete assembly;
}
