// SPDX-License-Identifier: Apache-2.0
//
// A tensor in the memory of a device. Values stay there and are coded there: a tolerant all-reduce
// moves only bit planes, or levels that are added, between host and device. An exact one copies the
// tensor to the host and back in pieces. The caller that describes the operation supplies the
// tensor (Operation::device); gpu/cuda_tensor.h implements it for NVIDIA.
//
// With error feedback the residual is in the device's memory, too: one float for each element.
// `residual` points at the residual of an extent, or is null.
//
// An extent refers to the operation's input or output. Calls block until the device is done. They
// may come from several threads at once, for extents that do not overlap, and give the same bits as
// the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/lanes.h"
#include "codec/level_code.h"
#include "codec/row_codec.h"
#include "collective/report.h"
#include "collective/shards.h"
#include "packetize/packet_plan.h"

namespace spillway::collective {

// One rank's contribution, and how much of it counts.
struct DeviceContribution {
  const packetize::KeptPlanes* planes;
  std::vector<std::uint16_t> used;  // bytes per packet, at most what came
  std::uint64_t key;                // of its rotations
};

// A sum to be formed: the input's own part, then the contributions in order; each row is multiplied
// by its factor.
struct DeviceSum {
  packetize::PacketPlan contribution_plan;
  std::vector<DeviceContribution> contributions;
  std::vector<float> factors;
  packetize::PacketPlan sum_plan;
  std::uint64_t key;
  float* residual = nullptr;  // added to the input's part, and zero afterwards
};

// A piece that is coded as levels, side by side in the lanes of words (codec/lanes.h).
struct DeviceLevels {
  Extent extent;
  codec::RowLayout rows;
  std::uint64_t key;             // of rotations and draws
  const codec::LevelCode* code;  // its levels are all integers of its range; outlives the call
  codec::LaneLayout lanes;
  unsigned rank;
};

// Sums of levels, and how to read them.
struct DeviceLevelSums {
  std::span<const std::uint64_t> words;    // in memory that make_words() gave
  std::span<const unsigned> contributors;  // by chunk
  std::span<const float> scales;           // by row, as ranks coded; NaN: a row of NaN
  double weight = 1.0;                     // of the contributors' mean
  bool makes_up = true;  // the row's other chunks stand for those without contributors
};

class DeviceTensor {
 public:
  virtual ~DeviceTensor() = default;

  // How long its calls took so far, by the device's own clock; zeros where it has none.
  virtual PartTimes times() const { return {}; }

  // For exact operations: host memory for the input and the output, one where these are one.
  // copy_to_host() and copy_to_device() copy `bytes` bytes at `offset` to the host and back.
  virtual std::uint8_t* host_input() = 0;
  virtual std::uint8_t* host_output() = 0;
  virtual base::Status copy_to_host(std::size_t offset, std::size_t bytes) = 0;
  virtual base::Status copy_to_device(std::size_t offset, std::size_t bytes) = 0;

  // Room for a message, in host memory that the device reaches quickly.
  virtual base::Result<packetize::KeptPlanes> make_planes(const packetize::PacketPlan& plan) = 0;

  // A residual of zeros, for so many elements.
  virtual base::Result<std::shared_ptr<float[]>> make_residual(std::size_t count) = 0;

  // Codes the input plus its residual. `residual` becomes all of that; zero where it is not finite.
  virtual base::Status encode(const Extent& extent, const packetize::PacketPlan& plan,
                              std::uint64_t key, float* residual, packetize::KeptPlanes& coded) = 0;
  // `used` bytes of each sent packet are in the sum: takes them off `residual`.
  virtual base::Status settle(const Extent& extent, const packetize::PacketPlan& plan,
                              std::uint64_t key, const packetize::KeptPlanes& sent,
                              std::span<const std::uint16_t> used, float* residual) = 0;
  // Forms the sum and codes it; the output becomes what that decodes to.
  virtual base::Status add_up(const Extent& extent, const DeviceSum& sum,
                              packetize::KeptPlanes& coded) = 0;
  // Decodes into the output.
  virtual base::Status decode(const Extent& extent, const packetize::PacketPlan& plan,
                              std::uint64_t key, const packetize::KeptPlanes& came) = 0;

  // For levels: room for words, as make_planes().
  virtual base::Result<std::shared_ptr<std::uint64_t[]>> make_words(std::size_t count) = 0;
  // Measures each row of the input plus its residual.
  virtual base::Status measure(const DeviceLevels& levels, const float* residual,
                               std::span<codec::RotatedRow> rows) = 0;
  // Codes the same rows as words, at the shared scale of each row. Counts coordinates beyond it.
  virtual base::Status round(const DeviceLevels& levels, const float* residual,
                             std::span<const codec::RotatedRow> rows, std::span<const float> scales,
                             std::span<std::uint64_t> words, std::size_t& clipped) = 0;
  // Decodes into the output.
  virtual base::Status decode_sums(const DeviceLevels& levels, const DeviceLevelSums& sums) = 0;
  // `sums` hold this rank's own words: adds the input to `residual` and takes the words off it.
  // Rows in `not_finite` are residual nothing.
  virtual base::Status settle_levels(const DeviceLevels& levels, const DeviceLevelSums& sums,
                                     const std::vector<bool>& not_finite, float* residual) = 0;
};

}  // namespace spillway::collective
