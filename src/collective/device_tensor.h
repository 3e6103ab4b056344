// SPDX-License-Identifier: Apache-2.0
//
// A tensor that is in the memory of a device. It is coded there: a tolerant all-reduce of bit
// planes, or of levels that are added, then moves these between host and device, and values stay
// where they are. An exact one is copied to the host and back in pieces. Whoever describes the
// operation hands one in (Operation::device); gpu/cuda_tensor.h is NVIDIA's.
//
// With error feedback what the tensor is owed is in the device's memory, too: floats, one for each
// of its elements; `owed` are those of an extent, or null.
//
// What is said of an extent is said of the operation's input or output. Calls block until the
// device is done, may come from several threads at once, for extents that do not overlap, and give
// the bits that the CPU would.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/lanes.h"
#include "codec/level_encoder.h"
#include "codec/row.h"
#include "collective/report.h"
#include "collective/shards.h"
#include "packetize/kept_planes.h"

namespace spillway::collective {

// What came of one rank's contribution, and what of it counts.
struct DeviceContribution {
  const packetize::KeptPlanes* planes;
  std::vector<std::uint16_t> used;  // bytes by packet, no more than came
  std::uint64_t key;                // of its rotations
};

// A sum to be formed: the input's own part, then contributions in their order; each row times its
// factor.
struct DeviceSum {
  packetize::PacketPlan contribution_plan;
  std::vector<DeviceContribution> contributions;
  std::vector<float> factors;
  packetize::PacketPlan sum_plan;
  std::uint64_t key;
  float* owed = nullptr;  // joins the input's part, and is nothing afterwards
};

// A piece that becomes levels, side by side in the lanes of words (codec/lanes.h).
struct DeviceLevels {
  Extent extent;
  codec::RowLayout rows;
  std::uint64_t key;             // of rotations and draws
  const codec::LevelCode* code;  // whose levels are all integers of its range; outlives the call
  codec::LaneLayout lanes;
  unsigned rank;
};

// Sums of levels, and how they are to be read.
struct DeviceLevelSums {
  std::span<const std::uint64_t> words;    // in memory that make_words() gave
  std::span<const unsigned> contributors;  // by chunk
  std::span<const float> scales;           // by row, that ranks coded with; NaN: a row of NaN
  double weight = 1.0;                     // of the contributors' mean
  bool makes_up = true;                    // chunks of no contributor are made up for by their row
};

class DeviceTensor {
 public:
  virtual ~DeviceTensor() = default;

  // What its calls have taken so far, by the device's own clock; nothing where it has none.
  virtual PartTimes times() const { return {}; }

  // Of an exact operation: memory of the host for its input and its output, one where these are
  // one; and copies of so many bytes, as far from their beginnings, there and back.
  virtual std::uint8_t* host_input() = 0;
  virtual std::uint8_t* host_output() = 0;
  virtual base::Status bring(std::size_t offset, std::size_t bytes) = 0;
  virtual base::Status take_back(std::size_t offset, std::size_t bytes) = 0;

  // Room for a message, in memory of the host that the device reaches quickly.
  virtual base::Result<packetize::KeptPlanes> make_planes(const packetize::PacketPlan& plan) = 0;

  // Zeros, for what is owed of so many elements.
  virtual base::Result<std::shared_ptr<float[]>> make_residual(std::size_t count) = 0;

  // The input and what it is owed, which becomes all of it; nothing, where that is not finite.
  virtual base::Status encode(const Extent& extent, const packetize::PacketPlan& plan,
                              std::uint64_t key, float* owed, packetize::KeptPlanes& coded) = 0;
  // `used` bytes of each packet of what was sent are in the sum: takes them off what is owed.
  virtual base::Status settle(const Extent& extent, const packetize::PacketPlan& plan,
                              std::uint64_t key, const packetize::KeptPlanes& sent,
                              std::span<const std::uint16_t> used, float* owed) = 0;
  // The sum, coded; what that decodes to becomes the output.
  virtual base::Status add_up(const Extent& extent, const DeviceSum& sum,
                              packetize::KeptPlanes& coded) = 0;
  // Into the output.
  virtual base::Status decode(const Extent& extent, const packetize::PacketPlan& plan,
                              std::uint64_t key, const packetize::KeptPlanes& came) = 0;

  // Levels. Room for words, as make_planes().
  virtual base::Result<std::shared_ptr<std::uint64_t[]>> make_words(std::size_t count) = 0;
  // What each row of the input and what it is owed measures.
  virtual base::Status measure(const DeviceLevels& levels, const float* owed,
                               std::span<codec::RotatedRow> rows) = 0;
  // The same as words, at the shared scales by row; `clipped` coordinates were too large for them.
  virtual base::Status round(const DeviceLevels& levels, const float* owed,
                             std::span<const codec::RotatedRow> rows, std::span<const float> scales,
                             std::span<std::uint64_t> words, std::size_t& clipped) = 0;
  // Into the output.
  virtual base::Status decode_sums(const DeviceLevels& levels, const DeviceLevelSums& sums) = 0;
  // `sums` are of this rank's own words: the input joins what is owed, and they are taken off it.
  // Rows that were `not finite` are owed nothing.
  virtual base::Status settle_levels(const DeviceLevels& levels, const DeviceLevelSums& sums,
                                     const std::vector<bool>& not_finite, float* owed) = 0;
};

}  // namespace spillway::collective
