// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/intake.h"

#include <algorithm>
#include <optional>

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

void Intake::take_frame(scenario::HostId from, base::ByteView frame, base::Instant at) {
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

void Intake::forward(const sim::Packet& like, std::optional<scenario::HostId> to,
                     base::ByteView frame, base::Instant at) {
  if (!to) {
    flood(like, frame, at);
  } else if (spillway_returns(like.from, *to) != 0) {
    ++counters_.same_port;
  } else {
    add_frame_for(*to, like, frame, at);
  }
}

void Intake::flood(const sim::Packet& like, base::ByteView frame, base::Instant at) {
  for (scenario::HostId to = 0; to < hosts_; ++to) {
    if (spillway_returns(like.from, to) == 0) {
      add_frame_for(to, like, frame, at);
    }
  }
}

void Intake::add_frame_for(scenario::HostId to, const sim::Packet& like, base::ByteView frame,
                           base::Instant at) {
  const sim::PacketIndex index = pool_.allocate();
  sim::Packet& packet = pool_[index];
  packet = like;
  packet.to = to;
  base::copy_bytes(frame.data(), frame.size(), pool_.attach_payload(packet, frame.size()).data());
  arrivals_.push_back({at, like.from, index});
}

void Intake::take_datagram(const Datagram& datagram, base::Instant at) {
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

void Intake::stopped_at(base::Instant at) {
  stopped_at_ = stopped_ ? std::min(stopped_at_, at) : at;
  stopped_ = true;
}

base::Instant Intake::known_until(base::Instant now) const {
  return stopped_ ? std::min(stopped_at_, now) : now;
}

void Intake::next_round() {
  arrivals_.clear();
  stopped_ = false;
}

}  // namespace spillway::fabric
