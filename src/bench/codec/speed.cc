// SPDX-License-Identifier: Apache-2.0
#include "bench/codec/speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "bench/codec/best_rate.h"
#include "bench/codec/sum_speed.h"
#include "bench/command_error.h"
#include "codec/kernels.h"
#include "codec/reference/reference_codec.h"
#include "codec/sample_data.h"
#include "packetize/depacketizer.h"
#include "packetize/packetizer.h"

namespace spillway::bench {
namespace {

constexpr std::array<unsigned, 5> kPrecisions = {5, 8, 12, 16, 32};
constexpr std::array<unsigned, 2> kRowLogs = {13, 15};
// Plain code, one to two orders slower: fewer values and repetitions are enough.
constexpr std::size_t kReferenceValues = std::size_t{1} << 20;
constexpr int kReferenceRepetitions = 1;

double memcpy_rate(std::span<const float> from, std::span<float> to, int repetitions) {
  return best_rate(from.size_bytes(), repetitions, kNoPreparation, [&] {
    std::memcpy(to.data(), from.data(), from.size_bytes());
    keep(to.data());
  });
}

HadamardSpeed hadamard_speed(const codec::Kernels& kernels, unsigned row_log2,
                             std::span<const float> values, std::span<float> work,
                             int repetitions) {
  const double rate = best_rate(
      values.size_bytes(), repetitions,
      [&] { std::copy(values.begin(), values.end(), work.begin()); },
      [&] {
        for (std::size_t at = 0; at < work.size(); at += std::size_t{1} << row_log2) {
          kernels.hadamard(work.data() + at, row_log2);
        }
        keep(work.data());
      });
  return {std::string(kernels.name), row_log2, rate};
}

const char* suffix_of(wire::Protection protection) {
  switch (protection) {
    case wire::Protection::kTags:
      return "";
    case wire::Protection::kEncryption:
      return "-encrypted";
    case wire::Protection::kCrc32c:
      return "-crc32c";
  }
  return "";
}

// The whole way: rotate, quantise, planes, packets with checks; and back.
CodecSpeed planes_speed(const codec::Kernels& kernels, unsigned precision,
                        wire::Protection protection, std::span<const float> values,
                        std::span<float> work, int repetitions) {
  const packetize::PacketPlan plan =
      value_or_throw(packetize::PacketPlan::make(values.size(), {}, {.precision = precision}));
  const packetize::Job job{.id = 1, .epoch = 0, .seed = 7};
  const wire::PacketAuth auth = packetize::seeded_auth(job, protection);
  packetize::Packetizer packetizer(plan, kernels);
  // As a sender works: a row's packets are handed over before the next row is encoded.
  packetize::PacketBuffer row_packets(plan.packets_in(0), plan.max_packet_size());
  const double encode = best_rate(values.size_bytes(), repetitions, kNoPreparation, [&] {
    for (std::size_t row = 0; row < plan.layout().row_count(); ++row) {
      row_packets.clear();
      packetizer.append_row(values, row, job, {}, auth, row_packets);
      keep(&row_packets);
    }
  });
  const packetize::PacketBuffer packets = packetizer.packetize(values, job, {}, auth);
  const double decode = best_rate(values.size_bytes(), repetitions, kNoPreparation, [&] {
    packetize::Depacketizer receiver(plan, job, {}, work, codec::Estimate::kUnbiased, kernels);
    for (std::size_t i = 0; i < packets.size(); ++i) {
      receiver.add(packets[i], auth);
    }
    receiver.finish();
    keep(work.data());
  });
  const double bits =
      8.0 * static_cast<double>(plan.wire_bytes()) / static_cast<double>(values.size());
  return {fmt::format("planes-{}{}", precision, suffix_of(protection)), std::string(kernels.name),
          encode, decode, bits};
}

CodecSpeed reference_speed(const codec::reference::ReferenceCodec& codec,
                           std::span<const float> values, std::span<float> work) {
  std::vector<std::uint8_t> bytes;
  const double encode = best_rate(values.size_bytes(), kReferenceRepetitions, kNoPreparation,
                                  [&] { bytes = codec.encode(values, 1); });
  const double decode = best_rate(values.size_bytes(), kReferenceRepetitions, kNoPreparation, [&] {
    const base::Status status = codec.decode(bytes, values.size(), 1, work);
    if (!status.ok()) {
      throw CommandError(status);
    }
  });
  return {std::string(codec.name()), "reference", encode, decode,
          codec.bits_per_coordinate(values.size())};
}

}  // namespace

std::size_t speed_steps() {
  const std::size_t per_target = kRowLogs.size() + kPrecisions.size() + 2;
  return codec::available_kernels().size() * per_target +
         codec::reference::all_reference_codecs().size();
}

SpeedResults measure_speed(const SpeedOptions& options, Progress& progress) {
  const std::vector<float> values = codec::gaussian_values(options.values, 1);
  std::vector<float> work(values.size());
  SpeedResults results;
  const auto remeasure_memcpy = [&] {
    results.memcpy_gigabytes_per_second = std::max(results.memcpy_gigabytes_per_second,
                                                   memcpy_rate(values, work, options.repetitions));
  };
  remeasure_memcpy();
  for (const codec::Kernels* kernels : codec::available_kernels()) {
    const bool oracle = kernels == &codec::scalar_kernels();
    const int repetitions = oracle ? kReferenceRepetitions : options.repetitions;
    for (const unsigned row_log2 : kRowLogs) {
      progress.step(fmt::format("Hadamard 2^{} on {}", row_log2, kernels->name));
      results.hadamard.push_back(hadamard_speed(*kernels, row_log2, values, work, repetitions));
    }
    for (const unsigned precision : kPrecisions) {
      progress.step(fmt::format("planes-{} on {}", precision, kernels->name));
      results.codecs.push_back(
          planes_speed(*kernels, precision, wire::Protection::kTags, values, work, repetitions));
    }
    progress.step(fmt::format("encrypted packets on {}", kernels->name));
    results.codecs.push_back(planes_speed(*kernels, packetize::kDefaultPrecision,
                                          wire::Protection::kEncryption, values, work,
                                          repetitions));
    progress.step(fmt::format("codes that can be added on {}", kernels->name));
    for (const CodecSpeed& speed : sum_speeds(*kernels, values, work, repetitions)) {
      results.codecs.push_back(speed);
    }
  }
  const std::size_t few = std::min(values.size(), kReferenceValues);
  for (const auto& codec : codec::reference::all_reference_codecs()) {
    progress.step(codec->name());
    results.codecs.push_back(
        reference_speed(*codec, std::span(values).first(few), std::span(work).first(few)));
  }
  remeasure_memcpy();
  return results;
}

}  // namespace spillway::bench
