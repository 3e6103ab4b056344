// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/adaptive_coder.h"

#include <algorithm>
#include <bit>

#include "codec/reference/table_coder.h"

namespace spillway::codec::reference {
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
  return coder.is_at_end() ? base::Status()
                           : base::Status(base::StatusCode::kMalformed,
                                          "bytes that the adaptive coder did not write");
}

}  // namespace spillway::codec::reference
