// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/integer_coder.h"

#include <string>

#include "codec/reference/adaptive_coder.h"
#include "codec/reference/atalanta.h"
#include "codec/reference/fixed_length_coders.h"
#include "codec/reference/table_coder.h"

namespace spillway::codec::reference {

void IntegerCoder::learn(std::span<const std::int32_t> /*values*/) {}

std::vector<std::unique_ptr<IntegerCoder>> all_integer_coders() {
  std::vector<std::unique_ptr<IntegerCoder>> coders;
  for (const TableSource source : {TableSource::kLastStep, TableSource::kAllSteps,
                                   TableSource::kInline, TableSource::kParametric}) {
    coders.push_back(std::make_unique<TableCoder>(source));
  }
  coders.push_back(std::make_unique<AdaptiveCoder>());
  coders.push_back(std::make_unique<AtalantaCoder>());
  coders.push_back(std::make_unique<DualLengthCoder>());
  coders.push_back(std::make_unique<PackedCoder>());
  return coders;
}

base::Result<std::unique_ptr<IntegerCoder>> make_integer_coder(std::string_view name) {
  std::string names;
  for (auto& coder : all_integer_coders()) {
    if (coder->name() == name) {
      return std::move(coder);
    }
    names += (names.empty() ? "" : ", ") + std::string(coder->name());
  }
  return base::invalid_argument("no integer coder is called \"" + std::string(name) +
                                "\"; there are " + names);
}

}  // namespace spillway::codec::reference
