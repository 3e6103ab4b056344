// SPDX-License-Identifier: Apache-2.0
#include "common/planes_channel.h"

#include <algorithm>

#include "common/dice.h"
#include "packetize/depacketizer.h"
#include "packetize/packetizer.h"

namespace spillway::experiments {
namespace {

// Bytes of a packet (a UDP payload) that arrive after it was hit.
std::size_t left_of(std::size_t size, Harm harm, const packetize::PacketLimits& fabric) {
  return harm == Harm::kLoss
             ? 0
             : std::min<std::size_t>(size, fabric.trim_bytes - fabric.frame_overhead());
}

void note_rows(const packetize::Depacketizer& receiver, const codec::RowLayout& rows,
               std::span<std::uint8_t> has_come) {
  for (std::size_t index = 0; index < rows.row_count(); ++index) {
    const codec::Row row = rows.row(index);
    std::fill_n(has_come.begin() + static_cast<std::ptrdiff_t>(row.offset), row.values,
                receiver.has_row(index) ? 1 : 0);
  }
}

experiment_delivery carry(const packetize::PacketBuffer& packets, const PlanesRoute& route,
                          const packetize::PacketLimits& fabric, const wire::PacketAuth& auth,
                          packetize::Depacketizer& receiver) {
  experiment_delivery delivery{};
  Dice dice(route.share, route.seed);
  for (std::size_t i = 0; i < packets.size(); ++i) {
    const base::ByteView packet = packets[i];
    const bool is_hit = dice.hits();
    const std::size_t left = is_hit ? left_of(packet.size(), route.harm, fabric) : packet.size();
    ++delivery.packets;
    delivery.hit += is_hit ? 1 : 0;
    delivery.bytes_sent += packet.size() + fabric.frame_overhead();
    if (left > 0) {
      delivery.bytes_arrived += left + fabric.frame_overhead();
      receiver.add(packet.first(left), auth);
    }
  }
  return delivery;
}

}  // namespace

base::Result<PlanesArrival> send_planes(std::span<const float> gradient, const PlanesRoute& route) {
  const packetize::PacketLimits fabric;
  const auto plan = packetize::PacketPlan::make(gradient.size(), fabric, {});
  if (!plan.ok()) {
    return plan.status();
  }
  const packetize::Job job{.id = 1, .epoch = 0, .seed = route.seed};
  const wire::PacketAuth auth = packetize::seeded_auth(job);
  const packetize::PacketBuffer packets =
      packetize::Packetizer(*plan).packetize(gradient, job, {}, auth);
  PlanesArrival arrival{
      std::vector<float>(gradient.size()), std::vector<std::uint8_t>(gradient.size()), {}};
  packetize::Depacketizer receiver(*plan, job, {}, arrival.values, route.estimate);
  arrival.delivery = carry(packets, route, fabric, auth, receiver);
  receiver.finish();
  note_rows(receiver, plan->layout(), arrival.has_come);
  return arrival;
}

}  // namespace spillway::experiments
