// SPDX-License-Identifier: Apache-2.0
#include "gpu/plane_coder.h"

#include <utility>

#include "base/check.h"

namespace spillway::gpu {
namespace {

// Four values per thread.
LaunchSize size_for(std::size_t count) {
  constexpr std::size_t kThreads = 256;
  constexpr std::size_t kPerBlock = kThreads * 4;
  return {static_cast<unsigned>((count + kPerBlock - 1) / kPerBlock), kThreads, 0};
}

}  // namespace

base::Result<PlaneCoder> PlaneCoder::make(DeviceHandle device) {
  base::Result<DeviceMemory> tables = DeviceMemory::make(device, sizeof(CodeTables));
  if (!tables.ok()) {
    return tables.status();
  }
  base::Result<OwnedStream> stream = OwnedStream::make(device);
  if (!stream.ok()) {
    return stream.status();
  }
  const CodeTables content = make_code_tables();
  base::Status status =
      stream.value().copy_to_device(tables.value().get(), &content, sizeof content);
  if (status.ok()) {
    status = stream.value().wait();
  }
  if (!status.ok()) {
    return status;
  }
  return PlaneCoder(std::move(device), std::move(tables).value());
}

base::Status PlaneCoder::encode(const packetize::PacketPlan& plan, std::uint64_t key, RowSlice rows,
                                const DeviceArray& tensor, const DeviceMessage& message,
                                Stream stream, DevicePointer factors) const {
  for (const Launch& launch : launches_of(plan.layout(), rows.first, rows.count)) {
    const EncodeArguments arguments{.values = device_memory<void>(tensor.values),
                                    .payload = device_memory<unsigned char>(message.payload),
                                    .rows = device_memory<RowCode>(message.rows),
                                    .factors = device_memory<float>(factors),
                                    .tables = device_memory<CodeTables>(tables_.get()),
                                    .key = key,
                                    .shape = shape_of(plan),
                                    .range = launch.rows};
    const base::Status status = device_->launch(kernel_for(Kernel::kEncodeFloat32, tensor.element),
                                                size_of(launch), &arguments, stream);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status PlaneCoder::decode(const packetize::PacketPlan& plan, std::uint64_t key, RowSlice rows,
                                const DeviceMessage& message, codec::Estimate estimate, Store store,
                                const DeviceArray& tensor, Stream stream) const {
  for (const Launch& launch : launches_of(plan.layout(), rows.first, rows.count)) {
    const DecodeArguments arguments{.payload = device_memory<unsigned char>(message.payload),
                                    .received = device_memory<unsigned short>(message.received),
                                    .rows = device_memory<RowCode>(message.rows),
                                    .values = device_memory<void>(tensor.values),
                                    .tables = device_memory<CodeTables>(tables_.get()),
                                    .key = key,
                                    .shape = shape_of(plan),
                                    .range = launch.rows,
                                    .estimate = static_cast<unsigned>(estimate),
                                    .store = store};
    const base::Status status = device_->launch(kernel_for(Kernel::kDecodeFloat32, tensor.element),
                                                size_of(launch), &arguments, stream);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status PlaneCoder::widen(const DeviceArray& from, DevicePointer owed, DevicePointer to,
                               std::size_t count, Stream stream) const {
  const WidenArguments arguments{device_memory<void>(from.values), device_memory<float>(to),
                                 device_memory<float>(owed), count};
  return device_->launch(kernel_for(Kernel::kWidenFloat32, from.element), size_for(count),
                         &arguments, stream);
}

base::Status PlaneCoder::forget_unless_finite(DevicePointer values, std::size_t count,
                                              DevicePointer found, Stream stream) const {
  const FiniteArguments arguments{device_memory<float>(values), device_memory<unsigned>(found),
                                  count};
  base::Status status = device_->clear(found, sizeof(unsigned), stream);
  for (const Kernel kernel : {Kernel::kFindNotFinite, Kernel::kForgetIfFound}) {
    status = status.ok() ? device_->launch(kernel, size_for(count), &arguments, stream) : status;
  }
  return status;
}

base::Status PlaneCoder::rotate(const codec::RowLayout& layout, std::uint64_t key,
                                DevicePointer from, DevicePointer to, Stream stream) const {
  SPILLWAY_CHECK(layout.tensor_length() % (std::size_t{1} << layout.row_log2()) == 0);
  for (const Launch& launch : launches_of(layout, 0, layout.row_count())) {
    const RotateArguments arguments{.from = device_memory<float>(from),
                                    .to = device_memory<float>(to),
                                    .key = key,
                                    .range = launch.rows};
    const base::Status status =
        device_->launch(Kernel::kRotate, size_of(launch), &arguments, stream);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace spillway::gpu
