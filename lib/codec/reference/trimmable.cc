// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/trimmable.h"

#include <algorithm>
#include <string>
#include <utility>

#include "codec/reference/bit_packing.h"
#include "codec/reference/reference_codec.h"
#include "codec/reference/trimmable_encodings.h"

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
                                "\"; there are " + known);
}

}  // namespace spillway::codec::reference
