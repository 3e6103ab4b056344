// SPDX-License-Identifier: Apache-2.0
#include "collective/summed/sum_piece.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codec/block_code.h"
#include "codec/kernels.h"
#include "codec/lanes.h"
#include "codec/level_code.h"
#include "collective/reduction.h"
#include "transport/message.h"

namespace spillway::collective {

namespace {

std::variant<codec::LevelCode, codec::BlockCode> code_of(const Operation& operation,
                                                         const Group& group) {
  if (operation.tolerance->codec == Codec::kBlocks) {
    return codec::BlockCode::for_contributors(group.workers());
  }
  return codec::choose_level_code(operation.tolerance->precision, group.workers());
}

}  // namespace

SumCoder::SumCoder(const Operation& operation_, const SumLayout& layout_,
                   std::span<float> residual_)
    : operation(operation_),
      layout(layout_),
      code(code_of(operation_, layout_.group)),
      residual(residual_) {}

double SumCoder::weight() const {
  return operation.op == ReduceOp::kSum ? static_cast<double>(layout.group.workers()) : 1.0;
}

SumPiece::SumPiece(const SumCoder& coder, const SumPlace& place, std::uint64_t key)
    : coder_(coder), place_(place), key_(key), rows_(SumLayout::rows_of(place)) {
  measures_.resize(rows_.row_count());
}

std::vector<float> SumPiece::own_values() const {
  const OwnValues own(coder_.operation, place_.extent);
  std::vector<float> values(own.view().begin(), own.view().end());
  if (coder_.has_residual()) {
    add_values(coder_.residual.subspan(place_.extent.first, place_.extent.count), values);
  }
  return values;
}

DeviceLevels SumPiece::on_device() const {
  return {.extent = place_.extent,
          .rows = rows_,
          .key = key_,
          .code = std::get_if<codec::LevelCode>(&coder_.code),
          .lanes = coder_.layout.lanes,
          .rank = coder_.layout.group.rank};
}

base::Status SumPiece::measure() {
  rotated_.resize(rows_.row_count());
  if (DeviceTensor* const device = coder_.operation.device.get()) {
    const base::Status status =
        device->measure(on_device(), coder_.residual_at(place_.extent), rotated_);
    std::transform(rotated_.begin(), rotated_.end(), measures_.begin(),
                   [](const codec::RotatedRow& row) { return row.measure; });
    return status;
  }
  const std::vector<float> values = own_values();
  coordinates_.assign(SumLayout::coordinates_of(place_), 0.0F);
  for (std::size_t i = 0; i < rows_.row_count(); ++i) {
    const codec::Row row = rows_.row(i);
    const std::span<const float> own = std::span(values).subspan(row.offset, row.values);
    const std::span<float> coordinates = std::span(coordinates_).subspan(row.offset, row.length());
    if (std::holds_alternative<codec::BlockCode>(coder_.code)) {
      std::copy(own.begin(), own.end(), coordinates.begin());
      measures_[i] = codec::measure_block(own);
      continue;
    }
    rotated_[i] = codec::rotate_for_levels(codec::best_kernels(), own, row.log2_length, rotation(i),
                                           coordinates);
    measures_[i] = rotated_[i].measure;
  }
  return {};
}

void SumPiece::begin_empty() {
  const std::size_t chunks = coder_.layout.chunks_of(place_);
  memory_ = std::shared_ptr<std::uint64_t[]>(new std::uint64_t[chunks * codec::kChunkWords]());
  words_ = {memory_.get(), chunks * codec::kChunkWords};
  ranks_.resize(chunks);
}

base::Status SumPiece::encode_on_device() {
  DeviceTensor& device = *coder_.operation.device;
  const std::size_t chunks = coder_.layout.chunks_of(place_);
  for (std::shared_ptr<std::uint64_t[]>* memory : {&memory_, &own_words_}) {
    if (memory == &own_words_ && !coder_.has_residual()) {
      continue;
    }
    base::Result<std::shared_ptr<std::uint64_t[]>> made =
        device.make_words(chunks * codec::kChunkWords);
    if (!made.ok()) {
      return made.status();
    }
    *memory = std::move(made).value();
  }
  words_ = {memory_.get(), chunks * codec::kChunkWords};
  ranks_.resize(chunks);
  const base::Status status = device.round(on_device(), coder_.residual_at(place_.extent), rotated_,
                                           scales_, words_, clipped_);
  if (coder_.has_residual()) {
    std::copy(words_.begin(), words_.end(), own_words_.get());
  }
  return status;
}

base::Status SumPiece::encode(std::span<const float> scales) {
  scales_.assign(scales.begin(), scales.end());
  if (coder_.operation.device) {
    return encode_on_device();
  }
  std::vector<std::uint32_t> numbers(coordinates_.size());
  const codec::LevelCode* const levels = std::get_if<codec::LevelCode>(&coder_.code);
  std::optional<codec::LevelRounder> rounder;
  if (levels != nullptr) {
    rounder.emplace(*levels, coder_.layout.group.rank);
  }
  for (std::size_t i = 0; i < rows_.row_count(); ++i) {
    const codec::Row row = rows_.row(i);
    const std::span<const float> coordinates =
        std::span(coordinates_).subspan(row.offset, row.length());
    const std::span<std::uint32_t> out = std::span(numbers).subspan(row.offset, row.length());
    clipped_ += levels != nullptr
                    ? rounder->round(coordinates, rotated_[i], scales_[i], rotation(i), out)
                    : codec::encode_block(std::get<codec::BlockCode>(coder_.code), coordinates,
                                          scales_[i], out);
  }
  coordinates_ = {};
  write_words(numbers);
  return {};
}

void SumPiece::write_words(std::span<const std::uint32_t> numbers) {
  begin_empty();
  const std::size_t per_chunk = coder_.layout.lanes.values_per_chunk();
  for (std::size_t chunk = 0; chunk < ranks_.size(); ++chunk) {
    const std::size_t first = chunk * per_chunk;
    codec::pack_chunk(coder_.layout.lanes,
                      numbers.subspan(first, std::min(per_chunk, numbers.size() - first)),
                      codec::ChunkWords(&words_[chunk * codec::kChunkWords], codec::kChunkWords));
  }
  if (coder_.has_residual()) {
    own_words_ = std::shared_ptr<std::uint64_t[]>(new std::uint64_t[words_.size()]);
    std::copy(words_.begin(), words_.end(), own_words_.get());
  }
}

template <typename Visit>
void SumPiece::for_each_segment(std::size_t first, std::size_t count, Visit&& visit) const {
  const std::size_t per_chunk = coder_.layout.lanes.values_per_chunk();
  const std::size_t end = first + count;
  while (first < end) {
    const std::size_t chunk = first / per_chunk;
    const std::size_t until = std::min(end, (chunk + 1) * per_chunk);
    visit(Segment{first, until - first, chunk});
    first = until;
  }
}

std::vector<std::uint32_t> SumPiece::numbers_of(std::span<const std::uint64_t> words) const {
  std::vector<std::uint32_t> numbers(SumLayout::coordinates_of(place_));
  const std::size_t per_chunk = coder_.layout.lanes.values_per_chunk();
  for (std::size_t chunk = 0; chunk < ranks_.size(); ++chunk) {
    const std::size_t first = chunk * per_chunk;
    codec::unpack_chunk(
        coder_.layout.lanes,
        codec::ConstChunkWords(&words[chunk * codec::kChunkWords], codec::kChunkWords),
        std::span(numbers).subspan(first, std::min(per_chunk, numbers.size() - first)));
  }
  return numbers;
}

template <typename Count>
void SumPiece::decode_row(std::size_t index, std::span<const std::uint32_t> sums, float scale,
                          double weight, bool makes_up, const Count& count,
                          std::span<float> values) const {
  const codec::Row row = rows_.row(index);
  const codec::LevelCode* const levels = std::get_if<codec::LevelCode>(&coder_.code);
  std::size_t arrived = 0;
  for_each_segment(row.offset, row.length(), [&](const Segment& segment) {
    const unsigned contributors = count(ranks_[segment.chunk]);
    const std::span<const std::uint32_t> from = sums.subspan(segment.first, segment.count);
    const std::span<float> to = values.subspan(segment.first - row.offset, segment.count);
    arrived += contributors > 0 ? segment.count : 0;
    if (levels != nullptr) {
      codec::decode_level_sums(*levels, from, contributors, to);
    } else {
      codec::decode_block_sums(std::get<codec::BlockCode>(coder_.code), from, scale, contributors,
                               weight, to);
    }
  });
  if (levels != nullptr) {
    codec::finish_level_row(codec::best_kernels(), *levels, scale, rotation(index),
                            makes_up ? arrived : row.length(), weight, values);
  }
}

// Settles the residual first, while the input is still there.
base::Status SumPiece::decode_on_device(std::span<const float> shared) {
  DeviceTensor& device = *coder_.operation.device;
  const std::uint16_t rank = coder_.layout.group.rank;
  std::vector<unsigned> contributors(ranks_.size());
  std::vector<float> scales = scales_;
  std::vector<bool> not_finite(shared.size());
  for (std::size_t i = 0; i < shared.size(); ++i) {
    not_finite[i] = std::isnan(shared[i]);
  }
  if (coder_.has_residual()) {
    std::transform(ranks_.begin(), ranks_.end(), contributors.begin(),
                   [rank](const wire::RankSet& ranks) { return ranks.contains(rank) ? 1U : 0U; });
    const base::Status status = device.settle_levels(on_device(),
                                                     {.words = {own_words_.get(), words_.size()},
                                                      .contributors = contributors,
                                                      .scales = scales,
                                                      .makes_up = false},
                                                     not_finite, coder_.residual_at(place_.extent));
    own_words_.reset();
    if (!status.ok()) {
      return status;
    }
  }
  for (std::size_t i = 0; i < shared.size(); ++i) {
    scales[i] = not_finite[i] ? shared[i] : scales[i];
  }
  std::transform(ranks_.begin(), ranks_.end(), contributors.begin(),
                 [](const wire::RankSet& ranks) { return ranks.size(); });
  return device.decode_sums(
      on_device(),
      {.words = words_, .contributors = contributors, .scales = scales, .weight = coder_.weight()});
}

base::Status SumPiece::decode(std::span<const float> shared) {
  if (coder_.operation.device) {
    return decode_on_device(shared);
  }
  if (coder_.has_residual()) {
    settle_residual(shared);
  }
  const std::vector<std::uint32_t> sums = numbers_of(words_);
  const DataType type = coder_.operation.type;
  auto* const output = static_cast<std::uint8_t*>(coder_.operation.output) +
                       place_.extent.first * element_size(type);
  std::vector<float> values(std::size_t{1} << kSumRowLog2);
  for (std::size_t i = 0; i < rows_.row_count(); ++i) {
    const codec::Row row = rows_.row(i);
    const float scale = std::isnan(shared[i]) ? shared[i] : scales_[i];
    decode_row(
        i, sums, scale, coder_.weight(), true,
        [](const wire::RankSet& ranks) { return ranks.size(); },
        std::span(values).first(row.length()));
    convert_from_float(type, values.data(), row.values, output + row.offset * element_size(type));
  }
  return {};
}

// The residual becomes what is not in the sums: what rounding changed, and chunks without this
// rank. Rows that are not finite are owed nothing.
void SumPiece::settle_residual(std::span<const float> shared) {
  const std::vector<float> own = own_values();
  const std::vector<std::uint32_t> numbers = numbers_of({own_words_.get(), words_.size()});
  const std::span<float> residual =
      coder_.residual.subspan(place_.extent.first, place_.extent.count);
  const std::uint16_t rank = coder_.layout.group.rank;
  std::vector<float> sent(std::size_t{1} << kSumRowLog2);
  for (std::size_t i = 0; i < rows_.row_count(); ++i) {
    const codec::Row row = rows_.row(i);
    decode_row(
        i, numbers, scales_[i], 1.0, false,
        [rank](const wire::RankSet& ranks) { return ranks.contains(rank) ? 1U : 0U; },
        std::span(sent).first(row.length()));
    const bool is_finite = !std::isnan(shared[i]);
    for (std::size_t k = 0; k < row.values; ++k) {
      residual[row.offset + k] = is_finite ? own[row.offset + k] - sent[k] : 0.0F;
    }
  }
  own_words_.reset();
}

unsigned SumPiece::fewest_contributors() const {
  unsigned fewest = SPILLWAY_SUM_RANKS;
  for (const wire::RankSet& ranks : ranks_) {
    fewest = std::min(fewest, ranks.size());
  }
  return ranks_.empty() ? 0 : fewest;
}

std::uint32_t largest_number(const Operation& operation, const Group& group) {
  const unsigned contributors = group.workers();
  return operation.tolerance->codec == Codec::kBlocks
             ? codec::BlockCode::for_contributors(contributors).largest()
             : codec::choose_level_code(operation.tolerance->precision, contributors).range;
}

base::Result<SumLayout> SumLayout::make(const Operation& operation, const Group& group,
                                        std::size_t piece_bytes, std::uint16_t rack_ranks) {
  const base::Result<codec::LaneLayout> lanes =
      codec::LaneLayout::make(group.workers(), largest_number(operation, group));
  if (!lanes.ok()) {
    return lanes.status();
  }
  SumLayout layout{group, rack_ranks, *lanes, {}};
  const std::uint16_t owners = group.servers > 0 ? group.servers : group.world;
  const std::uint16_t first = group.servers > 0 ? group.workers() : std::uint16_t{0};
  const std::size_t most = std::max<std::size_t>(piece_bytes / sizeof(float), 1);
  for (std::uint16_t shard = 0; shard < owners; ++shard) {
    const Extent extent = shard_of(operation.count, owners, shard);
    for (std::size_t piece = 0; piece < piece_count(extent.count, most); ++piece) {
      layout.places.push_back(
          {piece_of(extent, most, piece), static_cast<std::uint16_t>(first + shard)});
    }
  }
  for (const SumPlace& place : layout.places) {
    if (layout.chunks_of(place) > transport::kMaxChunks) {
      return base::invalid_argument(
          fmt::format("{}: a piece of {} elements has more than {} chunks; use smaller pieces",
                      describe(operation), place.extent.count, transport::kMaxChunks));
    }
  }
  return layout;
}

wire::RankSet SumLayout::contributors_to(const SumPlace& place) const {
  wire::RankSet ranks = wire::RankSet::below(group.workers());
  ranks.erase(place.owner);
  return ranks;
}

std::array<std::uint8_t, SPILLWAY_SUM_LEVELS> SumLayout::need_of(const SumPlace& place,
                                                                 std::uint16_t rank) const {
  const wire::RankSet all = contributors_to(place);
  if (rack_ranks == 0 || rack_ranks >= group.workers()) {
    return {static_cast<std::uint8_t>(all.size()), 0};
  }
  std::uint8_t in_rack = 0;
  std::uint8_t beyond_owner = 0;
  all.for_each([&](std::uint16_t other) {
    in_rack += other / rack_ranks == rank / rack_ranks ? 1 : 0;
    beyond_owner += other / rack_ranks != place.owner / rack_ranks ? 1 : 0;
  });
  return {in_rack, beyond_owner};
}

std::size_t SumLayout::coordinates_of(const SumPlace& place) {
  const codec::RowLayout rows = rows_of(place);
  if (rows.row_count() == 0) {
    return 0;
  }
  const codec::Row last = rows.row(rows.row_count() - 1);
  return last.offset + last.length();
}

}  // namespace spillway::collective
