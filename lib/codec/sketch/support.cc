// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch/support.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "base/bytes.h"

namespace spillway::codec::sketch {
namespace {

constexpr std::uint64_t kAllBits = ~std::uint64_t{0};

// The bits of up to 64 values. Flags are bytes first, so that comparisons vectorise. A product then
// moves the lowest bits of eight bytes next to each other.
std::uint64_t nonzero_bits(std::span<const std::int32_t> values) {
  constexpr std::uint64_t kGatherLowestBits = 0x0102040810204080U;
  std::array<std::uint8_t, kWordBits> flags{};
  if (values.size() == kWordBits) {
    for (std::size_t i = 0; i < kWordBits; ++i) {
      flags[i] = values[i] != 0;
    }
  } else {
    std::transform(values.begin(), values.end(), flags.begin(),
                   [](std::int32_t value) { return value != 0; });
  }
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < kWordBits; i += 8) {
    bits |= (base::load_le<std::uint64_t>(&flags[i]) * kGatherLowestBits >> 56) << i;
  }
  return bits;
}

}  // namespace

Support Support::all(std::size_t length) {
  Support support(length);
  for (std::size_t word = 0; word < support.words_.size(); ++word) {
    support.words_[word] = support.valid_bits(word);
  }
  return support;
}

Support Support::of_nonzero(std::span<const std::int32_t> values) {
  Support support(values.size());
  for (std::size_t word = 0; word < support.words_.size(); ++word) {
    const std::size_t begin = word * kWordBits;
    support.words_[word] =
        nonzero_bits(values.subspan(begin, std::min(kWordBits, values.size() - begin)));
  }
  return support;
}

std::uint64_t Support::valid_bits(std::size_t word) const {
  const std::size_t left = length_ - word * kWordBits;
  return left >= kWordBits ? kAllBits : (std::uint64_t{1} << left) - 1;
}

std::size_t Support::count() const {
  return std::transform_reduce(
      words_.begin(), words_.end(), std::size_t{0}, std::plus<>(),
      [](std::uint64_t word) { return static_cast<std::size_t>(std::popcount(word)); });
}

Support& Support::operator|=(const Support& other) {
  SPILLWAY_CHECK(length_ == other.length_);
  for (std::size_t word = 0; word < words_.size(); ++word) {
    words_[word] |= other.words_[word];
  }
  return *this;
}

Support Support::without(const Support& other) const {
  SPILLWAY_CHECK(length_ == other.length_);
  Support left = *this;
  for (std::size_t word = 0; word < words_.size(); ++word) {
    left.words_[word] &= ~other.words_[word];
  }
  return left;
}

bool Support::meets(const Support& other) const {
  SPILLWAY_CHECK(length_ == other.length_);
  return std::inner_product(words_.begin(), words_.end(), other.words_.begin(), std::uint64_t{0},
                            std::bit_or<>(), std::bit_and<>()) != 0;
}

void gather(const Support& support, std::span<const std::int32_t> values,
            std::span<std::int32_t> dense) {
  SPILLWAY_CHECK(values.size() == support.length() && dense.size() == support.count());
  const auto words = support.words();
  std::int32_t* to = dense.data();
  for (std::size_t word = 0; word < words.size(); ++word) {
    const std::int32_t* from = values.data() + word * kWordBits;
    if (words[word] == kAllBits) {
      to = std::copy_n(from, kWordBits, to);
      continue;
    }
    for (std::uint64_t left = words[word]; left != 0; left &= left - 1) {
      *to++ = from[std::countr_zero(left)];
    }
  }
}

void scatter(const Support& support, std::span<const std::int32_t> dense,
             std::span<std::int32_t> values) {
  SPILLWAY_CHECK(values.size() == support.length() && dense.size() == support.count());
  const auto words = support.words();
  const std::int32_t* from = dense.data();
  for (std::size_t word = 0; word < words.size(); ++word) {
    std::int32_t* to = values.data() + word * kWordBits;
    if (words[word] == kAllBits) {
      std::copy_n(from, kWordBits, to);
      from += kWordBits;
      continue;
    }
    for (std::uint64_t left = words[word]; left != 0; left &= left - 1) {
      to[std::countr_zero(left)] = *from++;
    }
  }
}

