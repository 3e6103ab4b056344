// SPDX-License-Identifier: Apache-2.0
//
// A ticket leads to a running job: the addresses of some of its members and the job's nonce, as
// text.
//
//   10.0.0.3:41234,10.0.0.4:52000/3f09a1...   its holder may join and change the job (with the
//                                             job's secret, if it has one): keep it as you keep
//                                             a unique id
//
// Any of the members will do, so a ticket outlives all but one of them.
//
// A plain value but for write_to(); any text gives one or an error. Files: kMaxTicketFileBytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "net/address.h"
#include "runtime/launch/rendezvous_point.h"
#include "runtime/rendezvous/handshake.h"

namespace spillway::runtime {

inline constexpr std::size_t kMaxTicketFileBytes = 4096;
inline constexpr std::size_t kMaxTicketAddresses = 3;

struct Ticket {
  std::vector<net::SocketAddress> addresses{};  // 1 to kMaxTicketAddresses, in the order to try
  Nonce job{};

  std::string to_string() const;
  std::string addresses_text() const;  // for people: "10.0.0.3:41234, 10.0.0.4:52000"
  // By which people and monitoring tell jobs apart. It follows from the nonce, and the nonce cannot
  // be found from it.
  std::string name() const;
  // By which its holder is known: the job's secret where there is one, else the nonce.
  base::Result<Credential> credential(base::ByteView secret) const;
  // For processes of this user alone (base/own_file.h).
  base::Status write_to(const std::string& path) const;
};

// What write_to() left in a file. Another user's file is refused: its ticket would lead into a job
// of theirs.
base::Result<std::string> ticket_text_in(const std::string& path);

base::Result<Ticket> parse_ticket(std::string_view text);

}  // namespace spillway::runtime
