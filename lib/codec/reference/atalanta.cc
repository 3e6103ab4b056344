// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/integer_coder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "codec/entropy/alphabet.h"

namespace spillway::codec::reference {
namespace {

constexpr std::uint32_t kCountTotal = 1U << kAtalantaBits;
constexpr std::size_t kMaxCuts = 4096;
constexpr std::uint32_t kHalf = 0x8000;
constexpr std::uint32_t kQuarter = 0x4000;
enum class Form : std::uint8_t { kPacked = 0, kCoded = 1 };

// Possible starts of ranges: the observed interval in equal steps, plus one cell on either side for
// values to come.
struct Cells {
  std::vector<std::int64_t> starts;  // start of each cell, and the end of the last
  std::vector<double> below;  // number of values below each start; the last entry is the total

  std::size_t count() const { return starts.size() - 1; }
  std::int64_t width(std::size_t first, std::size_t last) const {
    return starts[last] - starts[first];
  }
};

Cells count_cells(std::span<const std::int32_t> values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const std::int64_t smallest = *low;
  const std::int64_t end = std::int64_t{*high} + 1;
  const auto most = static_cast<std::int64_t>(kMaxCuts);
  const std::int64_t step = (end - smallest + most - 1) / most;
  const std::int64_t reach =
      std::min<std::int64_t>(2 * std::max({-smallest, end, std::int64_t{1}}), INT32_MAX);
  Cells cells;
  if (-reach < smallest) {
    cells.starts.push_back(-reach);
  }
  const std::size_t first_seen = cells.starts.size();
  for (std::int64_t start = smallest; start < end; start += step) {
    cells.starts.push_back(start);
  }
  cells.starts.push_back(end);
  if (end < reach) {
    cells.starts.push_back(reach);
  }
  cells.below.assign(cells.starts.size(), 0.0);
  for (const std::int32_t value : values) {
    cells.below[first_seen + static_cast<std::size_t>((value - smallest) / step) + 1] += 1.0;
  }
  for (std::size_t i = 1; i < cells.below.size(); ++i) {
    cells.below[i] += cells.below[i - 1];
  }
  return cells;
}

unsigned offset_bits(std::int64_t width) {
  return static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(width - 1)));
}

// Bits for the values of cells first .. last - 1 as one range.
double range_cost(const Cells& cells, std::size_t first, std::size_t last) {
  const double count = cells.below[last] - cells.below[first];
  const double floor = cells.below.back() / kCountTotal;  // every range has at least one count
  const double bits = std::log2(cells.below.back() / std::max(count, floor));
  return count * (bits + offset_bits(cells.width(first, last)));
}

// The first cells of the cheapest ranges: sixteen, or one per cell if there are fewer.
std::vector<std::size_t> best_cuts(const Cells& cells) {
  const std::size_t count = cells.count();
  const std::size_t ranges = std::min(kAtalantaRanges, count);
  struct Best {
    double cost = std::numeric_limits<double>::infinity();
    std::uint16_t from = 0;
  };
  // best[last][n]: the first `last` cells in n ranges.
  std::vector<std::array<Best, kAtalantaRanges + 1>> best(count + 1);
  best[0][0].cost = 0.0;
  for (std::size_t last = 1; last <= count; ++last) {
    for (std::size_t first = 0; first < last; ++first) {
      const double cost = range_cost(cells, first, last);
      for (std::size_t n = 1; n <= ranges; ++n) {
        const double candidate = best[first][n - 1].cost + cost;
        if (candidate < best[last][n].cost) {
          best[last][n] = {candidate, static_cast<std::uint16_t>(first)};
        }
      }
    }
  }
  std::vector<std::size_t> cuts(ranges);
  for (std::size_t n = ranges, last = count; n > 0; --n) {
    last = best[last][n].from;
    cuts[n - 1] = last;
  }
  return cuts;
}

// Ten-bit counts, each at least one; the largest absorbs the rounding remainder.
void set_counts(std::span<AtalantaRange> ranges, const std::vector<double>& values) {
  double total = 0.0;
  for (const double value : values) {
    total += value;
  }
  std::vector<std::uint32_t> counts;
  std::uint32_t sum = 0;
  for (const double value : values) {
    counts.push_back(
        std::max(1U, static_cast<std::uint32_t>(std::lround(value * kCountTotal / total))));
    sum += counts.back();
  }
  *std::max_element(counts.begin(), counts.end()) += kCountTotal - sum;
  std::uint32_t low = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    ranges[i].low = low;
    low += counts[i];
    ranges[i].high = low;
  }
}

// Both ends of the 16-bit interval: narrowed by each range, and doubled while the leading bits are
// settled.
struct Interval {
  std::uint32_t low = 0;
  std::uint32_t high = 0xFFFF;

  void narrow(const AtalantaRange& range) {
    const std::uint32_t size = high - low + 1;
    high = low + (size * range.high >> kAtalantaBits) - 1;
    low += size * range.low >> kAtalantaBits;
  }
  void double_from(std::uint32_t base) {
    low = (low - base) << 1;
    high = (high - base) << 1 | 1U;
  }
  bool is_in_middle() const { return low >= kQuarter && high < kHalf + kQuarter; }
  bool has_first_bit() const { return high < kHalf || low >= kHalf; }
  std::uint32_t first_bit() const { return low >= kHalf ? 1 : 0; }
};

class RangeWriter {
 public:
  explicit RangeWriter(std::uint8_t* to) : bits_(to) {}

  void put(const AtalantaRange& range) {
    interval_.narrow(range);
    for (;;) {
      if (interval_.has_first_bit()) {
        const std::uint32_t bit = interval_.first_bit();
        emit(bit);
        interval_.double_from(bit * kHalf);
      } else if (interval_.is_in_middle()) {
        ++pending_;
        interval_.double_from(kQuarter);
      } else {
        return;
      }
    }
  }