// ------------------------------------------------------------------ bytes

namespace {

enum class Form : std::uint8_t { kEmpty = 0, kBitmap = 1, kRuns = 2 };

constexpr std::size_t kFormBytes = 1;
constexpr std::size_t kRunsHeaderBytes = kFormBytes + 2 + sizeof(std::uint32_t);
constexpr unsigned kMaxRiceParameter = 31;

// Neighbouring positions that are all set.
struct Run {
  std::uint64_t gap;     // unset positions since the last run
  std::uint64_t length;  // 1 or more
};

base::Status malformed(const char* what) {
  return {base::StatusCode::kMalformed,
          std::string("support: ") + what + ": the sender has another tensor or prediction"};
}

// Calls visit(position) for every chosen index, ascending.
template <typename Visit>
void for_each_position(const Support& chosen, const Support& excluded, Visit&& visit) {
  std::uint64_t before = 0;
  for (std::size_t word = 0; word < chosen.words().size(); ++word) {
    const std::uint64_t open = ~excluded.words()[word] & excluded.valid_bits(word);
    for (std::uint64_t left = chosen.words()[word]; left != 0; left &= left - 1) {
      const std::uint64_t below = (left & -left) - 1;
      visit(before + static_cast<std::uint64_t>(std::popcount(open & below)));
    }
    before += static_cast<std::uint64_t>(std::popcount(open));
  }
}

// Ascending positions as runs.
struct RunList {
  std::vector<Run> runs;
  std::uint64_t end = 0;  // end of the last run

  void add(std::uint64_t position) {
    if (position == end && !runs.empty()) {
      ++runs.back().length;
    } else {
      runs.push_back({position - end, 1});
    }
    end = position + 1;
  }
};

std::vector<Run> runs_of(const Support& chosen, const Support& excluded) {
  RunList list;
  for_each_position(chosen, excluded, [&](std::uint64_t position) { list.add(position); });
  return list.runs;
}

// ---- Rice codes: the quotient in unary, as zeros and a one; then the remainder's bits ----

// Near the optimum for geometrically distributed numbers with that mean.
unsigned rice_parameter(std::uint64_t sum, std::uint64_t count) {
  const std::uint64_t scaled_mean = sum / count * 11 / 16;
  return scaled_mean == 0 ? 0
                          : std::min<unsigned>(std::bit_width(scaled_mean) - 1, kMaxRiceParameter);
}

struct RiceParameters {
  unsigned gap;
  unsigned run;
};

RiceParameters parameters_for(std::span<const Run> runs) {
  std::uint64_t gaps = 0;
  std::uint64_t lengths = 0;
  for (const Run& run : runs) {
    gaps += run.gap;
    lengths += run.length - 1;
  }
  return {rice_parameter(gaps, runs.size()), rice_parameter(lengths, runs.size())};
}

std::uint64_t runs_bits(std::span<const Run> runs, RiceParameters parameters) {
  std::uint64_t bits = runs.size() * (2 + parameters.gap + parameters.run);
  for (const Run& run : runs) {
    bits += (run.gap >> parameters.gap) + ((run.length - 1) >> parameters.run);
  }
  return bits;
}

class RiceWriter {
 public:
  explicit RiceWriter(std::vector<std::uint8_t>& bytes) : bytes_(bytes) {}

  void put(std::uint64_t number, unsigned parameter) {
    for (std::uint64_t zeros = number >> parameter; zeros > 0;) {
      const std::uint64_t some = std::min<std::uint64_t>(zeros, 32);
      append(0, static_cast<unsigned>(some));
      zeros -= some;
    }
    append(1, 1);
    append(number & ((std::uint64_t{1} << parameter) - 1), parameter);
  }

  void flush() {
    if (pending_bits_ > 0) {
      bytes_.push_back(static_cast<std::uint8_t>(pending_));
    }
  }

 private:
  // `count` is at most 32.
  void append(std::uint64_t bits, unsigned count) {
    pending_ |= bits << pending_bits_;
    for (pending_bits_ += count; pending_bits_ >= 8; pending_bits_ -= 8) {
      bytes_.push_back(static_cast<std::uint8_t>(pending_));
      pending_ >>= 8;
    }
  }

