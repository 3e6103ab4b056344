// SPDX-License-Identifier: Apache-2.0
//
// Messages for measurements on real sockets: packets with the packetizer's layout, filled with
// random planes instead of an encoded tensor, so that the codec is not measured. Headers, checks
// and copies are real.
#pragma once

#include <cstdint>
#include <vector>

#include "packetize/packet_plan.h"
#include "transport/message.h"
#include "wire/data_packet.h"

namespace spillway::bench {

// The plan of a message with packets of at most `datagram_bytes` of UDP payload and at least
// `bytes` of planes in total.
packetize::PacketPlan plan_of_size(std::uint64_t bytes, unsigned datagram_bytes,
                                   unsigned trim_bytes);

// A packet's planes within those of all packets.
struct PlaneSpan {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
};

class PlaneSource final : public transport::PayloadSource {
 public:
  // Each stamp carries the message's id.
  explicit PlaneSource(const packetize::PacketPlan& plan);

  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override;

 private:
  std::vector<std::uint8_t> planes_;  // of all packets, concatenated
  std::vector<PlaneSpan> spans_;      // per packet
  std::vector<wire::DataHeader> headers_;
};

class PlaneSink final : public transport::PayloadSink {
 public:
  explicit PlaneSink(const packetize::PacketPlan& plan);

  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override;

  // True if all planes of every packet match those of a PlaneSource.
  bool holds_what_was_sent() const;

 private:
  packetize::PacketPlan plan_;
  std::vector<std::uint8_t> planes_;
  std::vector<PlaneSpan> spans_;
};

}  // namespace spillway::bench
