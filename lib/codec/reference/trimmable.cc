// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/trimmable.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "codec/kernels.h"
#include "codec/reference/coordinates.h"
#include "codec/reference/reference_codec.h"
#include "codec/rotation.h"

namespace spillway::codec::reference {
namespace {

constexpr std::uint32_t kTailMask = (1U << kTailBits) - 1;

std::vector<std::uint8_t> pack(std::span<const std::uint32_t> words) {
  std::vector<std::uint8_t> packet(packet_bytes(words.size()));
  BitWriter writer(packet);
  for (const std::uint32_t word : words) {
    writer.put(word >> kTailBits, 1);
  }
  writer.flush();
  for (const std::uint32_t word : words) {
    writer.put(word & kTailMask, kTailBits);
  }
  writer.flush();
  return packet;
}

void unpack_heads(base::ByteView heads, std::span<std::uint32_t> words) {
  BitReader reader(heads);
  for (std::uint32_t& word : words) {
    word = reader.get(1) << kTailBits;
  }
}

void unpack_tails(base::ByteView tails, std::span<std::uint32_t> words) {
  BitReader reader(tails);
  for (std::uint32_t& word : words) {
    word |= reader.get(kTailBits);
  }
}

// A trimmed packet may be longer than its heads, because switches trim to a size of their own.
bool long_enough(const std::vector<std::uint8_t>& packet, PacketFate fate,
                 std::size_t coordinates) {
  switch (fate) {
    case PacketFate::kWhole:
      return packet.size() == packet_bytes(coordinates);
    case PacketFate::kTrimmed:
      return packet.size() >= head_bytes(coordinates);
    case PacketFate::kLost:
      return true;
  }
  return false;  // not an enumerator
}

base::Status miscounted(std::string_view what, std::size_t expected, std::size_t actual) {
  return {base::StatusCode::kMalformed, "the tensor takes " + std::to_string(expected) + " " +
                                            std::string(what) + ", not " + std::to_string(actual)};
}

std::vector<std::unique_ptr<TrimmableEncoding>> make_all(std::size_t coordinates_per_packet) {
  std::vector<std::unique_ptr<TrimmableEncoding>> all;
  all.push_back(std::make_unique<SignMagnitude>(coordinates_per_packet));
  all.push_back(std::make_unique<StochasticQuantisation>(coordinates_per_packet));
  all.push_back(std::make_unique<SubtractiveDithering>(coordinates_per_packet));
  all.push_back(std::make_unique<RotatedSign>(coordinates_per_packet));
  return all;
}

}  // namespace

std::size_t head_bytes(std::size_t coordinates) {
  return packed_bytes(coordinates, 1);
}

std::size_t packet_bytes(std::size_t coordinates) {
  return head_bytes(coordinates) + packed_bytes(coordinates, kTailBits);
}

TrimmableEncoding::TrimmableEncoding(std::size_t coordinates_per_packet)
    : coordinates_per_packet_(coordinates_per_packet) {
  SPILLWAY_CHECK(coordinates_per_packet >= 1 && coordinates_per_packet <= kMaxCoordinatesPerPacket);
}

std::size_t TrimmableEncoding::packet_count(std::size_t count) const {
  const std::size_t words = word_count(count);
  return words / coordinates_per_packet_ + (words % coordinates_per_packet_ != 0 ? 1 : 0);
}

std::size_t TrimmableEncoding::coordinates_in(std::size_t packet, std::size_t words) const {
  return std::min(coordinates_per_packet_, words - packet * coordinates_per_packet_);
}

TrimmableMessage TrimmableEncoding::encode(std::span<const float> tensor,
                                           std::uint64_t seed) const {
  SPILLWAY_CHECK(tensor.size() <= kMaxTensorLength);
  Coded coded = to_words(tensor, seed);
  SPILLWAY_CHECK(coded.words.size() == word_count(tensor.size()));
  TrimmableMessage message{{}, std::move(coded.metadata)};
  const std::span<const std::uint32_t> words(coded.words);
  for (std::size_t i = 0; i < packet_count(tensor.size()); ++i) {
    message.packets.push_back(
        pack(words.subspan(i * coordinates_per_packet_, coordinates_in(i, words.size()))));
  }
  return message;
}

base::Status TrimmableEncoding::check(const TrimmableMessage& message,
                                      std::span<const PacketFate> fates, std::size_t count) const {
  if (count > kMaxTensorLength) {
    return {base::StatusCode::kLimitExceeded,
            "a tensor has at most " + std::to_string(kMaxTensorLength) + " coordinates"};
  }
  const std::size_t packets = packet_count(count);
  if (message.packets.size() != packets) {
    return miscounted("packets", packets, message.packets.size());
  }
  if (fates.size() != packets) {
    return base::invalid_argument(std::to_string(fates.size()) + " fates for " +
                                  std::to_string(packets) + " packets");
  }
  if (message.metadata.size() != metadata_count(count)) {
    return miscounted("metadata values", metadata_count(count), message.metadata.size());
  }
  const std::size_t words = word_count(count);
  for (std::size_t i = 0; i < packets; ++i) {
    if (!long_enough(message.packets[i], fates[i], coordinates_in(i, words))) {
      return {base::StatusCode::kMalformed, "packet " + std::to_string(i) + " has " +
                                                std::to_string(message.packets[i].size()) +
                                                " bytes, which does not agree with its fate"};
    }
  }
  return {};
}

base::Status TrimmableEncoding::damage(TrimmableMessage& message, std::span<const PacketFate> fates,
                                       std::size_t count) const {
  if (base::Status status = check(message, fates, count); !status.ok()) {
    return status;
  }
  const std::size_t words = word_count(count);
  for (std::size_t i = 0; i < fates.size(); ++i) {
    if (fates[i] == PacketFate::kTrimmed) {
      message.packets[i].resize(head_bytes(coordinates_in(i, words)));
    } else if (fates[i] == PacketFate::kLost) {
      message.packets[i].clear();
    }
  }
  return {};
}

base::Status TrimmableEncoding::decode(const TrimmableMessage& message,
                                       std::span<const PacketFate> fates, std::uint64_t seed,
                                       std::span<float> out) const {
  if (base::Status status = check(message, fates, out.size()); !status.ok()) {
    return status;
  }
  const std::size_t count = word_count(out.size());
  Received received{std::vector<std::uint32_t>(count, 0),
                    std::vector<PacketFate>(count, PacketFate::kLost)};
  for (std::size_t i = 0; i < fates.size(); ++i) {
    if (fates[i] == PacketFate::kLost) {
      continue;
    }
    const std::size_t first = i * coordinates_per_packet_;
    const std::size_t coordinates = coordinates_in(i, count);
    const base::ByteView packet(message.packets[i]);
    const auto words = std::span(received.words).subspan(first, coordinates);
    unpack_heads(packet.first(head_bytes(coordinates)), words);
    if (fates[i] == PacketFate::kWhole) {
      unpack_tails(packet.subspan(head_bytes(coordinates)), words);
    }
    const auto fates_begin = received.fates.begin() + static_cast<std::ptrdiff_t>(first);
    std::fill_n(fates_begin, coordinates, fates[i]);
  }
  from_words(received, message.metadata, seed, out);
  return {};
}

std::vector<std::unique_ptr<TrimmableEncoding>> all_trimmable_encodings() {
  return make_all(kDefaultCoordinatesPerPacket);
}

base::Result<std::unique_ptr<TrimmableEncoding>> make_trimmable_encoding(
    std::string_view name, std::size_t coordinates_per_packet) {
  if (coordinates_per_packet < 1 || coordinates_per_packet > kMaxCoordinatesPerPacket) {
    return base::invalid_argument("a packet holds 1 to " +
                                  std::to_string(kMaxCoordinatesPerPacket) + " coordinates, not " +
                                  std::to_string(coordinates_per_packet));
  }
  std::string known;
  for (auto& encoding : make_all(coordinates_per_packet)) {
    if (encoding->name() == name) {
      return std::move(encoding);
    }
    known += (known.empty() ? "" : ", ") + std::string(encoding->name());
  }
  return base::invalid_argument("no trimmable encoding is called \"" + std::string(name) +
                                "\"; use one of " + known);
}

// ------------------------------------------------------------------ the four encodings

namespace {

constexpr double kDeviationsKept = 2.5;
constexpr std::uint32_t kQuietBit = 0x00400000;
constexpr std::uint32_t kHeadDomain = 0x54525351U;    // "TRSQ"
constexpr std::uint32_t kDitherDomain = 0x54525344U;  // "TRSD"

double deviation(std::span<const float> tensor) {
  if (tensor.empty()) {
    return 0.0;
  }
  const auto count = static_cast<double>(tensor.size());
  double sum = 0.0;
  for (const float value : tensor) {
    if (!std::isfinite(value)) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    sum += value;
  }
  double squares = 0.0;
  for (const float value : tensor) {
    const double centred = value - sum / count;
    squares += centred * centred;
  }
  return std::sqrt(squares / count);
}

// 0 for an empty or constant tensor, NaN if a value is not finite.
float standard_deviation(std::span<const float> tensor) {
  return saturated(deviation(tensor));
}

// L of sq and sd, limited to the largest float.
float clipping_limit(std::span<const float> tensor) {
  return saturated(kDeviationsKept * deviation(tensor));
}

// The upper 31 bits of a float, and back. A number moves towards zero by at most one unit in the
// last place, the smallest denormal becomes zero, a NaN stays a NaN.
std::uint32_t shortened(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return (std::isnan(value) ? bits | kQuietBit : bits) >> 1;
}

float lengthened(std::uint32_t tail) {
  return std::bit_cast<float>(tail << 1);
}

// P(head = 1). Without a usable limit the head has no meaning and decodes to zero or NaN.
double head_probability(float value, float limit) {
  if (!(limit > 0.0F)) {
    return 0.0;
  }
  const double clipped = std::clamp(value, -limit, limit);
  return 0.5 + 0.5 * (clipped / limit);
}

// The dither of a coordinate, in [-limit, limit); both ends draw the same.
double dither(CoordinateDraws& draws, std::size_t coordinate, float limit) {
  return (2.0 * draws.unit(coordinate) - 1.0) * limit;
}

// y = H D x / sqrt(n), in place of the zero-padded row x; returns f, or NaN if y is not finite.
float rotate_to_unit_gain(RotationId id, unsigned log2_length, std::span<float> row) {
  double energy = 0.0;
  for (const float value : row) {
    energy += static_cast<double>(value) * value;
  }
  rotate_row(best_kernels(), id, 0, 1, log2_length, row.data());
  const auto normalise = static_cast<float>(1.0 / rotation_gain(log2_length, 1));
  double absolute_sum = 0.0;
  for (float& value : row) {
    value *= normalise;
    absolute_sum += std::fabs(value);
  }
  if (!std::isfinite(absolute_sum)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return absolute_sum > 0.0 ? static_cast<float>(energy / absolute_sum) : 0.0F;
}

float rotated_value(std::uint32_t word, PacketFate fate, float scale) {
  if (fate == PacketFate::kTrimmed) {
    return word != 0 ? -scale : scale;
  }
  return std::bit_cast<float>(word);  // a lost word is zero
}

}  // namespace

TrimmableEncoding::Coded SignMagnitude::to_words(std::span<const float> tensor,
                                                 std::uint64_t /*seed*/) const {
  Coded coded{{}, {standard_deviation(tensor)}};
  coded.words.reserve(tensor.size());
  for (const float value : tensor) {
    coded.words.push_back(std::bit_cast<std::uint32_t>(value));
  }
  return coded;
}

void SignMagnitude::from_words(const Received& received, std::span<const float> metadata,
                               std::uint64_t /*seed*/, std::span<float> out) const {
  const float sigma = metadata[0];
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t word = received.words[i];
    if (received.fates[i] == PacketFate::kTrimmed) {
      out[i] = word != 0 ? -sigma : sigma;
    } else {
      out[i] = std::bit_cast<float>(word);  // a lost word is zero
    }
  }
}

TrimmableEncoding::Coded StochasticQuantisation::to_words(std::span<const float> tensor,
                                                          std::uint64_t seed) const {
  const float limit = clipping_limit(tensor);
  Coded coded{{}, {limit}};
  coded.words.reserve(tensor.size());
  CoordinateDraws draws(seed, kHeadDomain);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const std::uint32_t head = draws.unit(i) < head_probability(tensor[i], limit) ? 1 : 0;
    coded.words.push_back(head << kTailBits | shortened(tensor[i]));
  }
  return coded;
}

