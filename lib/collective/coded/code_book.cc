// SPDX-License-Identifier: Apache-2.0
#include "collective/coded/code_book.h"

#include <algorithm>
#include <bit>

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

std::shared_ptr<const TensorCodes> CodeBook::last(std::uint64_t tensor, const CodeUse& use) const {
  const auto found = codes_.find(tensor);
  return tensor != 0 && found != codes_.end() && found->second->use == use ? found->second
                                                                           : nullptr;
}

void CodeBook::keep(std::uint64_t tensor, TensorCodes codes) {
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

}  // namespace spillway::collective
