// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/allreduce/data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "collective/reduction.h"

namespace spillway::bench {
namespace {

using collective::Algorithm;
using collective::DataType;
using collective::ReduceOp;

constexpr std::uint64_t kTableKey = 0x414C4C5245445543ULL;
constexpr std::uint64_t kPlaceKey = 0x504C414345532121ULL;

// The distance from 1 to the next larger number of the type.
double epsilon_of(DataType type) {
  switch (type) {
    case DataType::kFloat64:
      return 0x1p-52;
    case DataType::kFloat16:
      return 0x1p-10;
    case DataType::kBfloat16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

void draw_gaussians(DataType type, std::size_t count, std::uint8_t* to) {
  base::RandomSequence random(kTableKey);
  const std::size_t element = collective::element_size(type);
  for (std::size_t i = 0; i < count; ++i) {
    const double value = random.next_gaussian();
    const auto rounded = static_cast<float>(value);
    if (type == DataType::kFloat64) {
      std::memcpy(to + i * element, &value, element);
    } else {
      collective::convert_from_float(type, &rounded, 1, to + i * element);
    }
  }
}

void draw_words(std::size_t bytes, std::uint8_t* to) {
  base::RandomSequence random(kTableKey);
  for (std::size_t i = 0; i < bytes; i += sizeof(std::uint32_t)) {
    const std::uint32_t word = random.next_word();
    std::memcpy(to + i, &word, sizeof(word));
  }
}

std::vector<double> to_doubles(DataType type, const std::uint8_t* from, std::size_t count) {
  std::vector<double> values(count);
  if (type == DataType::kFloat64) {
    std::memcpy(values.data(), from, count * sizeof(double));
    return values;
  }
  std::vector<float> floats(count);
  collective::convert_to_float(type, from, count, floats.data());
  std::copy(floats.begin(), floats.end(), values.begin());
  return values;
}

double fold(ReduceOp op, double sum, double next) {
  switch (op) {
    case ReduceOp::kMin:
      return std::min(sum, next);
    case ReduceOp::kMax:
      return std::max(sum, next);
    default:
      return sum + next;
  }
}

// How far a result may differ from the reference.
enum class Agreement : std::uint8_t {
  kBits,      // bit for bit: the order of additions is known or irrelevant
  kRounding,  // by the rounding of additions in any order
  kAny,       // no limit: the caller allowed losses
};

Agreement agreement_of(const collective::Operation& operation, Algorithm used) {
  if (operation.tolerance) {
    return Agreement::kAny;
  }
  const bool adds = operation.op == ReduceOp::kSum || operation.op == ReduceOp::kAverage;
  const bool has_one_answer = !collective::is_floating(operation.type) || !adds ||
                              used == Algorithm::kDirect || used == Algorithm::kServers;
  return has_one_answer ? Agreement::kBits : Agreement::kRounding;
}

double differing_elements(const std::uint8_t* a, const std::uint8_t* b, std::size_t element,
                          std::size_t count) {
  if (std::memcmp(a, b, element * count) == 0) {
    return 0.0;
  }
  double differing = 0.0;
  for (std::size_t i = 0; i < count * element; i += element) {
    differing += std::memcmp(a + i, b + i, element) == 0 ? 0.0 : 1.0;
  }
  return differing;
}

}  // namespace

// Reference for one block.
struct AllreduceData::Reference {
  std::vector<const std::uint8_t*> sources;  // by rank
  std::vector<double> values;                // reduced in double precision
  std::vector<double> magnitudes;            // sums of absolute values; averaged if the values are
};

AllreduceData::AllreduceData(DataType type)
    : type_(type), element_(collective::element_size(type)), table_((kTable + kBlock) * element_) {
  if (collective::is_floating(type)) {
    draw_gaussians(type, kTable + kBlock, table_.data());
  } else {
    draw_words(table_.size(), table_.data());
  }
}

const std::uint8_t* AllreduceData::block_of(std::uint16_t rank, std::size_t block) const {
  const base::RandomBlock words = base::random_block(
      kPlaceKey,
      {rank, static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32)});
  return table_.data() + words[0] % kTable * element_;
}

void AllreduceData::fill(std::uint16_t rank, std::size_t count, std::uint8_t* to) const {
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t elements = std::min(kBlock, count - first);
    std::memcpy(to + first * element_, block_of(rank, first / kBlock), elements * element_);
  }
}

void AllreduceData::add_up(const collective::Operation& operation, std::size_t elements,
                           Reference& reference) const {
  const std::size_t world = reference.sources.size();
  reference.values = to_doubles(type_, reference.sources.front(), elements);
  reference.magnitudes.assign(elements, 0.0);
  for (std::size_t rank = 0; rank < world; ++rank) {
    const std::vector<double> next = to_doubles(type_, reference.sources[rank], elements);
    for (std::size_t i = 0; i < elements; ++i) {
      reference.magnitudes[i] += std::abs(next[i]);
      if (rank > 0) {
        reference.values[i] = fold(operation.op, reference.values[i], next[i]);
      }
    }
  }
  if (operation.op == ReduceOp::kAverage) {
    for (std::size_t i = 0; i < elements; ++i) {
      reference.values[i] /= static_cast<double>(world);
      reference.magnitudes[i] /= static_cast<double>(world);
    }
  }
}

AllreduceData::Deviation AllreduceData::compare(const collective::Operation& operation,
                                                Algorithm used, std::uint16_t world,
                                                const std::uint8_t* result) const {
  const Agreement agreement = agreement_of(operation, used);
  const std::size_t stride =
      (operation.count + kSampled - 1) / kSampled;  // samples every stride-th
  const double bound = agreement == Agreement::kRounding ? epsilon_of(type_) * world : -1.0;
  Deviation deviation;
  Reference reference;
  reference.sources.resize(world);
  std::vector<std::uint8_t> bits(kBlock * element_);
  for (std::size_t block = 0; block * kBlock < operation.count; ++block) {
    const std::size_t elements = std::min(kBlock, operation.count - block * kBlock);
    const std::uint8_t* got = result + block * kBlock * element_;
    for (std::uint16_t rank = 0; rank < world; ++rank) {
      reference.sources[rank] = block_of(rank, block);
    }
    if (agreement == Agreement::kBits) {
      collective::reduce(type_, operation.op, reference.sources, elements, bits.data(), world);
      deviation.wrong += differing_elements(got, bits.data(), element_, elements);
    }
    const bool is_sampled = block % stride == 0;
    if (collective::is_floating(type_) && (is_sampled || bound >= 0.0)) {
      add_up(operation, elements, reference);
      const Deviation here = measure(reference, to_doubles(type_, got, elements), bound);
      deviation.wrong += here.wrong;
      deviation.error += is_sampled ? here.error : 0.0;
      deviation.energy += is_sampled ? here.energy : 0.0;
    }
  }
  return deviation;
}

// A bound below 0 means no bound: then nothing is wrong.
AllreduceData::Deviation AllreduceData::measure(const Reference& reference,
                                                const std::vector<double>& values, double bound) {
  Deviation deviation;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double off = values[i] - reference.values[i];
    const bool is_right = bound < 0.0 || std::abs(off) <= bound * reference.magnitudes[i];
    deviation.wrong += is_right ? 0.0 : 1.0;  // a NaN is never right
    deviation.error += off * off;
    deviation.energy += reference.values[i] * reference.values[i];
  }
  return deviation;
}

}  // namespace spillway::bench
