// SPDX-License-Identifier: Apache-2.0
//
// What it takes to find a running job, as text: where a member of it listens, and the job's nonce.
//
//   10.0.0.3:41234/3f09a1...   whoever has it, and the job's secret where there is one, may join,
//                              ask and change who is a member: keep it as you keep a unique id
//
// A plain value; any text gives one or an error.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "net/address.h"
#include "runtime/launch/rendezvous_point.h"

namespace spillway::runtime {

struct Ticket {
  net::SocketAddress address{};
  Nonce job{};

  std::string to_string() const;
};

base::Result<Ticket> parse_ticket(std::string_view text);

}  // namespace spillway::runtime
