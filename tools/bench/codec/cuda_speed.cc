// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "codec/sample_data.h"
#include "gpu/device_coder.h"
#include "packetize/packet_plan.h"

namespace spillway::bench {
namespace {

constexpr std::uint64_t kKey = 0x5350494C4C574159;
// Bytes of all tensors of a round: several times any cache.
constexpr std::size_t kRoundBytes = std::size_t{1} << 30;
constexpr std::size_t kMaxTensors = 16;
constexpr std::size_t kSampleValues = std::size_t{1} << 20;

// A tensor on the device, room for its copy, and its message.
struct TensorSet {
  gpu::DeviceMemory values;
  gpu::DeviceMemory result;
  gpu::DeviceMemory payload;
  gpu::DeviceMemory rows;
  gpu::DeviceMemory received;

  gpu::DeviceMessage message() const { return {payload.get(), rows.get(), received.get()}; }
};

class Rig {
 public:
  Rig(gpu::PlaneCoder coder, gpu::OwnedStream stream, gpu::OwnedEvent begin, gpu::OwnedEvent end,
      const CudaSpeedOptions& options)
      : coder_(std::move(coder)),
        stream_(std::move(stream)),
        begin_(std::move(begin)),
        end_(std::move(end)),
        options_(options) {}

  base::Status measure(std::size_t tensor_bytes, std::vector<CudaSpeed>& speeds);

 private:
  using Work = std::function<base::Status(const TensorSet&)>;

  base::Status make_sets(std::size_t tensor_bytes);
  base::Result<gpu::DeviceMemory> memory(std::size_t bytes) const {
    return gpu::DeviceMemory::make(coder_.device(), bytes);
  }
  base::Status prepare(const packetize::PacketPlan& plan);
  base::Status run_batch(const Work& work);
  // Bytes of the tensor per nanosecond; 0 after an error, which is kept in error_.
  double rate(std::size_t tensor_bytes, const Work& work);
  void measure_rotations(std::size_t tensor_bytes, double copy, std::vector<CudaSpeed>& speeds);
  base::Status copy_in(const gpu::DeviceMemory& to, const void* from) {
    return stream_.copy_to_device(to.get(), from, to.size());
  }
  base::Status prepare(const collective::DeviceLevels& levels);
  void measure_levels(std::size_t tensor_bytes, double copy, std::vector<CudaSpeed>& speeds);
  void measure_planes(std::size_t tensor_bytes, double copy, unsigned precision,
                      gpu::Element element, unsigned row_log2, std::vector<CudaSpeed>& speeds);

