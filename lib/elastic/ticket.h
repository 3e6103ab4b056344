// SPDX-License-Identifier: Apache-2.0
//
// A ticket leads to a running job. It is text with the addresses of some members and the job's
// nonce.
//
//   10.0.0.3:41234,10.0.0.4:52000/3f09a1...   its holder may join and change the job (with the
//                                             job's secret, if it has one): protect it like a
//                                             unique id
//
// Any one of these members suffices, so a ticket works while one of them lives.
//
// A plain value, except for write_to(). Any text gives a ticket or an error. Files:
// kMaxTicketFileBytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "comm/rendezvous/handshake.h"
#include "launch/rendezvous_point.h"
#include "net/address.h"

namespace spillway::runtime {

inline constexpr std::size_t kMaxTicketFileBytes = 4096;
inline constexpr std::size_t kMaxTicketAddresses = 3;

struct Ticket {
  std::vector<net::SocketAddress> addresses{};  // 1 to kMaxTicketAddresses, in the order to try
  Nonce job{};

  std::string to_string() const;
  std::string addresses_text() const;  // for people: "10.0.0.3:41234, 10.0.0.4:52000"
  // A name by which people and monitoring tell jobs apart. It is derived from the nonce, which
  // cannot be recovered from it.
  std::string name() const;
  // Authenticates the holder: the job's secret if there is one, else the nonce.
  base::Result<Credential> credential(base::ByteView secret) const;
  // Writes a file that only this user can read (base/own_file.h).
  base::Status write_to(const std::string& path) const;
};

// Reads a ticket's text from a file of write_to(). Another user's file is refused: its ticket would
// lead into that user's job.
base::Result<std::string> ticket_text_in(const std::string& path);

base::Result<Ticket> parse_ticket(std::string_view text);

}  // namespace spillway::runtime
