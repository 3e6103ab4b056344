// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "codec/entropy/float_coder.h"
#include "codec/entropy/message.h"
#include "codec/reference/reference_codec.h"
#include "codec/sample_data.h"
#include "collective/entropy/entropy_content.h"
#include "collective/entropy/sketch_content.h"
#include "collective/reduction.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {

// ------------------------------------------------------------------ entropy-coded numbers

namespace {

namespace entropy = codec::entropy;

using Numbers = std::vector<std::int32_t>;

// Sending a table along is worth it if it shortens the message by more than 1/kTableWorth.
constexpr std::size_t kTableWorth = 32;
constexpr std::uint64_t kSketchSeed = 1;

collective::NumberCode round_all(std::span<const float> values, unsigned precision,
                                 Numbers& numbers) {
  const collective::NumberCode code(precision, collective::measure_magnitudes(values).largest);
  numbers.resize(values.size());
  constexpr std::size_t kBlock = collective::BlockGrid::kMostValues;
  for (std::size_t first = 0; first < values.size(); first += kBlock) {
    const std::size_t count = std::min(kBlock, values.size() - first);
    code.round_to_nearest(values.subspan(first, count), std::span(numbers).subspan(first, count));
  }
  return code;
}

Numbers rounded(std::span<const float> values, unsigned precision) {
  Numbers numbers;
  round_all(values, precision, numbers);
  return numbers;
}

// Alphabet for one rank's own numbers.
entropy::Alphabet own_alphabet(unsigned precision, std::size_t count) {
  return collective::alphabet_of(collective::NumberCode(precision, 1.0F).largest_number(), 1,
                                 count);
}

// Codes numbers into one message and back.
class NumberMessage {
 public:
  explicit NumberMessage(entropy::Alphabet alphabet) : alphabet_(alphabet) {}

  // From now on codes with the table of numbers like these.
  void learn(std::span<const std::int32_t> numbers) {
    entropy::Histogram counts(alphabet_);
    counts.add(numbers);
    const auto table = entropy::ProbabilityTable::of_counts(counts);
    encode_table_.emplace(table);
    decode_table_.emplace(table);
  }
  void forget() {
    encode_table_.reset();
    decode_table_.reset();
  }

  std::size_t encode(std::span<const std::int32_t> numbers) {
    bytes_.resize(std::max(bytes_.size(), entropy::max_message_bytes(numbers.size())));
    length_ = value_or_throw(entropy::encode_message(
        encoder_, {0, 1}, numbers, alphabet_, encode_table_ ? &*encode_table_ : nullptr, bytes_));
    return length_;
  }
  void decode(std::span<std::int32_t> numbers) {
    throw_unless_ok(entropy::decode_message(decoder_, base::ByteView(bytes_).first(length_),
                                            decode_table_ ? &*decode_table_ : nullptr, numbers));
  }

 private:
  entropy::Alphabet alphabet_;
  entropy::BlockEncoder encoder_;
  entropy::BlockDecoder decoder_;
  std::optional<entropy::EncodeTable> encode_table_;  // both set or both empty
  std::optional<entropy::DecodeTable> decode_table_;
  std::vector<std::uint8_t> bytes_;
  std::size_t length_ = 0;
};

CodedTable choose_table(NumberMessage& message, const Numbers& numbers, const Numbers& previous) {
  if (previous.empty()) {
    return CodedTable::kOwn;
  }
  const std::size_t own = message.encode(numbers);
  message.learn(previous);
  const std::size_t known = message.encode(numbers);
  if (own + known / kTableWorth < known) {
    message.forget();
    return CodedTable::kOwn;
  }
  return CodedTable::kLastStep;
}

// Codes the sections of a fold as one message each, because their contents differ.
class FoldMessages {
 public:
  FoldMessages(const collective::SketchFold& fold, unsigned precision)
      : lengths_(fold.lengths()),
        messages_{NumberMessage(own_alphabet(precision, fold.length())),
                  NumberMessage(entropy::Alphabet::ranges()),
                  NumberMessage(collective::alphabet_of(1, 1, fold.length()))} {}

  std::size_t encode(std::span<const std::int32_t> folded) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      bytes += messages_[i].encode(folded.first(lengths_[i]));
      folded = folded.subspan(lengths_[i]);
    }
    return bytes;
  }
  void decode(std::span<std::int32_t> folded) {
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      messages_[i].decode(folded.first(lengths_[i]));
      folded = folded.subspan(lengths_[i]);
    }
  }

 private:
  std::array<std::size_t, collective::kFoldSections> lengths_;
  std::array<NumberMessage, collective::kFoldSections> messages_;
};

