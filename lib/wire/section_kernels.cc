// SPDX-License-Identifier: Apache-2.0
#include "wire/section_kernels.h"

#include <string_view>
#include <vector>

#include "base/environment.h"
#include "wire/polyval.h"
#include "wire/section_kernels_internal.h"

namespace spillway::wire {
namespace {

constexpr std::size_t kAesKeySize = 16;
constexpr std::size_t kHashKeyAt = 0;
constexpr std::size_t kTagKeyAt = kHashKeyAt + kPolyvalBlock;
constexpr std::size_t kCipherKeyAt = kTagKeyAt + kAesKeySize;

std::vector<const SectionKernels*> find_section_kernels() {
  std::vector<const SectionKernels*> tables = {&scalar_section_kernels()};
#ifdef SPILLWAY_HAVE_HIGHWAY
  const std::vector<const SectionKernels*> quick = highway_section_kernels();
  tables.insert(tables.end(), quick.begin(), quick.end());
#endif
  return tables;
}

// Takes the fastest table whose name starts with SPILLWAY_SIMD, so "avx512" means "avx512-vaes",
// too.
const SectionKernels& choose_section_kernels() {
  const auto wanted = base::Environment::of_process().checked_text("SPILLWAY_SIMD");
  const std::span<const SectionKernels* const> tables = all_section_kernels();
  for (auto table = tables.rbegin(); table != tables.rend(); ++table) {
    if (wanted.ok() && !wanted->empty() && std::string_view((*table)->name).starts_with(*wanted)) {
      return **table;
    }
  }
  return *tables.back();
}

}  // namespace

void expand(const Key<48>& key, bool encrypts, SectionKeys& keys) {
  const PolyvalElement hash_key = polyval_element(key.bytes.data() + kHashKeyAt);
  PolyvalElement power = hash_key;
  for (std::size_t i = SectionKeys::kPowers; i-- > 0;) {
    keys.powers[i] = {power.low, power.high};
    keys.half_sums[i] = power.low ^ power.high;
    power = polyval_product(power, hash_key);
  }
  expand_aes(key.bytes.data() + kTagKeyAt, keys.tag);
  expand_aes(key.bytes.data() + kCipherKeyAt, keys.cipher);
  keys.encrypts = encrypts;
}

std::span<const SectionKernels* const> all_section_kernels() {
  static const std::vector<const SectionKernels*> tables = find_section_kernels();
  return tables;
}

const SectionKernels& section_kernels() {
  static const SectionKernels& chosen = choose_section_kernels();
  return chosen;
}

}  // namespace spillway::wire
