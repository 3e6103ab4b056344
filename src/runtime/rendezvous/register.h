// SPDX-License-Identifier: Apache-2.0
//
// The host's list of a rendezvous: who has come, who is refused and why, who is missed, and when
// patience ends. It does no I/O and is handed the time.
//
// Invariants: a rank is here once. Once all were here the list is sealed: the blobs may have been
// handed out, so a rank that drops out then may come back, but no other process in its place.
// The first to lose patience, of those who are here, ends it for all: nobody would wait for them.
// One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "runtime/rendezvous/message.h"

namespace spillway::runtime {

// What a rank brings to a rendezvous besides its blob.
struct Attendance {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  Nonce nonce{};
  base::Duration patience{};
  Random random{};  // its part of the run's key
};

class Register {
 public:
  // The host is here from the beginning, and needs not be told anything.
  Register(const Attendance& host, const Blob& own, base::Instant now);

  // Why the guest cannot enter, if so.
  std::optional<Refusal> objection(const Hello& hello) const;
  // Without objection. The same process may enter again.
  void enter(const Hello& hello, base::Instant now);
  void leave(std::uint32_t rank);
  // It has been told everything.
  void mark_served(std::uint32_t rank);

  bool is_here(std::uint32_t rank) const { return slots_[rank].here; }
  // All are here, or were.
  bool is_sealed() const { return sealed_; }
  bool all_served() const;
  // Of all ranks; what the host draws is not in it yet.
  Gather gather() const;

  base::Instant deadline() const { return first_to_go().deadline; }
  // "ranks 3 and 7 of 8 did not come to `where` within 30 s; ..."
  std::string verdict(const std::string& where) const;
  // The same of somebody who waits still.
  std::string interim(const std::string& where, base::Duration waited) const;

 private:
  struct Slot {
    bool here = false;
    bool served = false;
    std::uint64_t instance = 0;
    base::Instant deadline{};
    base::Duration patience{};
    Random random{};
    Blob blob{};
  };

  const Slot& first_to_go() const;
  std::vector<std::uint32_t> missing() const;

  Attendance host_;
  std::vector<Slot> slots_;
  bool sealed_ = false;
};

}  // namespace spillway::runtime
