// SPDX-License-Identifier: Apache-2.0
#include "sim/sum_envelope.h"

#include <utility>

namespace spillway::sim {
namespace {

// Like spillway_find_sum(), for a UDP payload.
bool find_in_payload(base::ByteView payload, spillway_sum_image& image, spillway_sum_frame& sum) {
  if (payload.size() < sizeof(spillway_sum_header)) {
    return false;
  }
  spillway_load_sum_header(payload.data(), &image);
  if (spillway_version_of(image.fields.common.version_type) != SPILLWAY_WIRE_VERSION ||
      spillway_type_of(image.fields.common.version_type) != SPILLWAY_TYPE_SUM ||
      spillway_is_valid_sum(&image.fields) == 0) {
    return false;
  }
  sum.is_plain = 1;
  sum.has_words = payload.size() == spillway_sum_packet_size(image.fields.kind) ? 1 : 0;
  return true;
}

}  // namespace

std::optional<SumEnvelope> SumEnvelope::open(PacketPool& pool, PacketIndex index) {
  SumEnvelope envelope(pool, pool[index]);
  return envelope.read() ? std::optional(envelope) : std::nullopt;
}

bool SumEnvelope::read() {
  const base::ByteView all = bytes();
  if (all.empty()) {
    return false;
  }
  if (is_frame()) {
    spillway_find_layout(begin(), end(), &layout_);
    if (spillway_find_sum(begin(), end(), static_cast<std::uint32_t>(all.size()), &layout_, &image_,
                          &sum_) == 0) {
      return false;
    }
  } else if (!find_in_payload(all, image_, sum_)) {
    return false;
  }
  // A frame's own traffic class is written when it leaves the network.
  if (packet_->ecn == SPILLWAY_ECN_CE) {
    image_.fields.marks |= SPILLWAY_SUM_CONGESTED;
  }
  return true;
}

std::uint8_t* SumEnvelope::payload() const {
  return is_frame() ? begin() + layout_.transport + SPILLWAY_UDP_HEADER : begin();
}

std::uint8_t* SumEnvelope::words() {
  return payload() + sizeof(spillway_sum_header);
}

spillway_sum_route SumEnvelope::route() const {
  spillway_sum_route route = {};
  if (is_frame()) {
    spillway_read_route(begin(), end(), &layout_, &route);
  } else {
    // As distinct from each other as the routes of frames.
    route.bytes[0] = packet_->from;
    route.bytes[1] = packet_->to;
  }
  route.traffic_class = static_cast<std::uint8_t>(packet_->dscp << 2 | packet_->ecn);
  return route;
}

SumPlace SumEnvelope::place() const {
  return {packet_->from, packet_->to, packet_->label, packet_->stack};
}

void SumEnvelope::write() {
  if (is_frame()) {
    spillway_write_sum(begin(), end(), &layout_, &image_);
  } else {
    spillway_store_sum_header(payload(), &image_);
  }
  packet_->priority = spillway_priority_of(image_.fields.common.service);
  packet_->importance = spillway_importance_of(image_.fields.common.service);
}

void SumEnvelope::set_traffic_class(std::uint8_t traffic_class) {
  packet_->dscp = traffic_class >> 2;
  packet_->ecn = traffic_class & 0x03;
}

void SumEnvelope::go_by(const spillway_sum_route& route, const SumPlace& place) {
  if (is_frame()) {
    spillway_write_route(begin(), end(), &layout_, &route);
  }
  set_traffic_class(route.traffic_class);
  packet_->from = place.from;
  packet_->to = place.to;
  packet_->label = place.label;
  packet_->stack = place.stack;
}

void SumEnvelope::address_to(const spillway_sum_route& route, const SumPlace& place) {
  if (is_frame()) {
    spillway_readdress(begin(), end(), &layout_, &route);
  }
  packet_->to = place.from;
  packet_->stack = place.stack;
}

void SumEnvelope::turn(std::uint8_t traffic_class) {
  const auto before = static_cast<std::uint32_t>(payload() - begin());
  pool_->resize_payload(*packet_, before + SPILLWAY_SUM_PACKET);
  packet_->kind = PacketKind::kSpillwaySum;
  packet_->sent_bytes = packet_->bytes;
  if (is_frame()) {
    spillway_turn_route(begin(), end(), &layout_);
    spillway_set_sum_lengths(begin(), end(), &layout_, traffic_class);
  }
  set_traffic_class(traffic_class);
  std::swap(packet_->from, packet_->to);
}

}  // namespace spillway::sim
