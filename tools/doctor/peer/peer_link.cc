// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/peer/peer_link.h"

#include <random>
#include <utility>

#include "base/clock.h"
#include "wire/traffic_class.h"

namespace spillway::doctor {
namespace {

std::uint64_t draw_session() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace

std::uint8_t control_tos() {
  return SPILLWAY_DSCP_CONTROL << 2;
}

PeerLink::PeerLink(ProbeSocket socket, const net::SocketAddress& peer, std::uint64_t session)
    : socket_(std::move(socket)), peer_(peer), session_(session) {}

base::Result<PeerLink> PeerLink::open(const net::SocketAddress& peer) {
  base::Result<ProbeSocket> socket = ProbeSocket::open(net::SocketAddress::any(peer.family()));
  if (!socket.ok()) {
    return socket.status();
  }
  if (base::Status status = socket.value().connect(peer); !status.ok()) {
    return status;
  }
  socket.value().ignore_known_path_mtu();
  return PeerLink(std::move(socket).value(), peer, draw_session());
}

std::optional<PeerAnswer> PeerLink::ask(const Question& question) {
  const ProbePacket packet = {.type = question.type,
                              .tos = question.tos,
                              .answer_tos = question.answer_tos,
                              .session = session_,
                              .sequence = ++sequence_,
                              .sent_ns = base::time_of_day().count()};
  return send(packet, question.bytes) ? await(packet) : std::nullopt;
}

std::optional<PeerAnswer> PeerLink::ask_again(const Question& question, unsigned tries) {
  for (unsigned i = 0; i < tries; ++i) {
    if (std::optional<PeerAnswer> answer = ask(question)) {
      return answer;
    }
  }
  return std::nullopt;
}

// A pending ICMP error of an earlier question would make this send fail, so it is taken first.
bool PeerLink::send(const ProbePacket& packet, std::size_t bytes) {
  if (const int error = socket_.take_error(); error != 0) {
    last_error_ = error;
  }
  buffer_.resize(bytes);
  write_probe(packet, buffer_);
  const int error = socket_.send(buffer_, packet.tos);
  last_error_ = error != 0 ? error : last_error_;
  return error == 0;
}

std::optional<PeerAnswer> PeerLink::await(const ProbePacket& question) {
  const base::MonotonicClock clock;
  const base::Instant end = clock.now() + patience_;
  for (base::Instant now = clock.now(); now < end; now = clock.now()) {
    if (!socket_.wait(end - now)) {
      break;
    }
    const std::optional<ProbeArrival> arrival = socket_.receive();
    if (!arrival) {
      const int error = socket_.take_error();
      last_error_ = error != 0 ? error : last_error_;
      continue;
    }
    const std::optional<ProbePacket> packet = read_probe(arrival->bytes);
    if (packet && packet->type == answer_to(question.type) && packet->session == session_ &&
        packet->sequence == question.sequence) {
      return PeerAnswer{.packet = *packet,
                        .tos = arrival->tos,
                        .arrived_ns = arrival->wall_ns,
                        .summary = read_summary(arrival->bytes)};
    }
  }
  return std::nullopt;
}

}  // namespace spillway::doctor
