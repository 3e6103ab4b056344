// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/rate_distortion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "codec/reference/top_k.h"
#include "codec/sample_data.h"
#include "collective/reduction.h"
#include "tools/bench/codec/best_rate.h"
#include "tools/bench/codec/coded_speed.h"
#include "tools/bench/codec/sum_speed.h"

namespace spillway::bench {
namespace {

constexpr std::array<unsigned, 9> kRatePlanes = {1, 2, 3, 4, 5, 6, 8, 12, 16};
constexpr std::array<unsigned, 4> kRateLevels = {2, 3, 4, 8};
constexpr std::array<unsigned, 11> kRateCoded = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
constexpr std::array<unsigned, 4> kRateSketch = {4, 6, 8, 10};
constexpr std::size_t kSingleCodes = 4;  // exact, fp16, blocks, top-k
// Values that a measurement processes in total, where repetitions can be chosen.
constexpr std::size_t kValuesPerRate = std::size_t{1} << 22;

CodecSpeed exact_speed(const SpeedRun& run) {
  const double rate = memcpy_rate(run.values, run.work, run.repetitions);
  return {"exact", "memcpy", rate, rate, 32.0};
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

// Measures codes one by one and collects the results.
class RateMeter {
 public:
  RateMeter(const RateInput& input, Progress& progress)
      : work_(input.gradient.size()),
        run_{codec::best_kernels(), input.gradient, work_,
             static_cast<int>(std::clamp<std::size_t>(
                 kValuesPerRate / std::max<std::size_t>(input.gradient.size(), 1), 3, 25))},
        progress_(progress) {}

  const SpeedRun& run() const { return run_; }
  void announce(const std::string& code) { progress_.step(code); }
  // Adds the code that was just run; work_ still holds its result.
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
    meter.announce(fmt::format("thc, {} bits", bits));
    meter.add("thc", levels_speed(meter.run(), fmt::format("thc-{}", bits),
                                  codec::choose_level_code(bits, kSumSpeedRanks)));
  }
}

void add_coded(RateMeter& meter, std::span<const float> previous) {
  for (const unsigned precision : kRateCoded) {
    meter.announce(fmt::format("coded, {} bits", precision));
    const CodedSpeed coded = coded_speed(meter.run(), precision, previous);
    meter.add("coded", coded.speed, coded_table_name(coded.table));
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
                             "as coded does.",
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
