// SPDX-License-Identifier: Apache-2.0
#include "codec/kernels.h"

#include "base/environment.h"
#include "codec/kernels_internal.h"

namespace spillway::codec {
namespace {

std::vector<const Kernels*> find_kernels() {
  std::vector<const Kernels*> tables;
#ifdef SPILLWAY_HAVE_HIGHWAY
  tables = highway_kernels();
#endif
  tables.push_back(&scalar_kernels());
  return tables;
}

const Kernels& choose_kernels() {
  const auto wanted = base::Environment::of_process().checked_text("SPILLWAY_SIMD");
  for (const Kernels* table : available_kernels()) {
    if (wanted.ok() && table->name == *wanted) {
      return *table;
    }
  }
  return *available_kernels().front();
}

}  // namespace

const std::vector<const Kernels*>& available_kernels() {
  static const std::vector<const Kernels*> tables = find_kernels();
  return tables;
}

const Kernels& best_kernels() {
  static const Kernels& chosen = choose_kernels();
  return chosen;
}

}  // namespace spillway::codec