// A code that has seen `previous` as a dense step.
codec::sketch::SparseCode sketch_after(const Numbers& previous) {
  auto code = value_or_throw(codec::sketch::SparseCode::make(previous.size(), {}));
  const collective::SketchFold first(code, kSketchSeed);
  const auto sum = value_or_throw(first.unfold(value_or_throw(first.fold(previous))));
  code.advance(sum);
  return code;
}

CodecSpeed coded_result(const std::string& name, const SpeedRun& run, std::size_t bytes,
                        double encode, double decode) {
  return {name, std::string(entropy::best_rans_kernels().name), encode, decode,
          8.0 * static_cast<double>(bytes) / static_cast<double>(run.values.size())};
}

}  // namespace

const char* coded_table_name(CodedTable table) {
  return table == CodedTable::kOwn ? "own, sent along" : "last step's";
}

CodedSpeed coded_speed(const SpeedRun& run, unsigned precision, std::span<const float> previous) {
  Numbers numbers = rounded(run.values, precision);
  NumberMessage message(own_alphabet(precision, numbers.size()));
  const CodedTable table = choose_table(message, numbers, rounded(previous, precision));
  collective::NumberCode code;
  std::size_t bytes = 0;
  const double encode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    code = round_all(run.values, precision, numbers);
    bytes = message.encode(numbers);
  });
  const double decode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    message.decode(numbers);
    code.values_of(numbers, 1.0, run.work);
    keep(run.work.data());
  });
  return {coded_result(fmt::format("entropy-{}", precision), run, bytes, encode, decode), table};
}

std::optional<CodedSpeed> sketch_speed(const SpeedRun& run, unsigned precision,
                                       std::span<const float> previous) {
  const codec::sketch::SparseCode sketch = sketch_after(rounded(previous, precision));
  const collective::SketchFold fold(sketch, kSketchSeed + 1);
  if (fold.is_dense()) {
    return std::nullopt;
  }
  FoldMessages messages(fold, precision);
  Numbers numbers;
  Numbers folded(fold.length());
  collective::NumberCode code;
  std::size_t bytes = 0;
  const double encode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    code = round_all(run.values, precision, numbers);
    bytes = messages.encode(value_or_throw(fold.fold(numbers)));
  });
  const double decode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    messages.decode(folded);
    code.values_of(value_or_throw(fold.unfold(folded)).values, 1.0, run.work);
    keep(run.work.data());
  });
  return CodedSpeed{coded_result(fmt::format("sketch-{}", precision), run, bytes, encode, decode),
                    CodedTable::kOwn};
}

// ------------------------------------------------------------------ bits against error

namespace {

constexpr std::array<unsigned, 9> kRatePlanes = {1, 2, 3, 4, 5, 6, 8, 12, 16};
constexpr std::array<unsigned, 4> kRateLevels = {2, 3, 4, 8};
constexpr std::array<unsigned, 11> kRateCoded = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
constexpr std::array<unsigned, 4> kRateSketch = {4, 6, 8, 10};
constexpr std::size_t kSingleCodes = 5;  // exact as values and as code, fp16, blocks, top-k
// Values that a measurement processes in total, where repetitions can be chosen.
constexpr std::size_t kValuesPerRate = std::size_t{1} << 22;

CodecSpeed exact_speed(const SpeedRun& run) {
  const double rate = memcpy_rate(run.values, run.work, run.repetitions);
  return {"exact", "memcpy", rate, rate, 32.0};
}

// As exact messages travel where links are slower than the coder.
CodecSpeed exact_code_speed(const SpeedRun& run) {
  constexpr auto kWidth = entropy::FloatWidth::kFour;
  const base::ByteView values(reinterpret_cast<const std::uint8_t*>(run.values.data()),
                              run.values.size_bytes());
  std::vector<std::uint8_t> code(values.size());
  entropy::FloatEncoder encoder;
  std::optional<std::size_t> bytes;
  const double encode = best_rate(values.size(), run.repetitions, kNoPreparation,
                                  [&] { bytes = encoder.encode(values, kWidth, code); });
  if (!bytes) {
    return exact_speed(run);  // it does not shrink
  }
  entropy::FloatDecoder decoder;
  const base::MutableByteView decoded(reinterpret_cast<std::uint8_t*>(run.work.data()),
                                      run.work.size_bytes());
  const double decode = best_rate(values.size(), run.repetitions, kNoPreparation, [&] {
    throw_unless_ok(decoder.decode(base::ByteView(code).first(*bytes), kWidth, decoded));
  });
  return {"exact, coded", std::string(entropy::best_rans_kernels().name), encode, decode,
          8.0 * static_cast<double>(*bytes) / static_cast<double>(run.values.size())};
}

// Converts as collectives convert float16 tensors.
CodecSpeed half_speed(const SpeedRun& run) {
  constexpr auto kType = collective::DataType::kFloat16;
  const std::size_t count = run.values.size();
  std::vector<std::uint8_t> sent(count * sizeof(std::uint16_t));
  const double encode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    collective::convert_from_float(kType, run.values.data(), count, sent.data());
    keep(sent.data());
  });
  const double decode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    collective::convert_to_float(kType, sent.data(), count, run.work.data());
    keep(run.work.data());
  });
  return {"fp16", "", encode, decode, 16.0};
}

