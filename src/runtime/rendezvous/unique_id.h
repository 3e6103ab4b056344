// SPDX-License-Identifier: Apache-2.0
//
// 128 opaque bytes that bring ranks together, as ncclUniqueId: one rank, any, makes them, the
// caller moves them to the others by whatever it has (a store, a file, MPI), and all hand them to
// exchange().
//
//   magic 8, version 2, family 2, port 2, zero 2, address 16, nonce 16, zero 76, check 4 = 128
//
// Making an id opens the socket at which the maker will host the rendezvous, so that the others may
// come first. The process owns it until one of its ranks joins or the id is discarded; a child
// after fork() does not. Limit: kMaxUnusedIds of a process. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "base/status.h"
#include "net/address.h"
#include "net/system_call.h"
#include "runtime/launch/rendezvous_point.h"

namespace spillway::runtime {

struct UniqueId {
  std::array<std::uint8_t, 128> bytes{};

  friend bool operator==(const UniqueId&, const UniqueId&) = default;
};
static_assert(std::is_trivially_copyable_v<UniqueId> && sizeof(UniqueId) == 128);

inline constexpr std::size_t kMaxUnusedIds = 64;

// Listens at `address`, which the others must be able to reach (interfaces.h); its port may be 0.
base::Result<UniqueId> create_unique_id(const net::SocketAddress& address);
// The same at an address of this host that others can reach, as the environment says.
base::Result<UniqueId> create_reachable_unique_id();

// Gives up an id that nobody will join. Nothing happens where it is not this process's.
void discard_unique_id(const UniqueId& id);

struct UniqueIdContent {
  net::SocketAddress address{};
  Nonce nonce{};
};

UniqueId encode_unique_id(const UniqueIdContent& content);
base::Result<UniqueIdContent> parse_unique_id(const UniqueId& id);
RendezvousPoint point_of(const UniqueIdContent& content);

// The socket that came with the id, for the first who asks in the process that made it; else
// invalid.
net::UniqueFd take_listener(const UniqueIdContent& content);

}  // namespace spillway::runtime
