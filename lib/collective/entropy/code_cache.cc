// SPDX-License-Identifier: Apache-2.0
#include "collective/entropy/code_cache.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "codec/lanes.h"

namespace spillway::collective {

namespace {

// FNV-1a over words.
class StateHash {
 public:
  void add(std::uint64_t word) {
    for (unsigned byte = 0; byte < 8; ++byte) {
      hash_ = (hash_ ^ (word >> (8 * byte) & 0xFFU)) * 0x100'0000'01B3U;
    }
  }
  // Never 0.
  std::uint32_t value() const {
    return std::max<std::uint32_t>(static_cast<std::uint32_t>(hash_ ^ hash_ >> 32), 1);
  }

 private:
  std::uint64_t hash_ = 0xCBF2'9CE4'8422'2325U;
};

// A table and where it belongs, except for the peer.
std::uint64_t word_of(const LinkTables::value_type& table) {
  return std::uint64_t{table.first.step} << 48 | std::uint64_t{table.first.piece} << 32 |
         table.second.hash();
}

}  // namespace

std::uint32_t hash_of(const LinkTables& tables, std::uint16_t peer) {
  StateHash hash;
  bool has_any = false;
  for (auto table = tables.lower_bound({peer, 0, 0});
       table != tables.end() && table->first.peer == peer; ++table) {
    hash.add(word_of(*table));
    has_any = true;
  }
  return has_any ? hash.value() : 0;
}

std::uint32_t TensorCodes::shared_hash() const {
  StateHash hash;
  hash.add(std::bit_cast<std::uint32_t>(largest));
  for (const auto& table : sums) {
    hash.add(table.first.peer);
    hash.add(word_of(table));
  }
  for (const std::uint32_t cost : costs) {
    hash.add(cost);
  }
  hash.add(sketch.fingerprint);
  return hash.value();
}

std::shared_ptr<const TensorCodes> CodeCache::last(std::uint64_t tensor, const CodeUse& use) const {
  const auto found = codes_.find(tensor);
  return tensor != 0 && found != codes_.end() && found->second->use == use ? found->second
                                                                           : nullptr;
}

void CodeCache::keep(std::uint64_t tensor, TensorCodes codes) {
  if (tensor == 0) {
    return;
  }
  if (codes_.size() >= kMaxTensors && !codes_.contains(tensor)) {
    codes_.erase(codes_.begin());
  }
  std::shared_ptr<const TensorCodes>& kept = codes_[tensor];
  if (!kept || kept->sequence < codes.sequence) {
    kept = std::make_shared<const TensorCodes>(std::move(codes));
  }
}

namespace {

TableSource source_of(std::uint32_t ours, std::uint32_t theirs) {
  if (ours != theirs) {
    return TableSource::kInline;
  }
  return ours == 0 ? TableSource::kParametric : TableSource::kLast;
}

}  // namespace

HelloBytes write_hello(const EntropyHello& hello) {
  HelloBytes bytes{};
  base::ByteWriter writer(bytes);
  writer.write(hello.largest);
  writer.write(hello.mean);
  writer.write(hello.shared);
  writer.write(hello.sent);
  writer.write(hello.received);
  return bytes;
}

EntropyHello read_hello(const HelloBytes& bytes) {
  base::ByteReader reader(bytes);
  EntropyHello hello;
  hello.largest = std::fabs(reader.read<float>());
  hello.mean = reader.read<float>();
  hello.shared = reader.read<std::uint32_t>();
  hello.sent = reader.read<std::uint32_t>();
  hello.received = reader.read<std::uint32_t>();
  return hello;
}

EntropyAgreement agree_on_codes(std::span<const EntropyHello> to,
                                std::span<const EntropyHello> from, const TensorCodes* last,
                                bool predicts_scale) {
  EntropyAgreement agreement;
  const std::uint32_t shared = from.empty() ? 0 : from[0].shared;
  bool is_shared = true;
  for (std::size_t rank = 0; rank < from.size(); ++rank) {
    agreement.largest = codec::larger_scale(agreement.largest, from[rank].largest);
    is_shared = is_shared && from[rank].shared == shared;
    agreement.sent.push_back(source_of(to[rank].sent, from[rank].received));
    agreement.received.push_back(source_of(to[rank].received, from[rank].sent));
  }
  agreement.sums = source_of(shared, is_shared ? shared : ~shared);
  const float predicted = agreement.sums == TableSource::kLast && last != nullptr && predicts_scale
                              ? codec::predict_scale(last->largest, codec::kScaleHeadroom)
                              : 0.0F;
  agreement.is_predicted = predicted > 0.0F && !std::isnan(agreement.largest);
  agreement.scale = agreement.is_predicted ? predicted : agreement.largest;
  return agreement;
}

std::uint32_t parametric_scale(std::span<const float> means, double unit) {
  double squares = 0.0;
  for (const float mean : means) {
    const double scaled = static_cast<double>(mean) / unit * 256.0;
    // Squares of whole numbers add up exactly: the same everywhere.
    const double whole = scaled >= 1.0 ? std::floor(std::min(scaled, 0x1p20)) : 1.0;
    const double square = whole * whole;
    squares += square;
  }
  return static_cast<std::uint32_t>(std::min(std::sqrt(squares), 0x1p31));
}

}  // namespace spillway::collective