  std::size_t finish() {
    ++pending_;
    emit(interval_.low < kQuarter ? 0 : 1);
    return bits_.bytes();
  }

 private:
  void emit(std::uint32_t bit) {
    bits_.put(bit, 1);
    for (; pending_ > 0; --pending_) {
      bits_.put(1 - bit, 1);
    }
  }

  entropy::BitWriter bits_;
  Interval interval_;
  std::size_t pending_ = 0;
};

class RangeReader {
 public:
  explicit RangeReader(base::ByteView bytes) : bits_(bytes) {
    for (int i = 0; i < 16; ++i) {
      code_ = code_ << 1 | bits_.get(1);
    }
  }

  std::size_t get(std::span<const AtalantaRange> ranges) {
    const std::uint32_t size = interval_.high - interval_.low + 1;
    const std::uint32_t scaled = ((code_ - interval_.low + 1) * kCountTotal - 1) / size;
    std::size_t row = 0;
    while (row + 1 < ranges.size() && scaled >= ranges[row].high) {
      ++row;
    }
    interval_.narrow(ranges[row]);
    for (;;) {
      std::uint32_t base = 0;
      if (interval_.has_first_bit()) {
        base = interval_.first_bit() * kHalf;
      } else if (interval_.is_in_middle()) {
        base = kQuarter;
      } else {
        return row;
      }
      interval_.double_from(base);
      code_ = ((code_ - base) << 1 | bits_.get(1)) & 0xFFFFU;
    }
  }

 private:
  entropy::BitReader bits_;
  Interval interval_;
  std::uint32_t code_ = 0;
};

}  // namespace

void AtalantaCoder::learn(std::span<const std::int32_t> values) {
  used_ = 0;
  if (values.empty()) {
    return;
  }
  const Cells cells = count_cells(values);
  const std::vector<std::size_t> cuts = best_cuts(cells);
  std::vector<double> counts;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const std::size_t end = i + 1 < cuts.size() ? cuts[i + 1] : cells.count();
    counts.push_back(cells.below[end] - cells.below[cuts[i]]);
    ranges_[i].first = static_cast<std::int32_t>(cells.starts[cuts[i]]);
    ranges_[i].offset_bits = offset_bits(cells.width(cuts[i], end));
  }
  used_ = cuts.size();
  smallest_ = ranges_[0].first;
  const std::int64_t room = std::int64_t{1} << ranges_[used_ - 1].offset_bits;
  largest_ = static_cast<std::int32_t>(
      std::min<std::int64_t>(ranges_[used_ - 1].first + room - 1, INT32_MAX));
  set_counts({ranges_.data(), used_}, counts);
}

std::size_t AtalantaCoder::range_of(std::int32_t value) const {
  std::size_t row = used_ - 1;
  while (ranges_[row].first > value) {
    --row;
  }
  return row;
}

std::vector<std::uint8_t> AtalantaCoder::encode(std::span<const std::int32_t> values) {
  const bool is_covered = used_ > 0 && std::all_of(values.begin(), values.end(), [&](auto value) {
                            return value >= smallest_ && value <= largest_;
                          });
  if (!is_covered) {
    std::vector<std::uint8_t> bytes = packed_.encode(values);
    bytes.insert(bytes.begin(), static_cast<std::uint8_t>(Form::kPacked));
    return bytes;
  }
  // A range takes at most ten bits, and slightly more for rounding.
  std::vector<std::uint8_t> code(values.size() * 2 + 16 + entropy::kBitSlack);
  std::vector<std::uint8_t> offsets(values.size() * 4 + entropy::kBitSlack);
  RangeWriter coder(code.data());
  entropy::BitWriter raw(offsets.data());
  for (const std::int32_t value : values) {
    const AtalantaRange& range = ranges_[range_of(value)];
    coder.put(range);
    raw.put(static_cast<std::uint32_t>(value) - static_cast<std::uint32_t>(range.first),
            range.offset_bits);
  }
  const std::size_t code_bytes = coder.finish();
  std::vector<std::uint8_t> bytes(1 + 4 + code_bytes + raw.bytes());
  base::ByteWriter writer(bytes);
  writer.write(static_cast<std::uint8_t>(Form::kCoded));
  writer.write(static_cast<std::uint32_t>(code_bytes));
  writer.append({code.data(), code_bytes});
  writer.append({offsets.data(), raw.bytes()});
  return bytes;
}

base::Status AtalantaCoder::decode(base::ByteView bytes, std::span<std::int32_t> values) {
  base::ByteReader reader(bytes);
  const auto form = reader.read<std::uint8_t>();
  if (reader.ok() && form == static_cast<std::uint8_t>(Form::kPacked)) {
    return packed_.decode(bytes.subspan(1), values);
  }
  const auto code_bytes = reader.read<std::uint32_t>();
  const base::ByteView code = reader.take(code_bytes);
  if (!reader.ok() || form != static_cast<std::uint8_t>(Form::kCoded) || used_ == 0) {
    return {base::StatusCode::kMalformed,
            "bytes that no atalanta encoder writes: request them again"};
  }
  RangeReader coder(code);
  entropy::BitReader raw(reader.take(reader.remaining()));
  for (std::int32_t& value : values) {
    const AtalantaRange& range = ranges_[coder.get({ranges_.data(), used_})];
    value = static_cast<std::int32_t>(static_cast<std::uint32_t>(range.first) +
                                      raw.get(range.offset_bits));
  }
  return raw.is_at_end() ? base::Status()
                         : base::Status(base::StatusCode::kMalformed,
                                        "an atalanta message has the wrong number of offsets");
}

}  // namespace spillway::codec::reference
