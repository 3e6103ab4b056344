// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "codec/sample_data.h"
#include "packetize/depacketizer.h"
#include "packetize/packetizer.h"
#include "tools/bench/codec/best_rate.h"
#include "tools/bench/codec/sum_speed.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {
namespace {

constexpr std::array<unsigned, 5> kPrecisions = {5, 8, 12, 16, 32};
constexpr std::array<unsigned, 2> kRowLogs = {13, 15};
// Plain code is one to two orders slower: fewer values and repetitions are enough.
constexpr std::size_t kReferenceValues = std::size_t{1} << 20;
constexpr int kReferenceRepetitions = 1;

HadamardSpeed hadamard_speed(const SpeedRun& run, unsigned row_log2) {
  const double rate = best_rate(
      run.values.size_bytes(), run.repetitions,
      [&] { std::copy(run.values.begin(), run.values.end(), run.work.begin()); },
      [&] {
        for (std::size_t at = 0; at < run.work.size(); at += std::size_t{1} << row_log2) {
          run.kernels.hadamard(run.work.data() + at, row_log2);
        }
        keep(run.work.data());
      });
  return {std::string(run.kernels.name), row_log2, rate};
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

}  // namespace

double memcpy_rate(std::span<const float> from, std::span<float> to, int repetitions) {
  return best_rate(from.size_bytes(), repetitions, kNoPreparation, [&] {
    std::memcpy(to.data(), from.data(), from.size_bytes());
    keep(to.data());
  });
}

CodecSpeed planes_speed(const SpeedRun& run, unsigned precision, wire::Protection protection) {
  const std::span<const float> values = run.values;
  const packetize::PacketPlan plan =
      value_or_throw(packetize::PacketPlan::make(values.size(), {}, {.precision = precision}));
  const packetize::Job job{.id = 1, .epoch = 0, .seed = 7};
  const wire::PacketAuth auth = packetize::seeded_auth(job, protection);
  packetize::Packetizer packetizer(plan, run.kernels);
  // Like a sender: hands over a row's packets before it encodes the next row.
  packetize::PacketBuffer row_packets(plan.packets_in(0), plan.max_packet_size());
  const double encode = best_rate(values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    for (std::size_t row = 0; row < plan.layout().row_count(); ++row) {
      row_packets.clear();
      packetizer.append_row(values, row, job, {}, auth, row_packets);
      keep(&row_packets);
    }
  });
  const packetize::PacketBuffer packets = packetizer.packetize(values, job, {}, auth);
  const double decode = best_rate(values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    packetize::Depacketizer receiver(plan, job, {}, run.work, codec::Estimate::kUnbiased,
                                     run.kernels);
    for (std::size_t i = 0; i < packets.size(); ++i) {
      receiver.add(packets[i], auth);
    }
    receiver.finish();
    keep(run.work.data());
  });
  const double bits =
      8.0 * static_cast<double>(plan.wire_bytes()) / static_cast<double>(values.size());
  return {fmt::format("planes-{}{}", precision, suffix_of(protection)),
          std::string(run.kernels.name), encode, decode, bits};
}

CodecSpeed reference_speed(const SpeedRun& run, const codec::reference::ReferenceCodec& codec) {
  const std::size_t count = run.values.size();
  std::vector<std::uint8_t> bytes;
  const double encode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation,
                                  [&] { bytes = codec.encode(run.values, 1); });
  const double decode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    throw_unless_ok(codec.decode(bytes, count, 1, run.work));
  });
  return {std::string(codec.name()), "reference", encode, decode, codec.bits_per_coordinate(count)};
}

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
    const SpeedRun run{*kernels, values, work,
                       oracle ? kReferenceRepetitions : options.repetitions};
    for (const unsigned row_log2 : kRowLogs) {
      progress.step(fmt::format("Hadamard 2^{} on {}", row_log2, kernels->name));
      results.hadamard.push_back(hadamard_speed(run, row_log2));
    }
    for (const unsigned precision : kPrecisions) {
      progress.step(fmt::format("planes-{} on {}", precision, kernels->name));
      results.codecs.push_back(planes_speed(run, precision));
    }
    progress.step(fmt::format("encrypted packets on {}", kernels->name));
    results.codecs.push_back(
        planes_speed(run, packetize::kDefaultPrecision, wire::Protection::kEncryption));
    progress.step(fmt::format("codes that can be added on {}", kernels->name));
    for (const CodecSpeed& speed : sum_speeds(run)) {
      results.codecs.push_back(speed);
    }
  }
  const std::size_t few = std::min(values.size(), kReferenceValues);
  for (const auto& codec : codec::reference::all_reference_codecs()) {
    progress.step(codec->name());
    results.codecs.push_back(
        reference_speed({codec::best_kernels(), std::span<const float>(values).first(few),
                         std::span(work).first(few), kReferenceRepetitions},
                        *codec));
  }
  remeasure_memcpy();
  return results;
}

}  // namespace spillway::bench