  std::vector<std::uint8_t>& bytes_;
  std::uint64_t pending_ = 0;
  unsigned pending_bits_ = 0;  // below 8 between calls
};

// Beyond the end it turns bad and yields zeros.
class RiceReader {
 public:
  explicit RiceReader(base::ByteView bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  // Only the padding of the last byte is left.
  bool at_end() const { return position_ == bytes_.size() && pending_ == 0; }

  std::uint64_t get(unsigned parameter) {
    std::uint64_t quotient = 0;
    while (pending_ == 0) {
      quotient += pending_bits_;
      pending_bits_ = 0;
      if (!refill()) {
        return 0;
      }
    }
    const auto zeros = static_cast<unsigned>(std::countr_zero(pending_));
    drop(zeros + 1);
    return (quotient + zeros) << parameter | remainder(parameter);
  }

 private:
  std::uint64_t remainder(unsigned count) {
    while (pending_bits_ < count) {
      if (!refill()) {
        return 0;
      }
    }
    const std::uint64_t bits = pending_ & ((std::uint64_t{1} << count) - 1);
    drop(count);
    return bits;
  }

  bool refill() {
    ok_ = ok_ && position_ < bytes_.size();
    if (ok_) {
      pending_ |= std::uint64_t{bytes_[position_++]} << pending_bits_;
      pending_bits_ += 8;
    }
    return ok_;
  }

  void drop(unsigned count) {
    pending_ >>= count;
    pending_bits_ -= count;
  }

  base::ByteView bytes_;
  std::size_t position_ = 0;
  std::uint64_t pending_ = 0;
  unsigned pending_bits_ = 0;  // below 40: at most 31 are needed at once
  bool ok_ = true;
};

// ---- Forms ----

std::vector<std::uint8_t> encode_bitmap(std::span<const Run> runs, std::size_t positions) {
  std::vector<std::uint8_t> bytes(encoded_support_limit(positions));
  bytes[0] = static_cast<std::uint8_t>(Form::kBitmap);
  std::uint64_t position = 0;
  for (const Run& run : runs) {
    position += run.gap;
    for (const std::uint64_t end = position + run.length; position < end; ++position) {
      bytes[kFormBytes + position / 8] |= static_cast<std::uint8_t>(1U << (position % 8));
    }
  }
  return bytes;
}

std::vector<std::uint8_t> encode_runs(std::span<const Run> runs, RiceParameters parameters) {
  std::vector<std::uint8_t> bytes(kRunsHeaderBytes);
  base::ByteWriter header(bytes);
  header.write(static_cast<std::uint8_t>(Form::kRuns));
  header.write(static_cast<std::uint8_t>(parameters.gap));
  header.write(static_cast<std::uint8_t>(parameters.run));
  header.write(static_cast<std::uint32_t>(runs.size()));
  RiceWriter writer(bytes);
  for (const Run& run : runs) {
    writer.put(run.gap, parameters.gap);
    writer.put(run.length - 1, parameters.run);
  }
  writer.flush();
  return bytes;
}

base::Result<std::vector<Run>> decode_runs(base::ByteView bytes, std::size_t positions) {
  base::ByteReader header(bytes);
  const RiceParameters parameters{header.read<std::uint8_t>(), header.read<std::uint8_t>()};
  const auto count = header.read<std::uint32_t>();
  if (!header.ok() || parameters.gap > kMaxRiceParameter || parameters.run > kMaxRiceParameter) {
    return malformed("an invalid header");
  }
  RiceReader reader(header.take(header.remaining()));
  std::vector<Run> runs;
  for (std::uint64_t end = 0; runs.size() < count;) {
    const Run run{reader.get(parameters.gap), reader.get(parameters.run) + 1};
    const bool touches_last = run.gap == 0 && !runs.empty();
    if (!reader.ok() || touches_last || run.gap > positions - end ||
        run.length > positions - end - run.gap) {
      return malformed("runs that end early or exceed the tensor");
    }
    end += run.gap + run.length;
    runs.push_back(run);
  }
  if (runs.empty() || !reader.at_end()) {
    return malformed("bytes after the last run");
  }
  return runs;
}

base::Result<std::vector<Run>> decode_bitmap(base::ByteView bytes, std::size_t positions) {
  if (bytes.size() != (positions + 7) / 8) {
    return malformed("a bitmap of the wrong length");
  }
  if (positions % 8 != 0 && bytes.back() >> (positions % 8) != 0) {
    return malformed("bits beyond a bitmap's end");
  }
  RunList list;
  for (std::uint64_t position = 0; position < positions; ++position) {
    if ((bytes[position / 8] >> (position % 8) & 1U) != 0) {
      list.add(position);
    }
  }
  return list.runs;
}

// Walks forward over the positions that are not excluded.
class PositionWalk {
 public:
  explicit PositionWalk(const Support& excluded) : excluded_(excluded) {
    if (!excluded_.words().empty()) {
      enter(0);
    }
  }

