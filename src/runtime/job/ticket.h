// SPDX-License-Identifier: Apache-2.0
//
// What it takes to find a running job, as text: where a member of it listens, and the job's nonce.
//
//   10.0.0.3:41234/3f09a1...   whoever has it, and the job's secret where there is one, may join,
//                              ask and change who is a member: keep it as you keep a unique id
//
// A plain value but for write_to(); any text gives one or an error.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "net/address.h"
#include "runtime/launch/rendezvous_point.h"
#include "runtime/rendezvous/handshake.h"

namespace spillway::runtime {

struct Ticket {
  net::SocketAddress address{};
  Nonce job{};

  std::string to_string() const;
  // By which its holder is known: the job's secret where there is one, else the nonce.
  base::Result<Credential> credential(base::ByteView secret) const;
  // For others to read: whole, or not at all.
  base::Status write_to(const std::string& path) const;
};

base::Result<Ticket> parse_ticket(std::string_view text);

}  // namespace spillway::runtime
