// SPDX-License-Identifier: Apache-2.0
//
// Two endpoints and a network under the input's control. It sends and expects messages, delivers,
// drops, duplicates, refuses and damages datagrams, and lets time pass. Damaged control packets
// with repaired checks get through, as they would from a faulty member of the job.
//
// Nothing may crash and memory stays bounded. If every accepted packet was honest, messages that
// both ends know end once the network works again.
#include <algorithm>
#include <deque>
#include <list>
#include <vector>

#include "fuzzing.h"
#include "transport/datagram_port.h"
#include "wire/data_packet.h"

using namespace spillway;
using spillway::fuzzing::require;
using transport::DatagramPort;

namespace {

constexpr std::uint8_t kPlanes = 8;
constexpr std::uint32_t kMaxMessages = 24;
constexpr std::size_t kMaxInFlight = 2048;
constexpr int kFinalSteps = 20'000;
constexpr std::size_t kMemoryBound = 256 * 1024;

// Packets of 32 coordinates; their planes hold the packet's index.
class Source final : public transport::PayloadSource {
 public:
  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override {
    wire::DataHeader header;
    header.stamp = stamp;
    header.row_log2 = SPILLWAY_MIN_ROW_LOG2;
    header.rotations = 1;
    header.planes = kPlanes;
    header.row = stamp.packet / 8;
    header.slot = stamp.packet % 8;
    header.quanta = 1;
    header.head_bytes = 8;
    header.scale = 1.0F;
    const std::vector<std::uint8_t> planes(header.payload_bytes(),
                                           static_cast<std::uint8_t>(stamp.packet));
    return wire::write_data_packet(header, planes, auth, out);
  }
};

class Sink final : public transport::PayloadSink {
 public:
  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override {
    std::vector<std::uint8_t> planes(packet.header.payload_bytes());
    const std::size_t trusted = wire::copy_trusted_planes(bytes, packet, planes).bytes;
    require(std::all_of(planes.begin(), planes.begin() + static_cast<long>(trusted),
                        [&](std::uint8_t byte) {
                          return byte == static_cast<std::uint8_t>(packet.header.stamp.packet);
                        }));
    return static_cast<unsigned>(trusted / (packet.header.count() / 8));
  }
};

transport::EndpointConfig config_of(std::uint16_t rank) {
  transport::EndpointConfig config;
  config.rank = rank;
  config.limits = {.peers = 2,
                   .outgoing_messages = kMaxMessages,
                   .incoming_messages = kMaxMessages,
                   .finished_kept = 8};
  config.exchange.probe_max = base::milliseconds(5);
  config.exchange.peer_timeout = base::milliseconds(100);
  return config;
}

class World {
 public:
  World() {
    for (std::uint16_t rank = 0; rank < 2; ++rank) {
      ports_.emplace_back(config_of(rank), transport::SessionConfig());
      require(ports_[rank].add_peer(rank ^ 1U, now_).ok());
    }
  }

  // Executes one four-byte command.
  void act(const std::uint8_t* command) {
    const std::uint16_t rank = command[1] & 1U;
    switch (command[0] % 10) {
      case 0:
        begin(rank, command);
        break;
      case 1:
        poll(rank, command[2]);
        break;
      case 2:
        deliver(command[2], /*keep=*/false);
        break;
      case 3:
        deliver(command[2], /*keep=*/true);
        break;
      case 4:
        drop(command[2]);
        break;
      case 5:
        damage(command, /*repaired=*/false);
        break;
      case 6:
        damage(command, /*repaired=*/true);
        break;
      case 7:
        pass(base::microseconds(std::int64_t{1} << (command[2] % 18)));
        break;
      case 8:
        refuse(command);
        break;
      default:
        step();
    }
    look();
  }

  void finish() {
    for (int left = kFinalSteps; left > 0 && step(); --left) {
    }
    look();
    require(!is_honest_ || open_ == 0);
  }

 private:
  struct Datagram {
    std::uint16_t to = 0;
    std::vector<std::uint8_t> bytes;
  };

  void begin(std::uint16_t from, const std::uint8_t* command) {
    if (messages_ == kMaxMessages) {
      return;
    }
    transport::SendOptions send;
    send.id = {.operation = ++messages_, .source = from};
    send.to = from ^ 1U;
    send.packets = 1U + command[2];
    send.packet_bytes = 96;
    send.priority = command[3] & 7U;
    send.importance = command[3] >> 3 & 7U;
    send.loss.loss_bound_ppm = (command[3] & 0x40U) != 0 ? 100'000 : 0;
    send.source = &source_;
    transport::ReceiveOptions receive;
    receive.id = send.id;
    receive.packets = send.packets;
    receive.packet_bytes = send.packet_bytes;
    receive.planes = kPlanes;
    receive.priority = send.priority;
    receive.loss = send.loss;
    receive.sink = &sink_;
    const bool is_late = (command[3] & 0x80U) != 0;
    if (is_late) {
      open_ += ports_[from].endpoint().send(send, now_).ok() ? 1 : 0;
    }
    open_ += ports_[send.to].endpoint().expect(receive, now_).ok() ? 1 : 0;
    if (!is_late) {
      open_ += ports_[from].endpoint().send(send, now_).ok() ? 1 : 0;
    }
  }

