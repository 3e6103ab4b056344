// SPDX-License-Identifier: Apache-2.0
#include "packetize/packet_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "codec/kernels.h"
#include "codec/plane_code.h"

namespace spillway::packetize {
namespace {

static_assert(SPILLWAY_QUANTUM == codec::kSpanQuantum);
static_assert(SPILLWAY_MAX_PLANES == codec::kMaxPlanes);
static_assert(SPILLWAY_MIN_ROW_LOG2 == codec::kMinRowLog2);
static_assert(SPILLWAY_MAX_ROW_LOG2 == codec::kMaxRowLog2);
static_assert(SPILLWAY_MAX_ROTATIONS == codec::kMaxRotations);

constexpr std::size_t kBytesPerQuantumPlane = SPILLWAY_QUANTUM / 8;
constexpr std::size_t kMaxSlots = 256;
constexpr std::size_t kMaxHeadBytes = 255 * 4;
constexpr unsigned kMinMtu = 576;
constexpr unsigned kMaxMtu = 9000;

// Bytes in front of the head, from the start of the UDP payload.
constexpr std::size_t kHeadStart = sizeof(spillway_planes_header) + SPILLWAY_CHECK_SIZE;

base::Status check_arguments(const PacketLimits& limits, const Encoding& encoding) {
  if (limits.mtu < kMinMtu || limits.mtu > kMaxMtu) {
    return base::invalid_argument(
        fmt::format("MTU {} is outside {}..{}", limits.mtu, kMinMtu, kMaxMtu));
  }
  if (encoding.precision < 1 || encoding.precision > codec::kMaxPlanes) {
    return base::invalid_argument(fmt::format("precision {} is outside 1..{} bits per value",
                                              encoding.precision, codec::kMaxPlanes));
  }
  if (encoding.row_log2 < codec::kMinRowLog2 || encoding.row_log2 > codec::kMaxRowLog2) {
    return base::invalid_argument(fmt::format("rows of 2^{} are outside 2^{}..2^{}",
                                              encoding.row_log2, codec::kMinRowLog2,
                                              codec::kMaxRowLog2));
  }
  return {};
}

// Bytes of planes that survive every trim, in whole words.
base::Result<std::size_t> head_capacity_of(const PacketLimits& limits) {
  if (limits.trim_bytes == 0) {
    return std::size_t{SPILLWAY_TAIL_SEGMENT};  // no trimming: a head is as long as any segment
  }
  const std::size_t smallest =
      limits.frame_overhead() + kHeadStart + limits.trim_slack_bytes + kBytesPerQuantumPlane;
  if (limits.trim_bytes < smallest) {
    return base::invalid_argument(fmt::format(
        "a trim size of {} bytes leaves no room for a plane behind {} bytes of headers (slack {}); "
        "the smallest that works here is {}, or 0 for a fabric that does not trim",
        limits.trim_bytes, limits.frame_overhead() + kHeadStart, limits.trim_slack_bytes,
        smallest));
  }
  const std::size_t room = limits.trim_bytes - smallest + kBytesPerQuantumPlane;
  return std::min(room / 4 * 4, kMaxHeadBytes);
}

// Reduces `quanta` so that a row's packets are as equal as quanta allow, without adding packets.
// Packets of one size are sent and received in batches; a short one at each row's end would break
// them.
std::size_t shared_out(std::size_t quanta, unsigned row_log2) {
  const std::size_t row = (std::size_t{1} << row_log2) / SPILLWAY_QUANTUM;
  const std::size_t packets = (row + quanta - 1) / quanta;
  return (row + packets - 1) / packets;
}

// A packet's slot in its row is one byte, so tiny packets need shorter rows.
unsigned fitting_row_log2(unsigned row_log2, std::size_t quanta) {
  while (row_log2 > codec::kMinRowLog2 &&
         (std::size_t{1} << row_log2) > kMaxSlots * quanta * SPILLWAY_QUANTUM) {
    --row_log2;
  }
  return row_log2;
}

}  // namespace

std::uint64_t rotation_key(const Job& job, const wire::MessageId& message) {
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  const std::uint32_t origin = static_cast<std::uint32_t>(message.phase) << 16 | message.source;
  const std::uint64_t call =
      base::derive_key(job.seed, {low(message.operation), low(message.operation >> 32),
                                  low(message.signature), low(message.signature >> 32)});
  return base::derive_key(call, {message.piece, origin, low(job.epoch), job.id});
}

wire::PacketAuth seeded_auth(const Job& job, wire::Protection protection) {
  std::array<std::uint8_t, 32> secret{};
  base::store_le(secret.data(), job.seed);
  base::store_le(secret.data() + 8, job.epoch);
  base::store_le(secret.data() + 16, job.id);
  return wire::PacketAuth::of_secret(secret, protection).value();
}

std::size_t PacketPlan::Shape::packet_size(std::size_t quanta) const {
  const std::size_t bytes = quanta * kBytesPerQuantumPlane * planes;
  return spillway_packed_size(static_cast<__u32>(bytes),
                              static_cast<__u32>(std::min(bytes, head_capacity)),
                              has_segmented_tails ? SPILLWAY_TAIL_SEGMENTS : SPILLWAY_TAIL_WHOLE);
}

std::size_t PacketPlan::choose_quanta(const PacketLimits& limits, const Shape& shape) {
  std::size_t quanta = SPILLWAY_MAX_QUANTA;
  if (limits.trim_bytes != 0) {
    quanta = std::min(quanta, shape.head_capacity / kBytesPerQuantumPlane);
  }
  const std::size_t payload = limits.mtu - limits.datagram_overhead();
  while (quanta > 0 && shape.packet_size(quanta) > payload) {
    --quanta;
  }
  return quanta;
}

PacketPlan::PacketPlan(const codec::RowLayout& layout, const Shape& shape, std::size_t quanta)
    : layout_(layout), shape_(shape), quanta_(quanta) {
  const std::size_t per_packet = coordinates_per_packet();
  const std::size_t full_row = std::size_t{1} << layout.row_log2();
  packets_per_full_row_ = (full_row + per_packet - 1) / per_packet;
  const std::size_t rows = layout.row_count();
  packet_count_ = rows == 0 ? 0 : first_packet(rows - 1) + packets_in(rows - 1);
  max_packet_size_ = shape.packet_size(quanta);
}

base::Result<PacketPlan> PacketPlan::make(std::size_t tensor_length, const PacketLimits& limits,
                                          const Encoding& encoding) {
  if (const base::Status status = check_arguments(limits, encoding); !status.ok()) {
    return status;
  }
  const base::Result<std::size_t> head_capacity = head_capacity_of(limits);
  if (!head_capacity.ok()) {
    return head_capacity.status();
  }
  const Shape shape{.planes = encoding.precision,
                    .head_capacity = *head_capacity,
                    .has_segmented_tails = limits.has_segmented_tails()};
  const std::size_t most = choose_quanta(limits, shape);
  SPILLWAY_CHECK(most > 0);  // kMinMtu fits 32 coordinates of 32 planes
  const unsigned row_log2 = fitting_row_log2(encoding.row_log2, most);
  const std::size_t quanta = shared_out(most, row_log2);
  const std::size_t per_row =
      ((std::size_t{1} << row_log2) + quanta * SPILLWAY_QUANTUM - 1) / (quanta * SPILLWAY_QUANTUM);
  const std::size_t max_values = (SPILLWAY_MAX_PACKETS / per_row) << row_log2;
  if (tensor_length > max_values) {
    return base::Status(
        base::StatusCode::kLimitExceeded,
        fmt::format("{} values need more than the {} packets of one message; at this MTU and "
                    "precision a message carries {} values: split the tensor",
                    tensor_length, SPILLWAY_MAX_PACKETS, max_values));
  }
  return PacketPlan(codec::RowLayout(tensor_length, row_log2), shape, quanta);
}

std::size_t PacketPlan::head_bytes(std::size_t count) const {
  return std::min(shape_.head_capacity, count / 8 * shape_.planes);
}

std::size_t PacketPlan::packets_in(std::size_t row) const {
  const std::size_t per_packet = coordinates_per_packet();
  return (layout_.row(row).length() + per_packet - 1) / per_packet;
}

PacketPlace PacketPlan::place(std::size_t packet) const {
  SPILLWAY_CHECK(packet < packet_count_);
  const std::size_t row = packet / packets_per_full_row_;
  const std::size_t slot = packet % packets_per_full_row_;
  const std::size_t first = slot * coordinates_per_packet();
  return {row, slot, first, std::min(coordinates_per_packet(), layout_.row(row).length() - first)};
}

std::size_t PacketPlan::wire_bytes() const {
  std::size_t total = 0;
  for (std::size_t packet = 0; packet < packet_count_; ++packet) {
    total += shape_.packet_size(place(packet).count / SPILLWAY_QUANTUM);
  }
  return total;
}

// ------------------------------------------------------------------ a message in memory

std::size_t plane_stride(const PacketPlan& plan) {
  return plan.coordinates_per_packet() / 8 * plan.planes();
}

std::size_t plane_memory_bytes(const PacketPlan& plan) {
  return plan.packet_count() * plane_stride(plan);
}

KeptPlanes KeptPlanes::make(const PacketPlan& plan) {
  return make_in(plan, PlaneMemory(new std::uint8_t[plane_memory_bytes(plan)]));
}

KeptPlanes KeptPlanes::make_in(const PacketPlan& plan, PlaneMemory memory) {
  return {std::move(memory), std::vector<codec::RowHeader>(plan.layout().row_count()),
          std::vector<std::uint16_t>(plan.packet_count())};
}

wire::DataHeader packet_header(const PacketPlan& plan, std::size_t packet,
                               const codec::RowHeader& row) {
  const PacketPlace place = plan.place(packet);
  wire::DataHeader header;
  header.stamp.packet = static_cast<std::uint16_t>(packet);
  header.stamp.last = packet + 1 == plan.packet_count();
  header.row_log2 = static_cast<std::uint8_t>(plan.layout().row(place.row).log2_length);
  header.rotations = static_cast<std::uint8_t>(row.rotations);
  header.planes = static_cast<std::uint8_t>(plan.planes());
  header.row = static_cast<std::uint16_t>(place.row);
  header.slot = static_cast<std::uint8_t>(place.slot);
  header.quanta = static_cast<std::uint16_t>(plan.quanta());
  header.scale = row.scale;
  header.head_bytes = static_cast<std::uint16_t>(plan.head_bytes(place.count));
  header.has_segmented_tail = plan.has_segmented_tails();
  return header;
}

}  // namespace spillway::packetize
