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

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "comm/rendezvous/handshake.h"
#include "elastic/membership/view.h"
#include "launch/launch.h"
#include "net/address.h"

namespace spillway::elastic {

inline constexpr std::size_t kMaxTicketFileBytes = 4096;
inline constexpr std::size_t kMaxTicketAddresses = 3;

struct Ticket {
  std::vector<net::SocketAddress> addresses{};  // 1 to kMaxTicketAddresses, in the order to try
  launch::Nonce job{};

  std::string to_string() const;
  std::string addresses_text() const;  // for people: "10.0.0.3:41234, 10.0.0.4:52000"
  // A name by which people and monitoring tell jobs apart. It is derived from the nonce, which
  // cannot be recovered from it.
  std::string name() const;
  // Authenticates the holder: the job's secret if there is one, else the nonce.
  base::Result<comm::Credential> credential(base::ByteView secret) const;
  // Writes a file that only this user can read (base/own_file.h).
  base::Status write_to(const std::string& path) const;
};

// Reads a ticket's text from a file of write_to(). Another user's file is refused: its ticket would
// lead into that user's job.
base::Result<std::string> ticket_text_in(const std::string& path);

base::Result<Ticket> parse_ticket(std::string_view text);

// ------------------------------------------------------------------ questions

// Asks a running job one question, as a tool that is no member: it connects to a member that the
// ticket names and waits for one answer. Also parses requests. Any thread.

// Parses "move RANK...", "remove RANK...", "grow COUNT" or "end". "status" is no request.
base::Result<membership::ChangeRequest> parse_request(const std::string& question);

// Questions as in Job::ask(). `secret`: the job's secret, or empty. Blocks for at most `limit`.
base::Result<std::string> ask_job(const Ticket& ticket, base::ByteView secret,
                                  const std::string& question, base::Duration limit);

// A job's status, as one of its members sees it: JSON for tools (`spillway job status`), and
// Prometheus' text with names that begin with spillway_job_.
//
// Plain values and pure functions; any thread.

struct MemberReport {
  std::optional<std::uint32_t> rank{};  // unset: a standby
  std::uint64_t id = 0;
  std::string name{};
  std::string address{};
  bool waits = false;  // a newcomer, not in the view until the next change
};

struct JobReport {
  std::string job{};  // Ticket::name(), since readers of reports may not have the ticket
  std::uint32_t epoch = 0;
  std::optional<std::uint32_t> rank{};  // this member's rank; unset: a standby
  std::uint64_t step = 0;
  std::vector<MemberReport> members{};  // ranks in order, then standbys
  std::vector<std::string> stragglers{};
  std::string waits_for{};

  // The last change, in wall-clock times.
  std::string why{};
  std::uint64_t change_step = 0;
  std::int64_t interrupted_ns = 0;
  std::int64_t parked_ns = 0;
  std::int64_t decided_ns = 0;

  // Counted since this process became a member.
  std::uint64_t changes = 0;
  std::uint64_t interruptions = 0;  // of running steps
  base::Duration stopping{};        // from the order to stop until parked
  base::Duration deciding{};        // from parked to decided; not counted at standbys
};

std::string status_json(const JobReport& report);
std::string metrics_text(const JobReport& report);

}  // namespace spillway::elastic
