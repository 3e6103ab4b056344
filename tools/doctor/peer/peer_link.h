// SPDX-License-Identifier: Apache-2.0
//
// The prober's end: asks a listener one question at a time and waits for its answer. Ignores
// answers to other questions, of other sessions or from other addresses. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "tools/doctor/peer/probe_packet.h"
#include "tools/doctor/peer/probe_socket.h"

namespace spillway::doctor {

// The default TOS of questions: the code point of control packets.
std::uint8_t control_tos();

struct Question {
  ProbeType type = ProbeType::kEcho;
  std::uint8_t tos = control_tos();
  std::uint8_t answer_tos = control_tos();
  std::size_t bytes = kProbeBytes;
};

struct PeerAnswer {
  ProbePacket packet;
  std::uint8_t tos = 0;         // as the answer arrived
  std::int64_t arrived_ns = 0;  // time of day
  std::optional<ArrivalSummary> summary{};
};

class PeerLink {
 public:
  static base::Result<PeerLink> open(const net::SocketAddress& peer);

  // Returns nothing if no answer comes within the patience.
  std::optional<PeerAnswer> ask(const Question& question);
  // The same, up to `tries` times.
  std::optional<PeerAnswer> ask_again(const Question& question, unsigned tries);

  void set_patience(base::Duration patience) { patience_ = patience; }

  const net::SocketAddress& peer() const { return peer_; }
  std::uint64_t session() const { return session_; }
  // The errno of the last failure to send a question, or the last ICMP error for one; 0: none.
  int last_error() const { return last_error_; }

 private:
  PeerLink(ProbeSocket socket, const net::SocketAddress& peer, std::uint64_t session);

  bool send(const ProbePacket& packet, std::size_t bytes);
  std::optional<PeerAnswer> await(const ProbePacket& question);

  ProbeSocket socket_;
  net::SocketAddress peer_;
  std::uint64_t session_;
  std::uint32_t sequence_ = 0;
  base::Duration patience_ = base::milliseconds(250);
  int last_error_ = 0;
  std::vector<std::uint8_t> buffer_;
};

}  // namespace spillway::doctor
