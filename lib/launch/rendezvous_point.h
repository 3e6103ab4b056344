// SPDX-License-Identifier: Apache-2.0
//
// Where the ranks of a job meet, and how they recognize the right meeting.
//
// There are several places if a port was derived and may be taken, or if a host has several
// addresses. Rank 0 listens at the first port it can bind; the other ranks try all in turn.
//
// A nonce is sixteen bytes that tell one job's rendezvous from another's. A derived nonce is made
// of words that every rank of the job knows. It keeps unrelated jobs apart, but it is no secret and
// proves nothing. A random nonce is that of a unique id: only ranks that were given the id know it,
// and it authenticates them (rendezvous/handshake.h).
//
// Plain values; the connecting rank looks names up. Any thread; only random_nonce() asks the
// kernel.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spillway::runtime {

using Nonce = std::array<std::uint8_t, 16>;

base::Result<Nonce> random_nonce();

// The same words in the same order give the same nonce on every machine; ("ab", "c") is not
// ("a", "bc").
Nonce nonce_of(std::span<const std::string> words);

// "3f09...", for names and messages.
std::string to_hex(const Nonce& nonce);

struct Place {
  std::string host{};  // a name, or an IPv4 or IPv6 address without brackets
  std::uint16_t port = 0;

  std::string to_string() const;
  friend bool operator==(const Place&, const Place&) = default;
};

// Parses "host:port", "10.0.0.1:29517" or "[fd00::1]:29517", the forms of SPILLWAY_COMM_ID.
base::Result<Place> parse_place(std::string_view text);

struct RendezvousPoint {
  std::vector<Place> places{};
  // Name of an abstract Unix socket of this machine. If it is set, there are no places.
  std::string local_name{};
  Nonce nonce{};

  // True if no rank can meet there: fine for a world of one.
  bool empty() const { return places.empty() && local_name.empty(); }
  // For messages.
  std::string to_string() const;
};

// Ports from 20000 to 32767, which Linux gives to no outgoing connection. The same words give the
// same ports everywhere.
inline constexpr std::size_t kDerivedPorts = 3;
std::vector<Place> derived_places(std::string_view host, std::span<const std::string> words);

}  // namespace spillway::runtime
