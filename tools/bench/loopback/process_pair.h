// SPDX-License-Identifier: Apache-2.0
//
// The common part of measurements on real sockets: two processes that measure together, and
// messages whose content costs nothing to make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/units.h"
#include "net/address.h"
#include "packetize/packet_plan.h"
#include "transport/message.h"
#include "wire/data_packet.h"

namespace spillway::bench {

// ------------------------------------------------------------------ two processes

// Two processes that measure something together, each on a core of its own: a sender and a
// receiver, started at the same time. A connected stream lets them exchange ports and notice that
// the other has ended. Each returns a figure; its CPU time is added.

struct SideResult {
  double bytes = 0.0;        // counted by the side
  double seconds = 0.0;      // duration of that count
  double cpu_seconds = 0.0;  // user and system, over the side's whole life
  double cycles = 0.0;       // over the side's whole life; 0 if the machine hides them
  double extra = 0.0;        // measurement-specific
};

// Runs on the side's process; `stream` leads to the other side.
using Side = std::function<SideResult(int stream)>;

// Throws CommandError if a process cannot be started or dies.
std::pair<SideResult, SideResult> run_pair(const Side& sender, const Side& receiver);

inline constexpr std::size_t kMaxGsoBytes = 65000;
inline constexpr int kSocketBufferBytes = 4 * 1024 * 1024;

// ---- helpers for both sides
net::SocketAddress loopback(std::uint16_t port);

base::Instant now();
double seconds_between(base::Instant a, base::Instant b);
void sleep_until(base::Instant when);

// Throw CommandError if the other side is gone.
void tell_port(int stream, std::uint16_t port);
std::uint16_t hear_port(int stream);

// True if the other side has ended.
bool is_done(int stream, int wait_milliseconds = 0);

// ------------------------------------------------------------------ messages

// Messages for measurements on real sockets: packets with the packetizer's layout, filled with
// random planes instead of an encoded tensor, so that the codec is not measured. Headers, checks
// and copies are real.

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