  void poll(std::uint16_t rank, unsigned most) {
    std::array<std::uint8_t, SPILLWAY_MAX_PACKET> out;
    transport::Route route;
    for (unsigned left = most + 1; left > 0; --left) {
      const std::size_t size = ports_[rank].poll_datagram(now_, out, route);
      if (size == 0) {
        return;
      }
      require(route.peer == (rank ^ 1U) && size <= out.size());
      in_flight_.push_back({route.peer, {out.begin(), out.begin() + static_cast<long>(size)}});
      if (in_flight_.size() > kMaxInFlight) {
        in_flight_.pop_front();
      }
    }
  }

  void deliver(std::size_t which, bool keep) {
    if (in_flight_.empty()) {
      return;
    }
    which %= in_flight_.size();
    const Datagram datagram = in_flight_[which];
    if (!keep) {
      in_flight_.erase(in_flight_.begin() + static_cast<long>(which));
    }
    ports_[datagram.to].on_datagram(datagram.bytes, (datagram.bytes.size() & 1U) != 0, now_);
  }

  void drop(std::size_t which) {
    if (!in_flight_.empty()) {
      in_flight_.erase(in_flight_.begin() + static_cast<long>(which % in_flight_.size()));
    }
  }

  void damage(const std::uint8_t* command, bool repaired) {
    if (in_flight_.empty()) {
      return;
    }
    Datagram datagram = in_flight_[command[1] % in_flight_.size()];
    datagram.bytes[command[2] % datagram.bytes.size()] = command[3];
    if (repaired && !spillway_is_data_type(spillway_type_of(datagram.bytes[0]))) {
      repair(datagram.bytes);
      is_honest_ = false;
    }
    ports_[datagram.to].on_datagram(datagram.bytes, false, now_);
  }

  // A host refuses a datagram and quotes it, possibly altered. A port that believes the refusal
  // gives the peer up.
  void refuse(const std::uint8_t* command) {
    if (in_flight_.empty()) {
      return;
    }
    Datagram datagram = in_flight_[command[1] % in_flight_.size()];
    datagram.bytes[command[2] % datagram.bytes.size()] ^= command[3];
    const bool is_believed = ports_[datagram.to ^ 1U].on_refused(datagram.to, datagram.bytes, now_);
    require(!is_believed || command[3] == 0);
    is_honest_ = is_honest_ && !is_believed;
  }

  // Recomputes the check, as the packet's sender would have.
  void repair(std::vector<std::uint8_t>& bytes) const {
    wire::ControlPacket header;
    if (wire::read_control_header(bytes, header) != wire::PacketFault::kNone || header.source > 1) {
      return;
    }
    const transport::PeerSession& session = *ports_[header.source ^ 1U].session_with(header.source);
    header.sequence = wire::widen_counter(header.sequence, session.newest_control);
    const std::size_t end = bytes.size() - SPILLWAY_CHECK_SIZE;
    const wire::Check check = session.in.check(header.name(), base::ByteView(bytes).first(end));
    std::copy(check.bytes.begin(), check.bytes.end(), bytes.begin() + static_cast<long>(end));
  }

  void pass(base::Duration time) {
    now_ = now_ + time;
    for (DatagramPort& port : ports_) {
      port.endpoint().on_timeout(now_);
    }
  }

  // One step of a working network. False if nothing is left to happen.
  bool step() {
    poll(0, 31);
    poll(1, 31);
    for (std::size_t left = in_flight_.size(); left > 0; --left) {
      deliver(0, /*keep=*/false);
    }
    look();
    const base::Instant next =
        std::min(ports_[0].endpoint().next_timeout(), ports_[1].endpoint().next_timeout());
    const base::Instant soon = now_ + base::microseconds(10);
    if (next == transport::kNever && !is_active_) {
      return false;
    }
    pass(std::max(is_active_ ? soon : next, now_) - now_);
    return true;
  }

  // Drains events and checks the invariants.
  void look() {
    std::uint64_t sent = 0;
    for (DatagramPort& port : ports_) {
      transport::Event event;
      while (port.endpoint().poll_event(event)) {
        if (!std::holds_alternative<transport::PeerDead>(event)) {
          require(open_ > 0);
          --open_;
        }
        if (const auto* report = std::get_if<transport::ReceiveReport>(&event)) {
          require(report->delivered <= report->packets && report->whole <= report->delivered);
        }
      }
      require(port.endpoint().memory_bytes() < kMemoryBound);
      sent += port.endpoint().counters().data_sent + port.endpoint().counters().control_sent;
    }
    is_active_ = sent != sent_;
    sent_ = sent;
  }

  Source source_;
  Sink sink_;
  std::deque<DatagramPort> ports_;
  std::deque<Datagram> in_flight_;
  base::Instant now_{base::milliseconds(1)};
  std::uint32_t messages_ = 0;
  std::uint32_t open_ = 0;  // ends of messages whose completion is still to be reported
  bool is_honest_ = true;
  bool is_active_ = false;  // a datagram was sent recently
  std::uint64_t sent_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  World world;
  for (std::size_t at = 0; at + 4 <= std::min<std::size_t>(size, 2048); at += 4) {
    world.act(data + at);
  }
  world.finish();
  return 0;
}