  gpu::PlaneCoder coder_;
  gpu::OwnedStream stream_;
  gpu::OwnedEvent begin_;
  gpu::OwnedEvent end_;
  CudaSpeedOptions options_;
  std::vector<TensorSet> sets_;
  gpu::DeviceMemory numbers_;   // levels before packing
  gpu::DeviceMemory measures_;  // measurements of their rows
  base::Status error_;
};

base::Status Rig::make_sets(std::size_t tensor_bytes) {
  sets_.clear();
  const std::size_t count = std::clamp<std::size_t>(kRoundBytes / tensor_bytes, 2, kMaxTensors);
  const std::vector<float> sample = codec::gaussian_values(kSampleValues, 1);
  for (std::size_t i = 0; i < count; ++i) {
    TensorSet set;
    for (gpu::DeviceMemory* part : {&set.values, &set.result}) {
      base::Result<gpu::DeviceMemory> made = memory(tensor_bytes);
      if (!made.ok()) {
        return made.status();
      }
      *part = std::move(made).value();
    }
    const std::size_t sample_bytes = kSampleValues * sizeof(float);
    for (std::size_t at = 0; at < tensor_bytes; at += sample_bytes) {
      const base::Status status = stream_.copy_to_device(set.values.get() + at, sample.data(),
                                                         std::min(sample_bytes, tensor_bytes - at));
      if (!status.ok()) {
        return status;
      }
    }
    sets_.push_back(std::move(set));
  }
  return stream_.wait();
}

// Allocates memory for messages of this plan, with all packets marked as received.
base::Status Rig::prepare(const packetize::PacketPlan& plan) {
  std::vector<std::uint16_t> received(plan.packet_count());
  for (std::size_t packet = 0; packet < received.size(); ++packet) {
    received[packet] = static_cast<std::uint16_t>(plan.place(packet).count / 8 * plan.planes());
  }
  for (TensorSet& set : sets_) {
    const std::pair<gpu::DeviceMemory*, std::size_t> parts[] = {
        {&set.payload, packetize::plane_memory_bytes(plan)},
        {&set.rows, plan.layout().row_count() * sizeof(gpu::RowCode)},
        {&set.received, received.size() * sizeof received[0]}};
    for (const auto& part : parts) {
      base::Result<gpu::DeviceMemory> made = memory(part.second);
      if (!made.ok()) {
        return made.status();
      }
      *part.first = std::move(made).value();
    }
    const base::Status status =
        stream_.copy_to_device(set.received.get(), received.data(), set.received.size());
    if (!status.ok()) {
      return status;
    }
  }
  return stream_.wait();
}

// Allocates memory for words of levels and for the rows and chunks passed to kernels. All scales
// are alike, and all ranks are in every sum.
base::Status Rig::prepare(const collective::DeviceLevels& levels) {
  const std::vector<codec::RotatedRow> measured(levels.rows.row_count(), {1.0F, 0});
  const std::vector<float> scales(levels.rows.row_count(), 1.0F);
  const std::vector<unsigned> contributors(gpu::words_of(levels) / codec::kChunkWords, 1);
  const std::vector<gpu::LevelRow> rows = gpu::rounded_rows(levels, measured, scales);
  const std::vector<gpu::ChunkShare> chunks =
      gpu::chunk_shares(levels, {.words = {}, .contributors = contributors, .scales = scales});
  const auto take = [this](gpu::DeviceMemory& part, std::size_t bytes) -> base::Status {
    base::Result<gpu::DeviceMemory> made = memory(bytes);
    part = made.ok() ? std::move(made).value() : gpu::DeviceMemory();
    return made.status();
  };
  base::Status status = take(numbers_, gpu::coordinates_of(levels.rows) * 2);
  status = status.ok() ? take(measures_, rows.size() * sizeof(gpu::RowMeasure)) : status;
  for (TensorSet& set : sets_) {
    status = status.ok() ? take(set.payload, gpu::words_of(levels) * 8) : status;
    status = status.ok() ? take(set.rows, rows.size() * sizeof rows[0]) : status;
    status = status.ok() ? take(set.received, chunks.size() * sizeof chunks[0]) : status;
    status = status.ok() ? copy_in(set.rows, rows.data()) : status;
    status = status.ok() ? copy_in(set.received, chunks.data()) : status;
    status = status.ok() ? stream_.wait() : status;
  }
  return status;
}

base::Status Rig::run_batch(const Work& work) {
  for (int i = 0; i < options_.launches; ++i) {
    const base::Status status = work(sets_[static_cast<std::size_t>(i) % sets_.size()]);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

double Rig::rate(std::size_t tensor_bytes, const Work& work) {
  std::vector<double> seconds;
  if (error_.ok()) {
    error_ = run_batch(work);  // the first batch warms up
  }
  for (int batch = 0; batch < options_.batches && error_.ok(); ++batch) {
    error_ = begin_.record(stream_.get());
    error_ = error_.ok() ? run_batch(work) : error_;
    error_ = error_.ok() ? end_.record(stream_.get()) : error_;
    error_ = error_.ok() ? end_.wait() : error_;
    const base::Result<double> took =
        error_.ok() ? gpu::OwnedEvent::seconds_between(begin_, end_) : error_;
    seconds.push_back(took.ok() ? *took : 1.0);
  }
  if (!error_.ok()) {
    return 0.0;
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<long>(seconds.size() / 2),
                   seconds.end());
  return static_cast<double>(tensor_bytes) * options_.launches / seconds[seconds.size() / 2] * 1e-9;
}

void Rig::measure_rotations(std::size_t tensor_bytes, double copy, std::vector<CudaSpeed>& speeds) {
  for (unsigned row_log2 = codec::kMinRowLog2; row_log2 <= codec::kMaxRowLog2; ++row_log2) {
    const codec::RowLayout layout(tensor_bytes / sizeof(float), row_log2);
    const double speed = rate(tensor_bytes, [&](const TensorSet& set) {
      return coder_.rotate(layout, kKey, set.values.get(), set.result.get(), stream_.get());
    });
    speeds.push_back(
        {tensor_bytes, fmt::format("rotation, rows of 2^{}", row_log2), speed, 0.0, copy});
  }
}

void Rig::measure_planes(std::size_t tensor_bytes, double copy, unsigned precision,
                         gpu::Element element, unsigned row_log2, std::vector<CudaSpeed>& speeds) {
  const bool is_half = element != gpu::Element::kFloat32;
  const std::size_t values = tensor_bytes / (is_half ? 2 : 4);
  // Jumbo frames: one message has room for all packets of a large tensor.
  const packetize::PacketLimits limits{.mtu = 9000, .trim_bytes = 0};
  const auto plan =
      packetize::PacketPlan::make(values, limits, {.precision = precision, .row_log2 = row_log2});
  if (!plan.ok()) {
    error_ = error_.ok() ? plan.status() : error_;
    return;
  }
  error_ = error_.ok() ? prepare(*plan) : error_;
  const double encode = rate(tensor_bytes, [&](const TensorSet& set) {
    return coder_.encode(*plan, kKey, gpu::all_rows(*plan), {set.values.get(), element},
                         set.message(), stream_.get());
  });
  const double decode = rate(tensor_bytes, [&](const TensorSet& set) {
    return coder_.decode(*plan, kKey, gpu::all_rows(*plan), set.message(),
                         codec::Estimate::kUnbiased, gpu::Store::kWrite,
                         {set.result.get(), element}, stream_.get());
  });
  speeds.push_back({tensor_bytes,
                    fmt::format("planes of {}, {} bits, rows of 2^{}",
                                is_half ? "bfloat16" : "float32", precision, row_log2),
                    encode, decode, copy});
}

// Uses four ranks. Kernels count clipped values beside the measurements, where nobody reads them.
void Rig::measure_levels(std::size_t tensor_bytes, double copy, std::vector<CudaSpeed>& speeds) {
  constexpr unsigned kRanks = 4;
  constexpr unsigned kBits = 4;
  const codec::LevelCode code = codec::choose_level_code(kBits, kRanks);
  const collective::DeviceLevels levels{
      .extent = {0, tensor_bytes / sizeof(float)},
      .rows = {tensor_bytes / sizeof(float), 13},
      .key = kKey,
      .code = &code,
      .lanes = codec::LaneLayout::make(kRanks, code.range).value(),
      .rank = 0};
  const gpu::LevelCoder coder(coder_.device());
  error_ = error_.ok() ? prepare(levels) : error_;
  const double encode = rate(tensor_bytes, [&](const TensorSet& set) {
    const gpu::DeviceArray values{set.values.get(), gpu::Element::kFloat32};
    const base::Status status = coder.measure(levels, values, measures_.get(), stream_.get());
    return status.ok() ? coder.round(levels, values, set.rows.get(), numbers_.get(),
                                     measures_.get(), set.payload.get(), stream_.get())
                       : status;
  });
  const double decode = rate(tensor_bytes, [&](const TensorSet& set) {
    return coder.decode(levels, set.payload.get(), set.received.get(), set.rows.get(),
                        gpu::Store::kWrite, {set.result.get(), gpu::Element::kFloat32},
                        stream_.get());
  });
  speeds.push_back({tensor_bytes, fmt::format("levels of float32, {} bits, rows of 2^13", kBits),
                    encode, decode, copy});
}

base::Status Rig::measure(std::size_t tensor_bytes, std::vector<CudaSpeed>& speeds) {
  error_ = make_sets(tensor_bytes);
  const double copy = rate(tensor_bytes, [&](const TensorSet& set) {
    return coder_.device()->copy(set.result.get(), set.values.get(), tensor_bytes, stream_.get());
  });
  speeds.push_back({tensor_bytes, "copy", copy, 0.0, copy});
  measure_rotations(tensor_bytes, copy, speeds);
  for (const unsigned precision : {5U, 8U, 16U}) {
    measure_planes(tensor_bytes, copy, precision, gpu::Element::kFloat32, 13, speeds);
  }
  measure_planes(tensor_bytes, copy, 8, gpu::Element::kFloat32, 10, speeds);
  measure_planes(tensor_bytes, copy, 8, gpu::Element::kFloat32, 15, speeds);
  measure_planes(tensor_bytes, copy, 8, gpu::Element::kBfloat16, 13, speeds);
  measure_levels(tensor_bytes, copy, speeds);
  return error_;
}

}  // namespace

base::Result<CudaSpeedResults> measure_cuda_speed(const CudaSpeedOptions& options) {
  const base::Result<gpu::DeviceHandle> device = gpu::Device::open(options.ordinal);
  if (!device.ok()) {
    return device.status();
  }
  base::Result<gpu::PlaneCoder> coder = gpu::PlaneCoder::make(*device);
  base::Result<gpu::OwnedStream> stream = gpu::OwnedStream::make(*device);
  base::Result<gpu::OwnedEvent> begin = gpu::OwnedEvent::make(*device);
  base::Result<gpu::OwnedEvent> end = gpu::OwnedEvent::make(*device);
  for (const base::Status& status :
       {coder.status(), stream.status(), begin.status(), end.status()}) {
    if (!status.ok()) {
      return status;
    }
  }
  Rig rig(std::move(coder).value(), std::move(stream).value(), std::move(begin).value(),
          std::move(end).value(), options);
  CudaSpeedResults results;
  results.device = (*device)->info();
  for (const std::size_t bytes : options.tensor_bytes) {
    const base::Status status = rig.measure(bytes, results.speeds);
    if (!status.ok()) {
      return status;
    }
  }
  return results;
}

}  // namespace spillway::bench
