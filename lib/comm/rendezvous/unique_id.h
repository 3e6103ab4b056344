// SPDX-License-Identifier: Apache-2.0
//
// 128 opaque bytes that bring ranks together, like ncclUniqueId. Any one rank makes them, and the
// caller moves them to the others by its own means (a store, a file, MPI). All ranks pass them to
// exchange().
//
//   magic 8, version 2, family 2, port 2, zero 2, address 16, nonce 16, zero 76, check 4 = 128
//
// Making an id opens the socket at which the maker will host the rendezvous, so the other ranks may
// come first. The process owns the socket until one of its ranks joins or the id is discarded; a
// fork()ed child does not own it. Limit: kMaxUnusedIds per process. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "base/status.h"
#include "launch/rendezvous_point.h"
#include "net/address.h"
#include "net/system_call.h"

namespace spillway::runtime {

struct UniqueId {
  std::array<std::uint8_t, 128> bytes{};

  friend bool operator==(const UniqueId&, const UniqueId&) = default;
};
static_assert(std::is_trivially_copyable_v<UniqueId> && sizeof(UniqueId) == 128);

inline constexpr std::size_t kMaxUnusedIds = 64;

// Listens at `address`, which the other ranks must be able to reach (interfaces.h); port 0 means
// any.
base::Result<UniqueId> create_unique_id(const net::SocketAddress& address);
// The same at an address of this host that others can reach, chosen by the environment.
base::Result<UniqueId> create_reachable_unique_id();

// Discards an id that no rank will join. Does nothing in a process that did not make it.
void discard_unique_id(const UniqueId& id);

struct UniqueIdContent {
  net::SocketAddress address{};
  Nonce nonce{};
};

UniqueId encode_unique_id(const UniqueIdContent& content);
base::Result<UniqueIdContent> parse_unique_id(const UniqueId& id);
RendezvousPoint point_of(const UniqueIdContent& content);

// The id's socket, for the first caller in the process that made it; else invalid.
net::UniqueFd take_listener(const UniqueIdContent& content);

}  // namespace spillway::runtime