void StochasticQuantisation::from_words(const Received& received, std::span<const float> metadata,
                                        std::uint64_t /*seed*/, std::span<float> out) const {
  const float limit = metadata[0];
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t word = received.words[i];
    if (received.fates[i] == PacketFate::kTrimmed) {
      out[i] = word != 0 ? limit : -limit;
    } else {
      out[i] = lengthened(word);  // shifts the head out; a lost word is zero
    }
  }
}

TrimmableEncoding::Coded SubtractiveDithering::to_words(std::span<const float> tensor,
                                                        std::uint64_t seed) const {
  const float limit = clipping_limit(tensor);
  Coded coded{{}, {limit}};
  coded.words.reserve(tensor.size());
  CoordinateDraws draws(seed, kDitherDomain);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    // Clipping would change no head: beyond the limit the dither never flips the sign.
    const std::uint32_t head = tensor[i] + dither(draws, i, limit) >= 0.0 ? 1 : 0;
    coded.words.push_back(head << kTailBits | shortened(tensor[i]));
  }
  return coded;
}

void SubtractiveDithering::from_words(const Received& received, std::span<const float> metadata,
                                      std::uint64_t seed, std::span<float> out) const {
  const float limit = metadata[0];
  CoordinateDraws draws(seed, kDitherDomain);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t word = received.words[i];
    if (received.fates[i] == PacketFate::kTrimmed) {
      const double level = word != 0 ? limit : -limit;
      out[i] = saturated(level - dither(draws, i, limit));
    } else {
      out[i] = lengthened(word);  // shifts the head out; a lost word is zero
    }
  }
}

