// SPDX-License-Identifier: Apache-2.0
//
// The host's list of a rendezvous: which ranks have come, whom it refuses and why, who is missing,
// and when patience ends. It does no I/O and is given the time.
//
// Invariants: a rank is here at most once. Once all ranks have come, the list is sealed: blobs may
// have been sent, so a rank that drops out may reconnect, but no other process may take its place.
// The earliest deadline of the ranks here ends the wait for all, since they would wait in vain for
// that rank. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "comm/rendezvous/message.h"

namespace spillway::comm {

// A rank's part of a rendezvous besides its blob.
struct Participant {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  launch::Nonce nonce{};
  base::Duration patience{};
  Random random{};  // this rank's part of the run's key
};

class Register {
 public:
  // The host counts as here and served from the beginning.
  Register(const Participant& host, const Blob& own, base::Instant now);

  // Why the joiner cannot enter; nullopt if it can.
  std::optional<Refusal> objection(const Hello& hello) const;
  // Requires that there is no objection. The same process may enter again.
  void enter(const Hello& hello, base::Instant now);
  void leave(std::uint32_t rank);
  // The rank has received the gather.
  void mark_served(std::uint32_t rank);

  bool is_here(std::uint32_t rank) const { return slots_[rank].here; }
  // True once all ranks have been here.
  bool is_sealed() const { return sealed_; }
  bool all_served() const;
  // The gather of all ranks, without the host's drawn key.
  Gather gather() const;

  base::Instant deadline() const { return first_to_go().deadline; }
  // "ranks 3 and 7 of 8 did not come to `where` within 30 s; ..."
  std::string failure_text(const std::string& where) const;
  // The same while the host still waits.
  std::string waiting_text(const std::string& where, base::Duration waited) const;

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

  Participant host_;
  std::vector<Slot> slots_;
  bool sealed_ = false;
};

// The wording and timing of a rendezvous's messages to people.
//
// A waiting rank logs so after kFirstNotice, then at doubling intervals: a hung job explains
// itself, and the log does not fill up.
//
// Plain values, given the time, and pure functions. One thread.

inline constexpr base::Duration kFirstNotice = base::seconds(10);

class WaitNotice {
 public:
  explicit WaitNotice(base::Instant begin) : begin_(begin) {}

  // When the next notice is due.
  base::Instant next() const { return begin_ + after_; }
  base::Duration waited(base::Instant now) const { return now - begin_; }

  // True once for each time that a notice is due.
  bool is_due(base::Instant now) {
    if (now < next()) {
      return false;
    }
    while (next() <= now) {
      after_ = after_ * 2;
    }
    return true;
  }

 private:
  base::Instant begin_;
  base::Duration after_ = kFirstNotice;
};

// "rank 3 of 8", "ranks 3 and 7 of 8", "ranks 1-5 and 7 of 8". Long lists end with the number of
// others. `ranks` ascend and are not empty.
std::string name_ranks(std::span<const std::uint32_t> ranks, std::uint32_t world);

// "30 s", "250 ms"
std::string name_duration(base::Duration duration);

}  // namespace spillway::comm
