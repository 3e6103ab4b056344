// SPDX-License-Identifier: Apache-2.0
#include "packetize/depacketizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "codec/row_codec.h"
#include "wire/data_packet.h"

namespace spillway::packetize {

std::size_t DeliveryReport::coordinates() const {
  return std::accumulate(coordinates_by_planes.begin(), coordinates_by_planes.end(),
                         std::size_t{0});
}

double DeliveryReport::lost_fraction() const {
  const std::size_t all = coordinates();
  return all == 0 ? 0.0 : static_cast<double>(coordinates_by_planes[0]) / static_cast<double>(all);
}

double DeliveryReport::trimmed_fraction(unsigned planes_sent) const {
  const std::size_t all = coordinates();
  if (all == 0) {
    return 0.0;
  }
  const std::size_t some =
      std::accumulate(coordinates_by_planes.begin() + 1,
                      coordinates_by_planes.begin() + planes_sent, std::size_t{0});
  return static_cast<double>(some) / static_cast<double>(all);
}

double DeliveryReport::mean_planes() const {
  const std::size_t all = coordinates();
  std::size_t planes_sum = 0;
  for (std::size_t planes = 0; planes < coordinates_by_planes.size(); ++planes) {
    planes_sum += planes * coordinates_by_planes[planes];
  }
  return all == 0 ? 0.0 : static_cast<double>(planes_sum) / static_cast<double>(all);
}

Depacketizer::Depacketizer(const PacketPlan& plan, const Job& job, const wire::MessageId& message,
                           std::span<float> tensor, codec::Estimate estimate,
                           const codec::Kernels& kernels)
    : plan_(plan),
      job_(job),
      message_(message),
      tensor_(tensor),
      estimate_(estimate),
      kernels_(kernels),
      rows_(plan.layout().row_count()),
      received_bytes_(plan.packet_count()),
      sent_planes_(plan.packet_count()) {
  SPILLWAY_CHECK(tensor.size() == plan.layout().tensor_length());
  if (!rows_.empty()) {
    const codec::Row last = plan.layout().row(rows_.size() - 1);
    if (last.values < last.length()) {
      padded_row_.resize(last.length());
    }
  }
  report_.expected = plan.packet_count();
  report_.rows = rows_.size();
}

Depacketizer::Depacketizer(const PacketPlan& plan, const Job& job, const wire::MessageId& message,
                           KeptPlanes& kept)
    : plan_(plan),
      job_(job),
      message_(message),
      kept_(&kept),
      estimate_(codec::Estimate::kUnbiased),
      kernels_(codec::best_kernels()),
      rows_(plan.layout().row_count()),
      received_bytes_(plan.packet_count()),
      sent_planes_(plan.packet_count()) {
  SPILLWAY_CHECK(kept.rows.size() == rows_.size() && kept.bytes.size() == plan.packet_count());
  report_.expected = plan.packet_count();
  report_.rows = rows_.size();
}

bool Depacketizer::is_ours(const wire::DataHeader& header) const {
  // A header that was read but not opened has only the low bits of the epoch and the operation.
  const wire::DataStamp& stamp = header.stamp;
  wire::MessageId message = stamp.message;
  message.operation = wire::widen_counter(message.operation, message_.operation);
  return stamp.job == job_.id &&
         static_cast<std::uint8_t>(stamp.epoch) == static_cast<std::uint8_t>(job_.epoch) &&
         message == message_;
}

bool Depacketizer::fits_plan(const wire::DataHeader& header) const {
  if (header.codec != wire::Codec::kPlanes || header.stamp.packet >= plan_.packet_count() ||
      header.quanta != plan_.quanta()) {
    return false;
  }
  if (kept_ != nullptr && header.planes > plan_.planes()) {
    return false;  // no room for more planes
  }
  const PacketPlace place = plan_.place(header.stamp.packet);
  return header.row == place.row && header.slot == place.slot &&
         header.row_log2 == plan_.layout().row(place.row).log2_length;
}

bool Depacketizer::agrees_with_row(const wire::DataHeader& header) const {
  const RowState& row = rows_[header.row];
  return !row.seen ||
         (std::bit_cast<std::uint32_t>(row.scale) == std::bit_cast<std::uint32_t>(header.scale) &&
          row.rotations == header.rotations);
}

float* Depacketizer::row_data(std::size_t row) {
  const bool padded = !padded_row_.empty() && row + 1 == rows_.size();
  return padded ? padded_row_.data() : tensor_.data() + plan_.layout().row(row).offset;
}

PacketOutcome Depacketizer::add(base::ByteView packet, const wire::PacketAuth& auth,
                                std::uint64_t near) {
  wire::OpenedPacket opened;
  const wire::PacketFault fault = wire::open_data_packet(packet, auth, opened, near);
  if (fault != wire::PacketFault::kNone) {
    ++report_.faults[static_cast<unsigned>(fault)];
    return PacketOutcome::kFault;
  }
  return add(opened, packet);
}

// Returns kWhole for a header that is acceptable.
PacketOutcome Depacketizer::check(const wire::DataHeader& header) {
  if (!is_ours(header)) {
    ++report_.foreign;
    return PacketOutcome::kForeign;
  }
  if (!fits_plan(header) || !agrees_with_row(header)) {
    ++report_.inconsistent;
    return PacketOutcome::kInconsistent;
  }
  return PacketOutcome::kWhole;
}

PacketOutcome Depacketizer::add(const wire::OpenedPacket& opened, base::ByteView packet) {
  if (const PacketOutcome outcome = check(opened.header); outcome != PacketOutcome::kWhole) {
    return outcome;
  }
  const wire::TrustedPlanes trusted = wire::copy_trusted_planes(packet, opened, planes_);
  report_.corrupt_tails += trusted.corrupt_tail ? 1 : 0;
  return add_planes(opened.header, base::ByteView(planes_).first(trusted.bytes));
}

void Depacketizer::keep(const wire::DataHeader& header, base::ByteView planes) {
  const std::size_t packet = header.stamp.packet;
  std::copy(planes.begin(), planes.end(), kept_->memory.get() + packet * plane_stride(plan_));
  kept_->bytes[packet] = static_cast<std::uint16_t>(planes.size());
  kept_->rows[header.row] = {header.scale, header.rotations};
}

PacketOutcome Depacketizer::add_planes(const wire::DataHeader& header, base::ByteView planes) {
  const std::size_t before = received_bytes_[header.stamp.packet];
  if (planes.size() <= before) {
    ++report_.duplicates;
    return PacketOutcome::kDuplicate;
  }
  rows_[header.row] = {.scale = header.scale, .rotations = header.rotations, .seen = true};
  received_bytes_[header.stamp.packet] = static_cast<std::uint16_t>(planes.size());
  sent_planes_[header.stamp.packet] = header.planes;
  if (kept_ != nullptr) {
    keep(header, planes);
  } else {
    codec::decode_planes(kernels_,
                         {.bytes = planes, .count = header.count(), .planes = header.planes},
                         estimate_, row_data(header.row) + header.first());
  }
  if (before > 0) {
    ++report_.improved;
    return PacketOutcome::kImproved;
  }
  return planes.size() == header.payload_bytes() ? PacketOutcome::kWhole : PacketOutcome::kTrimmed;
}

unsigned Depacketizer::planes_of(std::size_t packet) const {
  return static_cast<unsigned>(received_bytes_[packet] / (plan_.place(packet).count / 8));
}

// The number of coordinates for which at least one plane arrived.
std::size_t Depacketizer::estimated_coordinates(std::size_t packet) const {
  const std::size_t first_plane = std::size_t{received_bytes_[packet]} * 8;
  return std::min<std::size_t>(first_plane, plan_.place(packet).count);
}

// Counts a packet in the report and zeroes its coordinates if it never arrived. Returns how many of
// its coordinates have an estimate.
std::size_t Depacketizer::tally_packet(std::size_t packet) {
  const PacketPlace place = plan_.place(packet);
  const std::size_t bytes = received_bytes_[packet];
  if (bytes == 0) {
    ++report_.missing;
    report_.coordinates_by_planes[0] += place.count;
    if (kept_ == nullptr) {
      std::fill_n(row_data(place.row) + place.first, place.count, 0.0F);
    }
    return 0;
  }
  const std::size_t plane_bytes = place.count / 8;
  const std::size_t planes = bytes / plane_bytes;
  const std::size_t further = bytes % plane_bytes * 8;  // coordinates with one more plane
  ++(planes == sent_planes_[packet] ? report_.whole : report_.trimmed);
  report_.coordinates_by_planes[planes] += place.count - further;
  if (further > 0) {
    report_.coordinates_by_planes[planes + 1] += further;
  }
  return estimated_coordinates(packet);
}

void Depacketizer::finish_row(std::size_t row_index) {
  std::size_t arrived = 0;
  const std::size_t first = plan_.first_packet(row_index);
  for (std::size_t slot = 0; slot < plan_.packets_in(row_index); ++slot) {
    arrived += tally_packet(first + slot);
  }
  RowState& state = rows_[row_index];
  SPILLWAY_CHECK(!state.finished);
  state.finished = true;
  report_.lost_rows += arrived == 0 ? 1 : 0;
  report_.non_finite_rows += std::isnan(state.scale) ? 1 : 0;
  if (kept_ != nullptr) {
    return;
  }
  const codec::Row row = plan_.layout().row(row_index);
  float* data = row_data(row_index);
  codec::finish_row(kernels_, {state.scale, state.rotations},
                    {rotation_key(job_, message_), static_cast<std::uint32_t>(row_index)},
                    row.log2_length, arrived, estimate_, data);
  if (data == padded_row_.data()) {
    std::copy_n(data, row.values, tensor_.data() + row.offset);
  }
}

DeliveryReport Depacketizer::finish() {
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (!rows_[row].finished) {
      finish_row(row);
    }
  }
  return report_;
}

}  // namespace spillway::packetize
