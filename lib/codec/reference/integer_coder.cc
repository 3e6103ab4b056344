// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/integer_coder.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>

#include "codec/entropy/alphabet.h"

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
                                "\"; use one of " + names);
}

// ------------------------------------------------------------------ Spillway's entropy coder

entropy::Alphabet alphabet_for(std::span<const std::int32_t> values) {
  const bool is_narrow = std::all_of(
      values.begin(), values.end(), [](std::int32_t value) { return value > -128 && value < 128; });
  return is_narrow ? entropy::Alphabet::bytes() : entropy::Alphabet::ranges();
}

std::string_view TableCoder::name() const {
  switch (source_) {
    case TableSource::kLastStep:
      return "asc";
    case TableSource::kAllSteps:
      return "one-table";
    case TableSource::kInline:
      return "inline";
    case TableSource::kParametric:
      break;
  }
  return "parametric";
}

entropy::ProbabilityTable TableCoder::learned(std::span<const std::int32_t> values) {
  if (source_ == TableSource::kParametric) {
    std::uint64_t sum = 0;
    for (const std::int32_t value : values) {
      sum += static_cast<std::uint64_t>(std::abs(static_cast<std::int64_t>(value)));
    }
    const std::uint64_t mean_q8 = sum * 256 / std::max<std::size_t>(values.size(), 1);
    return entropy::ProbabilityTable::laplace(alphabet_for(values),
                                              static_cast<std::uint32_t>(mean_q8));
  }
  // One table for all steps must suit the widest of them.
  const entropy::Alphabet alphabet =
      source_ == TableSource::kAllSteps ? entropy::Alphabet::ranges() : alphabet_for(values);
  if (!seen_ || source_ != TableSource::kAllSteps) {
    seen_.emplace(alphabet);
  }
  seen_->add(values);
  return entropy::ProbabilityTable::of_counts(*seen_);
}

void TableCoder::learn(std::span<const std::int32_t> values) {
  if (source_ != TableSource::kInline) {
    const entropy::ProbabilityTable table = learned(values);
    encode_table_.emplace(table);
    decode_table_.emplace(table);
  }
}

std::vector<std::uint8_t> TableCoder::encode(std::span<const std::int32_t> values) {
  std::vector<std::uint8_t> bytes(entropy::max_block_bytes(values.size()));
  const auto block = encode_table_ ? encoder_.encode(values, *encode_table_, bytes)
                                   : encoder_.encode_inline(values, alphabet_for(values), bytes);
  SPILLWAY_CHECK(block.ok());
  bytes.resize(block->bytes);
  return bytes;
}

base::Status TableCoder::decode(base::ByteView bytes, std::span<std::int32_t> values) {
  return decoder_.decode(bytes, decode_table_ ? &*decode_table_ : nullptr, values);
}

// ------------------------------------------------------------------ fixed lengths

namespace {

using entropy::fold;
using entropy::unfold;

constexpr unsigned kShortBits = 3;
// Folded values from here on are too rare to be among the commonest.
constexpr std::size_t kCandidates = 4096;

unsigned width_of(std::span<const std::int32_t> values) {
  std::uint32_t all = 0;
  for (const std::int32_t value : values) {
    all |= fold(value);
  }
  return static_cast<unsigned>(std::bit_width(all));
}

base::Status bad_code(const char* coder) {
  return {base::StatusCode::kMalformed,
          std::string("bytes that no ") + coder + " encoder writes: request them again"};
}

}  // namespace

std::vector<std::uint8_t> PackedCoder::encode(std::span<const std::int32_t> values) {
  std::vector<std::uint8_t> bytes(values.size() * 4 + values.size() / kPackedBlock + 1 +
                                  entropy::kBitSlack);
  std::size_t size = 0;
  for (std::size_t first = 0; first < values.size(); first += kPackedBlock) {
    const auto block = values.subspan(first, std::min(kPackedBlock, values.size() - first));
    const unsigned width = width_of(block);
    bytes[size++] = static_cast<std::uint8_t>(width);
    entropy::BitWriter bits(bytes.data() + size);
    for (const std::int32_t value : block) {
      bits.put(fold(value), width);
    }
    size += bits.bytes();
  }
  bytes.resize(size);
  return bytes;
}

base::Status PackedCoder::decode(base::ByteView bytes, std::span<std::int32_t> values) {
  base::ByteReader reader(bytes);
  for (std::size_t first = 0; first < values.size(); first += kPackedBlock) {
    const auto block = values.subspan(first, std::min(kPackedBlock, values.size() - first));
    const auto width = reader.read<std::uint8_t>();
    if (width > 32) {
      return bad_code("packed");
    }
    entropy::BitReader bits(reader.take((block.size() * width + 7) / 8));
    for (std::int32_t& value : block) {
      value = unfold(bits.get(width));
    }
  }
  return reader.ok() && reader.remaining() == 0 ? base::Status() : bad_code("packed");
}

