// SPDX-License-Identifier: Apache-2.0
//
// Accuracy of the codecs: gradients from files, one tensor sent through cut and lost packets, and
// the error of every codec on a set of tensors.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "codec/plane_code.h"
#include "packetize/depacketizer.h"
#include "packetize/packet_plan.h"
#include "tools/bench/progress.h"

namespace spillway::bench {

// ------------------------------------------------------------------ files of gradients

// Loads gradients from disk: a .f32 file holds little-endian floats and nothing else.
// experiments/gradients explains how to dump your own.

// Limit on the values read; a comparison or a benchmark needs no more.
inline constexpr std::size_t kMaxGradientValues = std::size_t{1} << 24;

base::Result<std::vector<float>> load_gradient(const std::string& path);

// The .f32 files of a folder, sorted by name; empty if there are none or the folder is missing.
std::vector<std::string> gradient_files(const std::string& folder);

// ------------------------------------------------------------------ one tensor through packets

// Sends one tensor through packets on a simulated fabric: the caller's function decides what
// happens to each packet, and the result is the error.

// How many bytes of packet `index` (a UDP payload of `size` bytes) arrive; 0 if it is lost.
using PacketFate = std::function<std::size_t(std::size_t index, std::size_t size)>;

struct TrialResult {
  double nmse = 0.0;
  packetize::DeliveryReport report;
};

// Sends `tensor` as message number `step`. Throws CommandError if no plan exists.
TrialResult run_trial(std::span<const float> tensor, const packetize::PacketLimits& fabric,
                      const packetize::Encoding& encoding, std::uint32_t step,
                      const PacketFate& fate);

// Fates for common cases. A cut leaves `frame_bytes` of the Ethernet frame.
PacketFate cut_all(const packetize::PacketLimits& fabric, std::size_t frame_bytes);
// Hits every packet independently with probability `share`: cuts it, or drops it if frame_bytes =
// 0.
PacketFate hit_some(const packetize::PacketLimits& fabric, double share, std::size_t frame_bytes,
                    std::uint64_t seed);

// ------------------------------------------------------------------ figures of all codecs

// Accuracy of the codecs: error by planes and by cut size, bias over seeds, and the encodings of
// the trimmable-gradients paper at given trim fractions. Error is NMSE, squared error over energy,
// averaged over messages with fresh rotations.

// Tensors to measure: three synthetic distributions and the real gradients in the folder. Gradients
// are cut to a power of two, so that no codec is favoured by its padding.
struct Sample {
  std::string name;
  std::vector<float> values;
};
std::vector<Sample> accuracy_samples(std::size_t values, const std::string& gradient_folder);

struct AccuracyOptions {
  int messages = 16;      // per error figure
  int bias_seeds = 1000;  // per bias figure
};

struct PlanesError {
  std::string sample;
  unsigned planes;
  double nmse;
  double eden_nmse;  // EDEN's, with as many bits on the same tensor; 0 if EDEN has no such code
};

struct CutError {
  std::string sample;
  unsigned mtu;
  unsigned cut_bytes;
  std::size_t values_per_packet;
  double planes;  // that survive per coordinate, on average
  double nmse;
};

struct BiasFigure {
  std::string sample;
  unsigned planes;
  double bias;        // norm of the bias over the norm, without sampling noise
  double mean_error;  // norm of the mean's error: bias and noise
};

// Error of the mean over ranks that all hold the sample, with a codec whose numbers can be added.
struct SumError {
  std::string sample;
  std::string codec;
  unsigned ranks;
  double bits_per_value;  // on the wire
  double nmse;
};

struct TrimFigure {
  std::string encoding;
  double trimmed_fraction;
  double nmse;
};

std::vector<PlanesError> measure_planes(const std::vector<Sample>& samples,
                                        const AccuracyOptions& options, Progress& progress);
std::vector<CutError> measure_cuts(const std::vector<Sample>& samples,
                                   const AccuracyOptions& options, Progress& progress);
std::vector<BiasFigure> measure_bias(const std::vector<Sample>& samples,
                                     const AccuracyOptions& options, Progress& progress);
std::vector<SumError> measure_sums(const std::vector<Sample>& samples,
                                   const AccuracyOptions& options, Progress& progress);
std::vector<TrimFigure> measure_paper_encodings(const AccuracyOptions& options, Progress& progress);

}  // namespace spillway::bench
