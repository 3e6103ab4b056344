// SPDX-License-Identifier: Apache-2.0
#include "wire/sum_tag.h"

#include <utility>

#include "base/bytes.h"

namespace spillway::wire {
namespace {

// Both ends of the direction whose keys make draws. No packet has it: no rank sends to itself.
constexpr std::uint16_t kNobody = UINT16_MAX;

template <typename Wide>
SumTag tag_of(Wide value) {
  return {static_cast<std::uint64_t>(value), static_cast<std::uint64_t>(value >> 64)};
}

template <typename Factors>
base::Status draw_factors(const RunKey& run, const KeyContext& context, Factors& factors) {
  return derive(run, context, {reinterpret_cast<std::uint8_t*>(factors.data()), sizeof(Factors)});
}

}  // namespace

SumAuth::Keys::~Keys() {
  for (Factors* factors : {&parts, &results}) {
    wipe({reinterpret_cast<std::uint8_t*>(factors->data()), sizeof(Factors)});
  }
}

base::Result<SumAuth> SumAuth::make(const RunKey& run, std::uint64_t epoch) {
  base::Result<PacketAuth> draws = PacketAuth::make(run, {epoch, kNobody, kNobody});
  if (!draws.ok()) {
    return draws.status();
  }
  auto keys = std::unique_ptr<Keys>(new Keys{{}, {}, {}, std::move(draws).value()});
  base::Status status = draw_factors(run, {.use = KeyUse::kSumParts, .epoch = epoch}, keys->parts);
  if (status.ok()) {
    status = draw_factors(run, {.use = KeyUse::kSumResults, .epoch = epoch}, keys->results);
  }
  if (!status.ok()) {
    return status;
  }
  return SumAuth(std::move(keys));
}

SumAuth::Wide SumAuth::product_sum(std::span<const Wide> factors,
                                   std::span<const std::uint64_t> words) {
  Wide sum = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    sum += factors[i] * words[i];
  }
  return sum;
}

// Two 64-bit draws over the chunk's name, a kind of packet, a rank and a set of ranks.
SumAuth::Wide SumAuth::draw(const ChunkName& name, std::uint8_t kind, std::uint16_t rank,
                            const RankSet& ranks) const {
  std::array<std::uint8_t, 40> bytes{};
  base::store_le(bytes.data(), name.operation);
  base::store_le(bytes.data() + 8, name.signature);
  base::store_le(bytes.data() + 16, name.piece);
  base::store_le(bytes.data() + 18, name.chunk);
  base::store_le(bytes.data() + 20, name.owner);
  bytes[22] = static_cast<std::uint8_t>(rank);
  bytes[23] = kind;
  base::store_le(bytes.data() + 24, ranks.words()[0]);
  base::store_le(bytes.data() + 32, ranks.words()[1]);
  const auto half = [&](std::uint8_t which) {
    const Check drawn = keys_->draws.check({.number = name.operation, .path = which}, bytes);
    return base::load_le<std::uint64_t>(drawn.bytes.data());
  };
  return static_cast<Wide>(half(1)) << 64 | half(0);
}

SumTag SumAuth::part(const ChunkName& name, std::uint16_t rank, SumWords words) const {
  return sum(name, RankSet::of(rank), words);
}

SumTag SumAuth::sum(const ChunkName& name, const RankSet& ranks, SumWords words) const {
  Wide tag = product_sum(keys_->parts, words);
  ranks.for_each([&](std::uint16_t rank) { tag += draw(name, SPILLWAY_SUM_PART, rank, {}); });
  return tag_of(tag);
}

SumTag SumAuth::result(const ChunkName& name, const RankSet& ranks, SumWords words) const {
  return tag_of(product_sum(keys_->results, words) +
                draw(name, SPILLWAY_SUM_RESULT, name.owner, ranks));
}

SumTag SumAuth::bare(const ChunkName& name, std::uint8_t kind, std::uint16_t sender,
                     const RankSet& ranks) const {
  return tag_of(draw(name, kind, sender, ranks));
}

}  // namespace spillway::wire