void DualLengthCoder::learn(std::span<const std::int32_t> values) {
  std::array<std::uint32_t, kCandidates> counts{};
  for (const std::int32_t value : values) {
    if (fold(value) < kCandidates) {
      ++counts[fold(value)];
    }
  }
  std::array<std::uint32_t, kCandidates> order{};
  for (std::uint32_t i = 0; i < kCandidates; ++i) {
    order[i] = i;
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t left, std::uint32_t right) {
    return counts[left] > counts[right];
  });
  std::copy_n(order.begin(), short_.size(), short_.begin());
}

std::vector<std::uint8_t> DualLengthCoder::encode(std::span<const std::int32_t> values) {
  std::vector<std::uint8_t> bytes(1 + (values.size() * 33 + 7) / 8 + entropy::kBitSlack);
  const unsigned width = width_of(values);
  bytes[0] = static_cast<std::uint8_t>(width);
  entropy::BitWriter bits(bytes.data() + 1);
  for (const std::int32_t value : values) {
    const auto* found = std::find(short_.begin(), short_.end(), fold(value));
    if (found != short_.end()) {
      bits.put(static_cast<std::uint32_t>(found - short_.begin()) << 1, 1 + kShortBits);
    } else {
      bits.put(1, 1);
      bits.put(fold(value), width);
    }
  }
  bytes.resize(1 + bits.bytes());
  return bytes;
}

base::Status DualLengthCoder::decode(base::ByteView bytes, std::span<std::int32_t> values) {
  if (bytes.empty() || bytes[0] > 32) {
    return bad_code("dual-length");
  }
  const unsigned width = bytes[0];
  entropy::BitReader bits(bytes.subspan(1));
  for (std::int32_t& value : values) {
    value = unfold(bits.get(1) == 0 ? short_[bits.get(kShortBits)] : bits.get(width));
  }
  return bits.is_at_end() ? base::Status() : bad_code("dual-length");
}

// ------------------------------------------------------------------ adaptive

namespace {

constexpr std::uint32_t kModelLimit = 1U << 16;
constexpr std::uint32_t kRangeMin = 1U << 24;
constexpr unsigned kRawPiece = 16;

// Bytes leave from the top of `low`; bytes that a carry may still change wait.
class RangeEncoder {
 public:
  void put(std::uint32_t below, std::uint32_t count, std::uint32_t total) {
    range_ /= total;
    low_ += std::uint64_t{below} * range_;
    range_ *= count;
    while (range_ < kRangeMin) {
      range_ <<= 8;
      shift();
    }
  }

  void put_raw(std::uint32_t value, unsigned bits) {
    for (; bits > 0; bits -= std::min(bits, kRawPiece)) {
      const unsigned piece = std::min(bits, kRawPiece);
      put(value & ((1U << piece) - 1), 1, 1U << piece);
      value = piece == 16 ? value >> 16 : 0;
    }
  }

  std::vector<std::uint8_t> finish() {
    for (int i = 0; i < 5; ++i) {
      shift();
    }
    return std::move(bytes_);
  }

 private:
  void shift() {
    if (low_ < 0xFF00'0000U || low_ >> 32 != 0) {
      const auto carry = static_cast<std::uint8_t>(low_ >> 32);
      if (has_first_) {
        bytes_.push_back(static_cast<std::uint8_t>(first_ + carry));
      }
      for (; waiting_ > 0; --waiting_) {
        bytes_.push_back(static_cast<std::uint8_t>(0xFF + carry));
      }
      first_ = static_cast<std::uint8_t>(low_ >> 24);
      has_first_ = true;
    } else {
      ++waiting_;
    }
    low_ = (low_ & 0x00FF'FFFFU) << 8;
  }

  std::vector<std::uint8_t> bytes_;
  std::uint64_t low_ = 0;  // 33 bits: the highest is a carry
  std::uint32_t range_ = UINT32_MAX;
  std::size_t waiting_ = 0;
  std::uint8_t first_ = 0;
  bool has_first_ = false;
};

class RangeDecoder {
 public:
  explicit RangeDecoder(base::ByteView bytes) : bytes_(bytes) {
    for (int i = 0; i < 4; ++i) {
      code_ = code_ << 8 | next();
    }
  }

