// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "codec/block_code.h"
#include "codec/lanes.h"
#include "codec/level_code.h"
#include "codec/row_codec.h"
#include "codec/sample_data.h"
#include "collective/summed/sum_piece.h"
#include "packetize/depacketizer.h"
#include "packetize/packetizer.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {

// ------------------------------------------------------------------ codecs beside memcpy

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

// ------------------------------------------------------------------ sums

namespace {

constexpr std::size_t kSumRow = std::size_t{1} << collective::kSumRowLog2;

codec::RowLayout sum_rows(std::span<const float> values) {
  return {values.size(), collective::kSumRowLog2};
}

// Packs numbers of rows into words and back. Every row begins a chunk here, so that one row is
// processed at a time. On the wire rows follow each other, and bits_per_value() counts that.
class RowWords {
 public:
  RowWords(std::uint32_t largest, const codec::RowLayout& rows)
      : layout_(value_or_throw(codec::LaneLayout::make(kSumSpeedRanks, largest))),
        rows_(rows),
        words_(rows.row_count() * layout_.chunks_for(kSumRow) * codec::kChunkWords) {}

  void pack(std::size_t row, std::span<const std::uint32_t> numbers) {
    for_each_chunk(row, numbers.size(),
                   [&](std::uint64_t* words, std::size_t first, std::size_t count) {
                     codec::pack_chunk(layout_, numbers.subspan(first, count),
                                       codec::ChunkWords(words, codec::kChunkWords));
                   });
  }

  void unpack(std::size_t row, std::span<std::uint32_t> numbers) {
    for_each_chunk(row, numbers.size(),
                   [&](std::uint64_t* words, std::size_t first, std::size_t count) {
                     codec::unpack_chunk(layout_, codec::ConstChunkWords(words, codec::kChunkWords),
                                         numbers.subspan(first, count));
                   });
  }

  double bits_per_value() const {
    const codec::Row last = rows_.row(rows_.row_count() - 1);
    const std::size_t chunks = layout_.chunks_for(last.offset + last.length());
    return static_cast<double>(chunks * codec::kChunkWords * 64) /
           static_cast<double>(rows_.tensor_length());
  }

 private:
  template <typename Visit>
  void for_each_chunk(std::size_t row, std::size_t numbers, Visit&& visit) {
    std::uint64_t* words = words_.data() + row * layout_.chunks_for(kSumRow) * codec::kChunkWords;
    for (std::size_t first = 0; first < numbers; first += layout_.values_per_chunk()) {
      visit(words, first, std::min(layout_.values_per_chunk(), numbers - first));
      words += codec::kChunkWords;
    }
  }

  codec::LaneLayout layout_;
  codec::RowLayout rows_;
  std::vector<std::uint64_t> words_;
};

codec::RotationId rotation_of(std::size_t row) {
  return {1, static_cast<std::uint32_t>(row)};
}

}  // namespace

CodecSpeed levels_speed(const SpeedRun& run, const std::string& name,
                        const codec::LevelCode& code) {
  const codec::RowLayout rows = sum_rows(run.values);
  RowWords words(code.range, rows);
  const codec::LevelRounder rounder(code, 0, run.kernels);
  std::vector<float> scales(rows.row_count());
  std::vector<float> rotated(kSumRow);
  std::vector<std::uint32_t> numbers(kSumRow);
  const double encode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    for (std::size_t i = 0; i < rows.row_count(); ++i) {
      const codec::Row row = rows.row(i);
      const std::span<float> coordinates = std::span(rotated).first(row.length());
      const std::span<std::uint32_t> levels = std::span(numbers).first(row.length());
      const codec::RotatedRow head =
          codec::rotate_for_levels(run.kernels, run.values.subspan(row.offset, row.values),
                                   row.log2_length, rotation_of(i), coordinates);
      rounder.round(coordinates, head, head.measure, rotation_of(i), levels);
      words.pack(i, levels);
      scales[i] = head.measure;
    }
    keep(&words);
  });
  const double decode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    for (std::size_t i = 0; i < rows.row_count(); ++i) {
      const codec::Row row = rows.row(i);
      const std::span<float> means = std::span(rotated).first(row.length());
      words.unpack(i, std::span(numbers).first(row.length()));
      codec::decode_level_sums(code, std::span(numbers).first(row.length()), 1, means);
      codec::finish_level_row(run.kernels, code, scales[i], rotation_of(i), row.length(), 1.0,
                              means);
      std::copy_n(means.begin(), row.values, run.work.subspan(row.offset).begin());
    }
    keep(run.work.data());
  });
  return {name, std::string(run.kernels.name), encode, decode, words.bits_per_value()};
}

CodecSpeed blocks_speed(const SpeedRun& run, const std::string& name) {
  const codec::RowLayout rows = sum_rows(run.values);
  const codec::BlockCode code = codec::BlockCode::for_contributors(kSumSpeedRanks);
  RowWords words(code.largest(), rows);
  std::vector<float> scales(rows.row_count());
  std::vector<std::uint32_t> numbers(kSumRow);
  const double encode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    for (std::size_t i = 0; i < rows.row_count(); ++i) {
      const codec::Row row = rows.row(i);
      const std::span<const float> block = run.values.subspan(row.offset, row.values);
      scales[i] = codec::measure_block(block);
      codec::encode_block(code, block, scales[i], std::span(numbers).first(row.values));
      words.pack(i, std::span(numbers).first(row.values));
    }
    keep(&words);
  });
  const double decode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    for (std::size_t i = 0; i < rows.row_count(); ++i) {
      const codec::Row row = rows.row(i);
      const std::span<std::uint32_t> sums = std::span(numbers).first(row.values);
      words.unpack(i, sums);
      codec::decode_block_sums(code, sums, scales[i], 1, 1.0,
                               run.work.subspan(row.offset, row.values));
    }
    keep(run.work.data());
  });
  return {name, std::string(run.kernels.name), encode, decode, words.bits_per_value()};
}

std::vector<CodecSpeed> sum_speeds(const SpeedRun& run) {
  return {levels_speed(run, "levels-4-8-ranks", codec::choose_level_code(4, kSumSpeedRanks)),
          levels_speed(run, "thc-4-8-ranks", codec::find_level_code(4, 30, 1.0 / 32)),
          blocks_speed(run, "block-8-ranks")};
}

}  // namespace spillway::bench