// Measures codecs one by one and collects the results.
class RateMeter {
 public:
  RateMeter(const RateInput& input, Progress& progress)
      : work_(input.gradient.size()),
        run_{codec::best_kernels(), input.gradient, work_,
             static_cast<int>(std::clamp<std::size_t>(
                 kValuesPerRate / std::max<std::size_t>(input.gradient.size(), 1), 3, 25))},
        progress_(progress) {}

  const SpeedRun& run() const { return run_; }
  void announce(const std::string& codec) { progress_.step(codec); }
  // Adds the codec that was just run; work_ still holds its result.
  void add(const std::string& family, CodecSpeed speed, std::string table = {}) {
    points_.push_back(
        {family, std::move(speed), codec::nmse(work_, run_.values), std::move(table)});
  }
  std::vector<RatePoint> take() { return std::move(points_); }

 private:
  std::vector<float> work_;
  SpeedRun run_;
  Progress& progress_;
  std::vector<RatePoint> points_;
};

void add_planes(RateMeter& meter) {
  for (const unsigned precision : kRatePlanes) {
    meter.announce(fmt::format("planes, {} bits", precision));
    meter.add("planes", planes_speed(meter.run(), precision));
  }
}

void add_levels(RateMeter& meter) {
  for (const unsigned bits : kRateLevels) {
    meter.announce(fmt::format("levels, {} bits", bits));
    meter.add("levels", levels_speed(meter.run(), fmt::format("levels-{}", bits),
                                     codec::choose_level_code(bits, kSumSpeedRanks)));
  }
}

void add_coded(RateMeter& meter, std::span<const float> previous) {
  for (const unsigned precision : kRateCoded) {
    meter.announce(fmt::format("entropy, {} bits", precision));
    const CodedSpeed coded = coded_speed(meter.run(), precision, previous);
    meter.add("entropy", coded.speed, coded_table_name(coded.table));
  }
}

// Returns the reason if sketches are missing, at all or some precisions.
std::string add_sketches(RateMeter& meter, std::span<const float> previous) {
  std::string dense;
  for (const unsigned precision : kRateSketch) {
    meter.announce(fmt::format("sketch, {} bits", precision));
    if (previous.empty()) {
      continue;
    }
    if (const auto sketch = sketch_speed(meter.run(), precision, previous)) {
      meter.add("sketch", sketch->speed, coded_table_name(sketch->table));
    } else {
      dense += fmt::format("{}{}", dense.empty() ? "" : ", ", precision);
    }
  }
  if (previous.empty()) {
    return "No sketch: it needs the step before to predict where values are zero.";
  }
  return dense.empty() ? ""
                       : fmt::format(
                             "No sketch at {} bits: too few numbers are zero, so the step would go "
                             "as entropy does.",
                             dense);
}

}  // namespace

std::size_t rate_steps() {
  return kSingleCodes + kRatePlanes.size() + kRateLevels.size() + kRateCoded.size() +
         kRateSketch.size();
}

RateDistortion measure_rates(const RateInput& input, Progress& progress) {
  SPILLWAY_CHECK(input.previous.empty() || input.previous.size() == input.gradient.size());
  RateMeter meter(input, progress);
  RateDistortion result;
  meter.announce("exact, coded");
  meter.add("exact", exact_code_speed(meter.run()));
  meter.announce("exact");
  meter.add("exact", exact_speed(meter.run()));
  meter.announce("fp16");
  meter.add("fp16", half_speed(meter.run()));
  add_planes(meter);
  add_levels(meter);
  meter.announce("blocks");
  meter.add("blocks", blocks_speed(meter.run(), "blocks"));
  add_coded(meter, input.previous);
  result.left_out = add_sketches(meter, input.previous);
  meter.announce("top-k");
  meter.add("top-k", reference_speed(meter.run(), codec::reference::TopKCodec()));
  result.points = meter.take();
  return result;
}

}  // namespace spillway::bench
