// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/ingress.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <span>

#include "switch/fabric/frame.h"

namespace spillway::fabric {

namespace {

sim::PacketKind kind_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::kSpillwayData:
      return sim::PacketKind::kSpillwayData;
    case FrameKind::kSpillwayControl:
      return sim::PacketKind::kSpillwayControl;
    case FrameKind::kSpillwaySum:
      return sim::PacketKind::kSpillwaySum;
    case FrameKind::kSpillwaySumControl:
      return sim::PacketKind::kSpillwaySumControl;
    case FrameKind::kOther:
      break;
  }
  return sim::PacketKind::kOther;
}

sim::Packet packet_of(const FrameInfo& info) {
  sim::Packet packet;
  packet.kind = kind_of(info.kind);
  packet.dscp = info.dscp;
  packet.ecn = info.ecn;
  packet.importance = info.importance;
  packet.priority = info.priority;
  packet.label = info.label;
  return packet;
}

}  // namespace

void Ingress::take_frame(scenario::HostId from, base::ByteView frame, base::Instant at) {
  ++counters_.frames;
  if (frame.size() < SPILLWAY_ETHERNET_HEADER) {
    ++counters_.unknown;
    return;
  }
  const spillway_tag none = {};  // ports have put all tags back into their frames
  const std::uint8_t* end = frame.data() + frame.size();
  spillway_station station = {};
  if (spillway_read_sender(frame.data(), end, &none, &station) != 0) {
    stations_.learn(station, from);
  }
  sim::Packet packet = packet_of(inspect_frame(frame));
  packet.from = from;
  packet.bytes = static_cast<std::uint32_t>(std::max(frame.size(), kShortestFrame));
  packet.absent_bytes = 0;
  const bool is_for_one = spillway_read_receiver(frame.data(), end, &none, &station) != 0;
  forward(packet, is_for_one ? stations_.find(station) : std::nullopt, frame, at);
}

void Ingress::forward(const sim::Packet& like, std::optional<scenario::HostId> to,
                      base::ByteView frame, base::Instant at) {
  if (!to) {
    flood(like, frame, at);
  } else if (spillway_returns(like.from, *to) != 0) {
    ++counters_.same_port;
  } else {
    add_frame_for(*to, like, frame, at);
  }
}

void Ingress::flood(const sim::Packet& like, base::ByteView frame, base::Instant at) {
  for (scenario::HostId to = 0; to < hosts_; ++to) {
    if (spillway_returns(like.from, to) == 0) {
      add_frame_for(to, like, frame, at);
    }
  }
}

void Ingress::add_frame_for(scenario::HostId to, const sim::Packet& like, base::ByteView frame,
                            base::Instant at) {
  const sim::PacketIndex index = pool_.allocate();
  sim::Packet& packet = pool_[index];
  packet = like;
  packet.to = to;
  base::copy_bytes(frame.data(), frame.size(), pool_.attach_payload(packet, frame.size()).data());
  arrivals_.push_back({at, like.from, index});
}

void Ingress::take_datagram(const Datagram& datagram, base::Instant at) {
  ++counters_.frames;
  FrameInfo info;
  info.kind = inspect_payload(datagram.payload, info);
  if (info.kind == FrameKind::kOther) {
    ++counters_.foreign;
    return;
  }
  if (!datagram.from) {
    ++counters_.unknown;
    return;
  }
  info.dscp = datagram.tos >> 2;
  info.ecn = datagram.tos & 0x03;
  info.label = datagram.label;
  sim::Packet like = packet_of(info);
  like.from = *datagram.from;
  like.bytes = static_cast<std::uint32_t>(datagram.payload.size()) + sim::kFrameHeaderBytes;
  forward(like, datagram.to, datagram.payload, at);
}

void Ingress::stopped_at(base::Instant at) {
  stopped_at_ = stopped_ ? std::min(stopped_at_, at) : at;
  stopped_ = true;
}

base::Instant Ingress::known_until(base::Instant now) const {
  return stopped_ ? std::min(stopped_at_, now) : now;
}

void Ingress::next_round() {
  arrivals_.clear();
  stopped_ = false;
}

namespace {

std::uint64_t number_of(const spillway_station& station) {
  return std::bit_cast<std::uint64_t>(station);
}

// The first of the entries where a station may be.
std::size_t place_of(std::uint64_t station, std::size_t ways) {
  // Addresses of one vendor differ only in their last bytes, which are the high bits here.
  const std::uint64_t hash = (station ^ (station >> 24)) * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::size_t>(hash >> 48) % (kMacTableSize / ways) * ways;
}

}  // namespace

void MacTable::learn(const spillway_station& station, scenario::HostId host) {
  const std::uint64_t number = number_of(station);
  const std::span<Entry> places = std::span(entries_).subspan(place_of(number, kWays), kWays);
  auto place = std::ranges::find(places, number, &Entry::station);
  if (place == places.end()) {
    place = std::ranges::min_element(places, {}, &Entry::learnt);
  }
  *place = {number, host, ++clock_};
}

std::optional<scenario::HostId> MacTable::find(const spillway_station& station) const {
  const std::uint64_t number = number_of(station);
  const auto places = std::span(entries_).subspan(place_of(number, kWays), kWays);
  const auto place = std::ranges::find(places, number, &Entry::station);
  return place == places.end() ? std::nullopt : std::optional(place->host);
}

}  // namespace spillway::fabric
