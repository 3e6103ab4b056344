// SPDX-License-Identifier: Apache-2.0
#include "packetize/packetizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <utility>

#include "base/check.h"
#include "wire/data_packet.h"
#include "wire/packet.h"

namespace spillway::packetize {

PacketBuffer::PacketBuffer(std::size_t capacity, std::size_t stride)
    : stride_(stride), bytes_(capacity * stride) {
  sizes_.reserve(capacity);
}

base::ByteView PacketBuffer::operator[](std::size_t index) const {
  SPILLWAY_CHECK(index < sizes_.size());
  return {bytes_.data() + index * stride_, sizes_[index]};
}

base::MutableByteView PacketBuffer::next() {
  SPILLWAY_CHECK((sizes_.size() + 1) * stride_ <= bytes_.size());
  return {bytes_.data() + sizes_.size() * stride_, stride_};
}

void PacketBuffer::commit(std::size_t size) {
  SPILLWAY_CHECK(size <= stride_);
  sizes_.push_back(size);
}

Packetizer::Packetizer(const PacketPlan& plan, const codec::Kernels& kernels)
    : plan_(plan), encoder_(kernels), planes_(SPILLWAY_MAX_PACKET) {}

codec::RowHeader Packetizer::encode_row(std::span<const float> tensor, std::size_t row_index,
                                        const Job& job, const wire::MessageId& message) {
  SPILLWAY_CHECK(tensor.size() == plan_.layout().tensor_length());
  const codec::Row row = plan_.layout().row(row_index);
  const codec::RotationId rotation{rotation_key(job, message),
                                   static_cast<std::uint32_t>(row_index)};
  return encoder_.encode(tensor.subspan(row.offset, row.values), row.log2_length, rotation,
                         plan_.planes());
}

base::ByteView Packetizer::cut_packet(const wire::DataHeader& header) {
  encoder_.write_planes(header.first(), header.count(), plan_.planes(), planes_.data());
  return base::ByteView(planes_).first(header.payload_bytes());
}

void Packetizer::append_row(std::span<const float> tensor, std::size_t row, const Job& job,
                            const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                            PacketBuffer& packets) {
  visit_row(tensor, row, job, stamp, [&](const wire::DataHeader& header, base::ByteView planes) {
    packets.commit(wire::write_data_packet(header, planes, auth, packets.next()));
  });
}

PacketBuffer Packetizer::packetize(std::span<const float> tensor, const Job& job,
                                   const wire::DataStamp& stamp, const wire::PacketAuth& auth) {
  PacketBuffer packets(plan_.packet_count(), plan_.max_packet_size());
  for (std::size_t row = 0; row < plan_.layout().row_count(); ++row) {
    append_row(tensor, row, job, stamp, auth, packets);
  }
  return packets;
}

// ------------------------------------------------------------------ importance

namespace {

// Packets that are not expendable: switches treat both alike; senders retransmit rich ones first.
constexpr std::uint8_t kOrdinary = SPILLWAY_IMPORTANCE_MARKED;
constexpr std::uint8_t kRich = SPILLWAY_IMPORTANCE_MARKED + 1;

// At most one in this many packets of a row is expendable.
constexpr std::size_t kLeastPerExpendable = 3;
static_assert(kLeastPerExpendable >= kSafePackets, "shorter rows have none");

struct RowBudget {
  std::size_t row = 0;
  std::size_t packets = 0;
  std::size_t expendable = 0;
  double energy = 0.0;

  // The expected error added by one more lost packet, if all expendable ones are lost.
  double next_cost() const {
    const auto n = static_cast<double>(packets);
    const auto kept = static_cast<double>(packets - expendable);
    return energy * n / (kept * (kept - 1.0));
  }
  bool may_lose_more() const {
    return expendable < packets / kLeastPerExpendable && std::isfinite(energy);
  }
};

struct CostsMore {
  bool operator()(const RowBudget& a, const RowBudget& b) const {
    const double cost_of_a = a.next_cost();
    const double cost_of_b = b.next_cost();
    return cost_of_a > cost_of_b || (cost_of_a == cost_of_b && a.row > b.row);
  }
};

double energy_of(float scale, const codec::Row& row) {
  const double rms = scale;
  const double energy = rms * rms * static_cast<double>(row.length());
  return std::isfinite(energy) ? energy : std::numeric_limits<double>::infinity();
}

std::vector<RowBudget> rows_of(const PacketPlan& plan, std::span<const float> row_scales) {
  std::vector<RowBudget> rows;
  for (std::size_t row = 0; row < plan.layout().row_count(); ++row) {
    rows.push_back({.row = row,
                    .packets = plan.packets_in(row),
                    .energy = energy_of(row_scales[row], plan.layout().row(row))});
  }
  return rows;
}

double mean_energy(std::span<const RowBudget> rows) {
  double sum = 0.0;
  for (const RowBudget& row : rows) {
    sum += row.energy;
  }
  return sum / static_cast<double>(std::max<std::size_t>(rows.size(), 1));
}

void prefer_rich_rows(const PacketPlan& plan, std::span<const RowBudget> rows,
                      std::vector<std::uint8_t>& importance) {
  const double mean = mean_energy(rows);
  for (const RowBudget& row : rows) {
    if (row.packets >= kSafePackets && row.energy > mean) {
      std::fill_n(importance.begin() + static_cast<std::ptrdiff_t>(plan.first_packet(row.row)),
                  row.packets, kRich);
    }
  }
}

// The importance of the i-th of `all` expendable packets.
std::uint8_t expendable_level(std::size_t i, std::size_t all) {
  return static_cast<std::uint8_t>(i * SPILLWAY_IMPORTANCE_MARKED / all);
}

void spread_expendable(const PacketPlan& plan, std::vector<RowBudget> rows, std::size_t budget,
                       std::vector<std::uint8_t>& importance) {
  std::erase_if(rows, [](const RowBudget& row) { return !row.may_lose_more(); });
  std::priority_queue<RowBudget, std::vector<RowBudget>, CostsMore> cheapest(CostsMore(),
                                                                             std::move(rows));
  for (std::size_t chosen = 0; chosen < budget && !cheapest.empty(); ++chosen) {
    RowBudget row = cheapest.top();
    cheapest.pop();
    // Start at the row's end, so that its first packet is the last to become expendable.
    const std::size_t first = plan.first_packet(row.row);
    ++row.expendable;
    importance[first + row.packets - row.expendable] = expendable_level(chosen, budget);
    if (row.packets - row.expendable < kSafePackets) {
      importance[first] = SPILLWAY_IMPORTANCE_REQUIRED;
    }
    if (row.may_lose_more()) {
      cheapest.push(row);
    }
  }
}

}  // namespace

std::vector<std::uint8_t> importance_by_energy(const PacketPlan& plan,
                                               std::span<const float> row_scales,
                                               std::uint32_t expendable_ppm) {
  SPILLWAY_CHECK(row_scales.size() == plan.layout().row_count());
  std::vector<std::uint8_t> importance(plan.packet_count(), kOrdinary);
  const auto budget = static_cast<std::size_t>(std::uint64_t{plan.packet_count()} *
                                               std::min(expendable_ppm, 1'000'000U) / 1'000'000U);
  if (budget == 0) {
    return importance;
  }
  const std::vector<RowBudget> rows = rows_of(plan, row_scales);
  prefer_rich_rows(plan, rows, importance);
  spread_expendable(plan, rows, budget, importance);
  return importance;
}

}  // namespace spillway::packetize