  // Remaining positions in this word.
  std::uint64_t left_in_word() const { return static_cast<std::uint64_t>(std::popcount(open_)); }
  std::size_t word() const { return word_; }
  void next_word() { enter(word_ + 1); }

  // Takes the next `count` positions of this word and returns their bits.
  std::uint64_t take(std::uint64_t count) {
    if (count == left_in_word()) {
      return std::exchange(open_, 0);
    }
    std::uint64_t rest = open_;
    for (; count > 0; --count) {
      rest &= rest - 1;
    }
    return std::exchange(open_, rest) & ~rest;
  }

 private:
  void enter(std::size_t word) {
    word_ = word;
    open_ =
        word < excluded_.words().size() ? ~excluded_.words()[word] & excluded_.valid_bits(word) : 0;
  }

  const Support& excluded_;
  std::size_t word_ = 0;
  std::uint64_t open_ = 0;
};

// Runs must lie within the positions that are not excluded.
Support support_of(std::span<const Run> runs, const Support& excluded) {
  Support chosen(excluded.length());
  PositionWalk walk(excluded);
  const auto advance = [&](std::uint64_t count, bool is_chosen) {
    while (count > 0) {
      const std::uint64_t some = std::min(count, walk.left_in_word());
      const std::uint64_t bits = walk.take(some);
      chosen.words()[walk.word()] |= is_chosen ? bits : 0;
      count -= some;
      if (count > 0) {
        walk.next_word();
      }
    }
  };
  for (const Run& run : runs) {
    advance(run.gap, false);
    advance(run.length, true);
  }
  return chosen;
}

}  // namespace

std::size_t encoded_support_limit(std::size_t positions) {
  return kFormBytes + (positions + 7) / 8;
}

std::vector<std::uint8_t> encode_support(const Support& chosen, const Support& excluded) {
  SPILLWAY_CHECK(chosen.length() == excluded.length() && chosen.length() <= kMaxSupportLength);
  const std::vector<Run> runs = runs_of(chosen, excluded);
  if (runs.empty()) {
    return {static_cast<std::uint8_t>(Form::kEmpty)};
  }
  const std::size_t positions = excluded.length() - excluded.count();
  const RiceParameters parameters = parameters_for(runs);
  const std::uint64_t bytes = kRunsHeaderBytes + (runs_bits(runs, parameters) + 7) / 8;
  return bytes < encoded_support_limit(positions) ? encode_runs(runs, parameters)
                                                  : encode_bitmap(runs, positions);
}

base::Result<Support> decode_support(base::ByteView bytes, const Support& excluded) {
  const std::size_t positions = excluded.length() - excluded.count();
  if (bytes.empty()) {
    return malformed("no bytes");
  }
  const base::ByteView content = bytes.subspan(kFormBytes);
  base::Result<std::vector<Run>> runs = malformed("an unknown form");
  switch (static_cast<Form>(bytes[0])) {
    case Form::kEmpty:
      runs = content.empty() ? base::Result<std::vector<Run>>(std::vector<Run>{})
                             : malformed("bytes after an empty set");
      break;
    case Form::kBitmap:
      runs = decode_bitmap(content, positions);
      break;
    case Form::kRuns:
      runs = decode_runs(content, positions);
      break;
  }
  if (!runs.ok()) {
    return runs.status();
  }
  return support_of(*runs, excluded);
}

}  // namespace spillway::codec::sketch
