// SPDX-License-Identifier: Apache-2.0
//
// How large all-reduces are carried out: by which plan, over datagrams or streams, as values or as
// their code, and with which shares of the ranks. All of it is found on the job's own traffic,
// because none of it changes a result: an exact sum has the same bits in every way
// (exact/planner.h).
//
//   Ways        what the next large all-reduce does, at all ranks alike
//   WayTrials   tries several ways in turn, keeps the fastest, and looks again from time to time
//
// The same at all ranks, although ranks are not at the same operation at the same time: after every
// so many bytes an operation is a survey (survey.h), in which all ranks tell all others what they
// measured. The consequences apply from the kLag-th operation after it on. Which operations
// survey depends on their order and sizes alone, which all ranks know. A rank that has not heard
// from all others when the kLag-th operation is about to begin waits; notes come before data, so
// that is rare.
//
// No cycle of waiting can form: an operation waits for notes of an earlier one, and these only wait
// until their ranks have begun it.
//
// Operations from one change of the way to the next are a stretch. A rank measures for how long
// operations of the stretch were under way, whether one or several at a time, and the rank that
// waited least for others counts: it came last, so that its time is the network's.
//
// One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/units.h"
#include "collective/byte_payload.h"
#include "collective/link_shares.h"
#include "collective/operation.h"
#include "collective/shards.h"
#include "collective/survey.h"
#include "transport/message.h"

namespace spillway::collective {

struct Way {
  Algorithm algorithm = Algorithm::kAutomatic;
  transport::Carrier carrier = transport::Carrier::kDatagrams;
  ByteForm form = ByteForm::kPlain;  // of exact messages of floats

  friend bool operator==(const Way&, const Way&) = default;
};

// Datagrams are tried with every plan, then a stream with the best of them, and then code in the
// best way so far, unless the network is too fast for any coder. Each is tried twice, in turn. One
// way takes another's place only if it was faster at its worst than the other at its best: what
// others send through the network changes from one stretch to the next.
class WayTrials {
 public:
  // At least one plan, the usual one first.
  WayTrials(std::vector<Algorithm> plans, bool may_stream, bool may_code)
      : plans_(std::move(plans)),
        may_stream_(may_stream),
        may_code_(may_code),
        paces_(plans_.size() + 2) {}

  Way current() const { return way_at(current_); }
  // Counts stretches: operations that began in another one say nothing about this one.
  std::uint32_t stretch() const { return stretch_; }
  // The stretch took so many picoseconds a byte. 0: unknown, so that it goes on. `has_streams`: all
  // ranks have streams to all others.
  void conclude(std::uint64_t pace, bool has_streams);

 private:
  struct Paces {
    std::uint64_t best = 0;  // 0: none yet
    std::uint64_t worst = 0;
  };

  // In paces_, behind the plans.
  std::size_t stream() const { return plans_.size(); }
  std::size_t code() const { return plans_.size() + 1; }
  Way way_at(std::size_t index) const;
  bool is_better(std::size_t one, std::size_t other) const;
  std::size_t best_plan() const;
  std::size_t best_plain() const;
  bool may_try_code() const;
  void begin_trial();
  void try_next(bool has_streams);
  void settle();

  std::vector<Algorithm> plans_;
  bool may_stream_;
  bool may_code_;
  std::vector<Paces> paces_;  // in this trial, by plan, then the stream's and the code's
  std::size_t current_ = 0;   // in paces_
  std::size_t chosen_ = 0;    // by the trial before
  bool is_trying_ = true;
  std::size_t tried_ = 0;        // stretches of this part of the trial: plans, stream or code
  std::uint32_t settled_ = 0;    // stretches since the trial
  std::uint32_t patience_ = 64;  // stretches from one trial to the next
  std::uint32_t slow_ = 0;       // latest stretches that were much slower than in the trial
  std::uint32_t stretch_ = 0;
};

class Ways {
 public:
  static constexpr unsigned kLag = 2;

  struct Choice {
    Way way{};
    Shares shares{};
    bool is_survey = false;
    std::uint32_t stretch = 0;
  };

  // `survey_bytes`: least bytes of operations from one survey to the next; the same at all ranks.
  // `plans`: for exact ones. `may_stream`: streams may come to be open.
  Ways(std::uint16_t ranks, std::size_t survey_bytes, std::vector<Algorithm> plans, bool may_stream)
      : survey_bytes_(survey_bytes),
        trials_{WayTrials(std::move(plans), may_stream, /*may_code=*/true),
                WayTrials({Algorithm::kAutomatic}, may_stream, /*may_code=*/false)},
        notes_(ranks) {}

  // True if the next operation has to wait for notes.
  bool is_waiting() const { return lag_ == 1 && missing_ > 0; }
  // The next operation begins; call only if not is_waiting().
  Choice begin(Traffic traffic, std::size_t bytes);
  // One that took its way from here has ended.
  void on_end(Traffic traffic, const Choice& choice, std::size_t bytes, base::Instant started,
              base::Instant ended);

  // Shares of the operation that began last, until the next one begins.
  const Shares& shares() const { return shares_; }
  Way way(Traffic traffic) const { return trials(traffic).current(); }

  // This rank's note in a survey that begins.
  RankNote own_note(std::uint64_t capacity, bool has_streams) const;
  // A rank's note has come.
  void record(std::uint16_t rank, const RankNote& note) {
    notes_[rank] = note;
    missing_ -= missing_ > 0 ? 1 : 0;
  }
  // A rank has left: operations that need its notes will not happen.
  void give_up() {
    was_given_up_ = true;
    missing_ = 0;
  }

 private:
  // Time and bytes of operations of the latest stretch.
  struct Meter {
    struct Busy {
      base::Instant from;
      base::Instant to;
    };

    base::Duration busy_time() const;

    std::uint32_t stretch = 0;
    base::Instant foreign_to{};  // operations that met those of another stretch do not count
    base::Instant latest{};      // end
    std::vector<Busy> busy{};    // while operations were under way; apart from each other, in order
    std::uint64_t bytes = 0;
  };

  const WayTrials& trials(Traffic traffic) const {
    return trials_[static_cast<std::size_t>(traffic)];
  }
  void conclude();

  std::size_t survey_bytes_;
  std::array<WayTrials, kTraffics> trials_;
  std::array<Meter, kTraffics> meters_{};
  Shares shares_;
  std::vector<RankNote> notes_;  // by rank
  std::size_t bytes_ = 0;        // since the latest survey
  std::size_t missing_ = 0;      // its notes that have not come
  unsigned lag_ = 0;             // operations until it counts
  bool was_given_up_ = false;
};

}  // namespace spillway::collective
