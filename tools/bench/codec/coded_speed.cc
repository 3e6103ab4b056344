// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/coded_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "codec/entropy/message.h"
#include "collective/coded/coded_content.h"
#include "collective/coded/coded_numbers.h"
#include "collective/coded/sketch_fold.h"
#include "tools/bench/codec/best_rate.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {
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
  return {coded_result(fmt::format("coded-{}", precision), run, bytes, encode, decode), table};
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

}  // namespace spillway::bench
