// SPDX-License-Identifier: Apache-2.0
#include "collective/entropy/entropy_piece.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace spillway::collective {
namespace {

namespace entropy = codec::entropy;

// A table is sent along if that saves at least this share of the message's length, in 1/32.
constexpr std::size_t kTableGain = 1;

// Length of a message of these numbers with their own table.
std::size_t inline_bytes(const entropy::ProbabilityTable& table, const entropy::Histogram& counts) {
  std::array<std::uint8_t, entropy::kMaxTableBytes> bytes;
  base::ByteWriter writer(bytes);
  table.serialise(writer);
  return writer.position() + table.cost_q8(counts) / (8 * 256);
}

bool has_inline_table(base::ByteView message) {
  return message[entropy::kMessageHeaderBytes] ==
         static_cast<std::uint8_t>(entropy::BlockMode::kInlineTable);
}

}  // namespace

std::span<const std::int32_t> EntropyPiece::gather(Coders& coders) const {
  const BlockRun& blocks = place_.blocks;
  if (blocks.stride == 1) {
    return coder_.content.numbers().subspan(grid().extent_of(blocks.first).first, place_.values);
  }
  coders.numbers.resize(std::max(coders.numbers.size(), place_.values));
  auto to = coders.numbers.begin();
  for (std::size_t i = 0; i < blocks.count; ++i) {
    const Extent extent = grid().extent_of(blocks.block(i));
    const std::span<const std::int32_t> from =
        coder_.content.numbers().subspan(extent.first, extent.count);
    to = std::copy(from.begin(), from.end(), to);
  }
  return std::span(coders.numbers).first(place_.values);
}

void EntropyPiece::scatter(std::span<const std::int32_t> numbers) {
  for (std::size_t i = 0; i < place_.blocks.count; ++i) {
    const Extent extent = grid().extent_of(place_.blocks.block(i));
    std::copy_n(numbers.begin(), extent.count,
                coder_.content.numbers().subspan(extent.first).begin());
    numbers = numbers.subspan(extent.count);
  }
}

base::Result<EncodedPart> EntropyPiece::encode(std::uint16_t step,
                                               const std::optional<Table>& table,
                                               std::optional<Table>& learned) const {
  CoderPool::Loan loan(coder_.coder_pool);
  Coders& coders = *loan;
  const std::span<const std::int32_t> numbers = gather(coders);
  const entropy::MessageId id{static_cast<std::uint32_t>(coder_.sequence), step};
  const entropy::Alphabet symbols = alphabet(step);
  std::optional<entropy::EncodeTable> known;
  if (table) {
    known.emplace(*table);
  }
  coders.bytes.resize(std::max(coders.bytes.size(), entropy::max_message_bytes(numbers.size())));
  entropy::Histogram counts(symbols);
  base::Result<std::size_t> length = entropy::encode_message(
      coders.encoder, id, numbers, symbols, known ? &*known : nullptr, coders.bytes, &counts);
  learned = Table::of_counts(counts);
  if (known && length.ok() &&
      inline_bytes(*learned, counts) + *length / 32 * kTableGain < *length) {
    length = entropy::encode_message(coders.encoder, id, numbers, symbols, nullptr, coders.bytes);
  }
  if (!length.ok()) {
    return length.status();
  }
  const base::ByteView message = base::ByteView(coders.bytes).first(*length);
  return EncodedPart{{message.begin(), message.end()}, has_inline_table(message)};
}

base::Result<entropy::ProbabilityTable> EntropyPiece::decode(base::ByteView message,
                                                             std::uint16_t step, const Table* table,
                                                             Coders& coders) const {
  const base::Result<entropy::MessageHeader> header = entropy::read_message_header(message);
  if (!header.ok()) {
    return header.status();
  }
  if (header->iteration != static_cast<std::uint32_t>(coder_.sequence) || header->step != step) {
    return base::Status(
        base::StatusCode::kMismatch,
        fmt::format("it is of operation {} (lower 32 bits) and sums of {} ranks, not {}",
                    header->iteration, header->step, step));
  }
  std::optional<entropy::DecodeTable> known;
  if (table != nullptr) {
    known.emplace(*table);
  }
  entropy::Histogram counts(alphabet(step));
  coders.numbers.resize(std::max(coders.numbers.size(), place_.values));
  base::Status status =
      entropy::decode_message(coders.decoder, message, known ? &*known : nullptr,
                              std::span(coders.numbers).first(place_.values), &counts);
  if (!status.ok()) {
    return status;
  }
  return Table::of_counts(counts);
}

base::Status EntropyPiece::add_part(std::uint16_t from, base::ByteView message) {
  CoderPool::Loan coders(coder_.coder_pool);
  const auto known = tables_.received.find(from);
  const Table* const table = known == tables_.received.end() ? nullptr : &known->second;
  base::Result<Table> learned = decode(message, route_.received_step, table, *coders);
  if (!learned.ok()) {
    return learned.status();
  }
  learned_.received.insert_or_assign(from, std::move(learned).value());
  std::span<const std::int32_t> part = std::span((*coders).numbers).first(place_.values);
  for (std::size_t i = 0; i < place_.blocks.count; ++i) {
    const Extent extent = grid().extent_of(place_.blocks.block(i));
    std::int32_t* const sum = coder_.content.numbers().data() + extent.first;
    for (std::size_t k = 0; k < extent.count; ++k) {
      // With made-up parts a sum may be too large: it wraps.
      sum[k] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum[k]) +
                                         static_cast<std::uint32_t>(part[k]));
    }
    part = part.subspan(extent.count);
  }
  return {};
}

base::Result<EncodedPart> EntropyPiece::encode_part() {
  return encode(route_.sent_step, tables_.sent, learned_.sent);
}

base::Result<EncodedPart> EntropyPiece::encode_sum() {
  base::Result<EncodedPart> part = encode(coder_.ranks_in_sum(), tables_.sum, learned_.sum);
  if (part.ok()) {
    deliver();
  }
  return part;
}

base::Status EntropyPiece::take_sum(base::ByteView message) {
  CoderPool::Loan coders(coder_.coder_pool);
  base::Result<Table> learned =
      decode(message, coder_.ranks_in_sum(), tables_.sum ? &*tables_.sum : nullptr, *coders);
  if (!learned.ok()) {
    return learned.status();
  }
  learned_.sum = std::move(learned).value();
  scatter(std::span((*coders).numbers).first(place_.values));
  deliver();
  return {};
}

void EntropyPiece::deliver() {
  coder_.content.deliver(place_.blocks);
  if (coder_.counts_costs) {
    reckon_costs();
  }
}

void EntropyPiece::reckon_costs() {
  const entropy::Alphabet symbols = alphabet(coder_.ranks_in_sum());
  const std::vector<std::uint32_t> costs_q8 = learned_.sum->costs_q8();
  costs_.clear();
  for (std::size_t i = 0; i < place_.blocks.count; ++i) {
    const Extent extent = grid().extent_of(place_.blocks.block(i));
    std::uint64_t cost = 0;
    for (const std::int32_t number : coder_.content.numbers().subspan(extent.first, extent.count)) {
      cost += costs_q8[symbols.code(entropy::fold(number)).symbol];
    }
    costs_.push_back(static_cast<std::uint32_t>(cost / 256));
  }
}

}  // namespace spillway::collective