std::size_t RotatedSign::word_count(std::size_t count) const {
  return padded_length(reference_rows(count));
}

std::size_t RotatedSign::metadata_count(std::size_t count) const {
  return reference_rows(count).row_count();
}

TrimmableEncoding::Coded RotatedSign::to_words(std::span<const float> tensor,
                                               std::uint64_t seed) const {
  const RowLayout rows = reference_rows(tensor.size());
  Coded coded;
  coded.words.reserve(padded_length(rows));
  std::vector<float> scratch;
  for (std::size_t i = 0; i < rows.row_count(); ++i) {
    const Row row = rows.row(i);
    scratch.assign(row.length(), 0.0F);
    std::copy_n(tensor.begin() + static_cast<std::ptrdiff_t>(row.offset), row.values,
                scratch.begin());
    const RotationId id = {seed, static_cast<std::uint32_t>(i)};
    coded.metadata.push_back(rotate_to_unit_gain(id, row.log2_length, scratch));
    for (const float value : scratch) {
      coded.words.push_back(std::bit_cast<std::uint32_t>(value));
    }
  }
  return coded;
}

void RotatedSign::from_words(const Received& received, std::span<const float> metadata,
                             std::uint64_t seed, std::span<float> out) const {
  const RowLayout rows = reference_rows(out.size());
  std::vector<float> scratch;
  for (std::size_t i = 0; i < rows.row_count(); ++i) {
    const Row row = rows.row(i);
    const auto target = out.subspan(row.offset, row.values);
    if (std::isnan(metadata[i])) {
      std::fill(target.begin(), target.end(), metadata[i]);
      continue;
    }
    scratch.resize(row.length());
    for (std::size_t k = 0; k < scratch.size(); ++k) {
      const std::size_t word =
          row.offset + k;  // full rows come first, so words and values have the same index
      scratch[k] = rotated_value(received.words[word], received.fates[word], metadata[i]);
    }
    const RotationId id = {seed, static_cast<std::uint32_t>(i)};
    unrotate_row(best_kernels(), id, 1, row.log2_length, 1.0F, scratch.data());
    std::copy_n(scratch.begin(), target.size(), target.begin());
  }
}

}  // namespace spillway::codec::reference