  // A position below `total`; then call take() with put()'s arguments.
  std::uint32_t position(std::uint32_t total) {
    range_ /= total;
    return std::min(code_ / range_, total - 1);
  }
  void take(std::uint32_t below, std::uint32_t count) {
    code_ -= below * range_;
    range_ *= count;
    while (range_ < kRangeMin) {
      range_ <<= 8;
      code_ = code_ << 8 | next();
    }
  }
  std::uint32_t raw(unsigned bits) {
    std::uint32_t value = 0;
    for (unsigned done = 0; done < bits; done += kRawPiece) {
      const unsigned piece = std::min(bits - done, kRawPiece);
      const std::uint32_t part = position(1U << piece);
      take(part, 1);
      value |= part << done;
    }
    return value;
  }
  bool is_at_end() const { return read_ == bytes_.size(); }

 private:
  std::uint8_t next() { return read_ < bytes_.size() ? bytes_[read_++] : (++read_, 0); }

  base::ByteView bytes_;
  std::size_t read_ = 0;
  std::uint32_t code_ = 0;
  std::uint32_t range_ = UINT32_MAX;
};

}  // namespace

AdaptiveModel::AdaptiveModel(entropy::Alphabet alphabet)
    : alphabet_(alphabet), counts_(alphabet.symbols(), 1) {
  rebuild();
}

void AdaptiveModel::rebuild() {
  tree_.assign(std::bit_ceil(counts_.size()) + 1, 0);
  total_ = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    total_ += counts_[i];
    tree_[i + 1] += counts_[i];
    const std::size_t parent = (i + 1) + ((i + 1) & (~(i + 1) + 1));
    if (parent < tree_.size()) {
      tree_[parent] += tree_[i + 1];
    }
  }
  for (std::size_t i = counts_.size() + 1; i < tree_.size(); ++i) {
    const std::size_t parent = i + (i & (~i + 1));
    if (parent < tree_.size()) {
      tree_[parent] += tree_[i];
    }
  }
}

std::uint32_t AdaptiveModel::below(unsigned symbol) const {
  std::uint32_t sum = 0;
  for (unsigned i = symbol; i > 0; i &= i - 1) {
    sum += tree_[i];
  }
  return sum;
}

unsigned AdaptiveModel::find(std::uint32_t position, std::uint32_t& below) const {
  unsigned symbol = 0;
  below = 0;
  for (auto step = static_cast<unsigned>(tree_.size() / 2); step > 0; step /= 2) {
    if (symbol + step < tree_.size() && below + tree_[symbol + step] <= position) {
      symbol += step;
      below += tree_[symbol];
    }
  }
  return std::min(symbol, alphabet_.symbols() - 1);
}

void AdaptiveModel::add(unsigned symbol) {
  ++counts_[symbol];
  ++total_;
  for (std::size_t i = symbol + 1; i < tree_.size(); i += i & (~i + 1)) {
    ++tree_[i];
  }
  if (total_ > kModelLimit) {
    for (std::uint32_t& count : counts_) {
      count = count / 2 + count % 2;
    }
    rebuild();
  }
}

void AdaptiveCoder::learn(std::span<const std::int32_t> values) {
  model_ = AdaptiveModel(alphabet_for(values));
  for (const std::int32_t value : values) {
    model_.add(model_.alphabet().code(entropy::fold(value)).symbol);
  }
}

std::vector<std::uint8_t> AdaptiveCoder::encode(std::span<const std::int32_t> values) {
  AdaptiveModel model = model_;
  RangeEncoder coder;
  for (const std::int32_t value : values) {
    const entropy::SymbolCode code = model.alphabet().code(entropy::fold(value));
    coder.put(model.below(code.symbol), model.count(code.symbol), model.total());
    coder.put_raw(code.offset, code.bits);
    model.add(code.symbol);
  }
  return coder.finish();
}

base::Status AdaptiveCoder::decode(base::ByteView bytes, std::span<std::int32_t> values) {
  AdaptiveModel model = model_;
  RangeDecoder coder(bytes);
  for (std::int32_t& value : values) {
    std::uint32_t below = 0;
    const unsigned symbol = model.find(coder.position(model.total()), below);
    coder.take(below, model.count(symbol));
    const entropy::Alphabet& alphabet = model.alphabet();
    value = entropy::unfold(alphabet.first_of(symbol) + coder.raw(alphabet.bits_of(symbol)));
    model.add(symbol);
  }
  return coder.is_at_end()
             ? base::Status()
             : base::Status(base::StatusCode::kMalformed,
                            "bytes that no adaptive encoder writes: request them again");
}

}  // namespace spillway::codec::reference
