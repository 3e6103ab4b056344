// SPDX-License-Identifier: Apache-2.0
//
// Accuracy of the codecs: error by planes and by cut size, bias over seeds, and the encodings of
// the trimmable-gradients paper at given trim fractions. Error is NMSE, squared error over energy,
// averaged over messages with fresh rotations.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/bench/progress.h"

namespace spillway::bench {

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

// Error of the mean over ranks that all hold the sample, with an addable code.
struct SumError {
  std::string sample;
  std::string code;
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
