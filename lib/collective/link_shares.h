// SPDX-License-Identifier: Apache-2.0
//
// Shares of a tensor that fit the ranks' links: how to choose them (best_shares()), when to choose
// anew (ShareSchedule), and how ranks tell each other what their links carry (CapacityNotes).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "collective/operation_run.h"
#include "collective/shards.h"

namespace spillway::collective {

// How much of a tensor each rank should own, by what the ranks' links can carry.
//
// Take a direct exchange among n ranks, and a rank that owns a share s. Each way its link carries
// the rest of the tensor once and its share n - 1 times: 1 + (n - 2) s tensors. A link that carries
// c takes (1 + (n - 2) s) / c for it, and everybody waits for the slowest. The time is least if all
// links take the same time T, except links so slow that T is not enough for the 1: they own
// nothing.
//
//   n = 4, c = 0.65, 1, 0.825, 1:   equal shares 2.31, best ones 6 / 3.475 = 1.73
//
// Shares move only if that gains something worth mentioning, and nearly equal ones become equal:
// measurements are never quite the same twice.
//
// Pure functions of whole numbers and + - * /: every rank computes the same.

// Capacity of each rank's link, in any unit. 0: the rank wants equal shares.
using Capacities = std::span<const std::uint64_t>;

// Larger capacities count as this.
inline constexpr std::uint64_t kMaxCapacity = std::uint64_t{1} << 40;

// Time for a tensor of one unit; all capacities above 0.
double exchange_time(const Shares& shares, Capacities capacities);

// The shares with the least time; all capacities above 0.
Shares best_shares(Capacities capacities);

// The shares to follow `current`: `current` itself, unless others are clearly better.
Shares next_shares(const Shares& current, Capacities capacities);

// Decides which shares each operation of a group uses: the same at all ranks, although ranks are
// not at the same operation at the same time.
//
// After every so many bytes an operation is a survey: all ranks tell all others what their links
// carry, in notes beside the operation (below). The new shares count from the kLag-th
// operation after it on. Which operations survey, and which use new shares, depends on their order
// and sizes alone, which all ranks know. A rank that has not heard from all others when such an
// operation is about to begin waits; notes come before data, so that is rare.
//
// No cycle of waiting can form: an operation waits for notes of an earlier one, and these only wait
// until their ranks have begun it.
//
// Counts only operations that shares matter to; it is asked once for each, in order. One thread.

class ShareSchedule {
 public:
  static constexpr unsigned kLag = 4;

  // `survey_bytes`: least bytes of operations from one survey to the next; the same at all ranks.
  ShareSchedule(std::uint16_t ranks, std::size_t survey_bytes)
      : survey_bytes_(survey_bytes), capacities_(ranks) {}

  // True if the next operation has to wait for notes.
  bool is_waiting() const { return lag_ == 1 && missing_ > 0; }

  // The next operation begins; call only if not is_waiting(). True: it is a survey.
  bool begin(std::size_t bytes) {
    bytes_ += bytes;
    if (lag_ > 0) {
      if (--lag_ == 0 && !was_given_up_) {
        shares_ = next_shares(shares_, capacities_);
      }
      return false;
    }
    if (bytes_ < survey_bytes_) {
      return false;
    }
    bytes_ = 0;
    lag_ = kLag;
    missing_ = capacities_.size();
    return true;
  }

  // Shares of the operation that began last, until the next one begins.
  const Shares& shares() const { return shares_; }

  // Records what a rank said in the survey.
  void record(std::uint16_t rank, std::uint64_t capacity) {
    capacities_[rank] = capacity;
    missing_ -= missing_ > 0 ? 1 : 0;
  }
  // A rank has left: operations that need its notes will not happen.
  void give_up() {
    was_given_up_ = true;
    missing_ = 0;
  }

 private:
  std::size_t survey_bytes_;
  Shares shares_;
  std::vector<std::uint64_t> capacities_;  // by rank
  std::size_t bytes_ = 0;                  // since the latest survey
  std::size_t missing_ = 0;                // its notes that have not come
  unsigned lag_ = 0;                       // operations until its shares count
  bool was_given_up_ = false;
};

// The notes of a survey (below): every rank tells every other what its link carries, in a
// message of 8 bytes at the highest priority. Notes travel in the note phase of an operation, whose
// other messages go on regardless.
//
// One thread; lives as long as its operation, which is not over before they are.

class CapacityNotes {
 public:
  // `like`: the id of the operation's messages. The config outlives the notes.
  CapacityNotes(const wire::MessageId& like, const RunConfig& config)
      : like_(like), config_(config), incoming_(config.group.world) {}

  // True for messages of the operation that are such notes.
  static bool is_one(const wire::MessageId& id) {
    return id.phase == wire::Phase::kNote && id.piece == kPart;
  }

  // Sends this rank's notes, and expects those of the others.
  base::Status start(std::uint64_t capacity, RunContext& context);
  // Returns the capacity in the note, if the note came.
  std::optional<std::uint64_t> on_received(const transport::ReceiveReport& report);
  void on_sent(const transport::SendReport& report) { messages_.on_sent(report); }

  // The rank no longer takes part. True if something was still under way between the two.
  bool on_left(std::uint16_t peer, RunContext& context);
  void withdraw(RunContext& context);
  bool is_idle() const { return messages_.empty(); }

 private:
  // Pieces and receipts of operations that survey have lower numbers.
  static constexpr std::uint16_t kPart = UINT16_MAX;
  static constexpr std::size_t kBytes = 8;
  using Bytes = std::array<std::uint8_t, kBytes>;

  wire::MessageId id_of(std::uint16_t source) const;

  wire::MessageId like_;
  const RunConfig& config_;
  MessageSet messages_;
  Bytes own_{};
  std::deque<ByteSource> sources_;
  std::vector<Bytes> incoming_;  // by rank
  std::deque<ByteSink> sinks_;
};

}  // namespace spillway::collective
