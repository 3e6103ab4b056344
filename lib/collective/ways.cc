// SPDX-License-Identifier: Apache-2.0
#include "collective/ways.h"

#include <algorithm>

namespace spillway::collective {
namespace {

// A way has to save at least so much to take another's place.
constexpr double kWorthIt = 1.05;
// A way that has become so much slower than in its trial is tried against the others again, if it
// stays so for some stretches.
constexpr double kMuchSlower = 1.15;
constexpr std::uint32_t kSlowStretches = 4;
constexpr std::size_t kRounds = 2;  // stretches of a trial for each way
// While trials confirm the choice, they become rarer.
constexpr std::uint32_t kLeastPatience = 64;
constexpr std::uint32_t kMostPatience = 512;
// Picoseconds a byte of an all-reduce. Where it is faster, no coder keeps up, so that the trial
// would only cost time.
constexpr std::uint64_t kFasterThanCoders = 500;

}  // namespace

void WayTrials::conclude(std::uint64_t pace, bool has_streams) {
  const bool has_lost_stream = current().carrier == transport::Carrier::kStream && !has_streams;
  if (plans_.size() == 1 && !may_stream_ && !may_code_) {
    ++stretch_;  // so that measurements of it end, too
    return;
  }
  if (has_lost_stream) {
    ++stretch_;
    begin_trial();
  }
  if (pace == 0 || has_lost_stream) {
    return;
  }
  ++stretch_;
  if (is_trying_) {
    Paces& paces = paces_[current_];
    paces.best = paces.best == 0 ? pace : std::min(paces.best, pace);
    paces.worst = std::max(paces.worst, pace);
    try_next(has_streams);
    return;
  }
  const auto usual = static_cast<double>(paces_[current_].worst);
  slow_ = static_cast<double>(pace) > kMuchSlower * usual ? slow_ + 1 : 0;
  if (++settled_ >= patience_ || slow_ >= kSlowStretches) {
    begin_trial();
  }
}

void WayTrials::begin_trial() {
  chosen_ = current_;
  current_ = 0;
  is_trying_ = true;
  tried_ = 0;
  std::fill(paces_.begin(), paces_.end(), Paces{});
}

// Plans take turns; stream and code follow, where they may.
void WayTrials::try_next(bool has_streams) {
  ++tried_;
  if (current_ < stream() && tried_ < kRounds * plans_.size()) {
    current_ = tried_ % plans_.size();
    return;
  }
  if (current_ >= stream() && tried_ < kRounds) {
    return;
  }
  tried_ = 0;
  if (current_ < stream() && may_stream_ && has_streams) {
    current_ = stream();
  } else if (current_ < code() && may_try_code()) {
    current_ = code();
  } else {
    settle();
  }
}

Way WayTrials::way_at(std::size_t index) const {
  if (index == code()) {
    Way way = way_at(best_plain());
    way.form = ByteForm::kCode;
    return way;
  }
  return index == stream() ? Way{plans_[best_plan()], transport::Carrier::kStream}
                           : Way{plans_[index], transport::Carrier::kDatagrams};
}

bool WayTrials::is_better(std::size_t one, std::size_t other) const {
  return paces_[one].worst != 0 && static_cast<double>(paces_[one].worst) * kWorthIt <
                                       static_cast<double>(paces_[other].best);
}

std::size_t WayTrials::best_plan() const {
  std::size_t best = 0;
  for (std::size_t plan = 1; plan < plans_.size(); ++plan) {
    best = is_better(plan, best) ? plan : best;
  }
  return best;
}

std::size_t WayTrials::best_plain() const {
  const std::size_t plan = best_plan();
  return is_better(stream(), plan) ? stream() : plan;
}

bool WayTrials::may_try_code() const {
  return may_code_ && paces_[best_plain()].best > kFasterThanCoders;
}

void WayTrials::settle() {
  const std::size_t plain = best_plain();
  const std::size_t best = is_better(code(), plain) ? code() : plain;
  patience_ = best == chosen_ ? std::min(2 * patience_, kMostPatience) : kLeastPatience;
  current_ = best;
  is_trying_ = false;
  settled_ = 0;
  slow_ = 0;
}

Ways::Choice Ways::begin(Traffic traffic, std::size_t bytes) {
  bytes_ += bytes;
  bool is_survey = false;
  if (lag_ > 0) {
    if (--lag_ == 0 && !was_given_up_) {
      conclude();
    }
  } else if (bytes_ >= survey_bytes_) {
    bytes_ = 0;
    lag_ = kLag;
    missing_ = notes_.size();
    is_survey = true;
  }
  return {trials(traffic).current(), shares_, is_survey, trials(traffic).stretch()};
}

void Ways::conclude() {
  std::vector<std::uint64_t> capacities;
  std::array<std::uint64_t, kTraffics> paces{};
  bool has_streams = true;
  for (const RankNote& note : notes_) {
    capacities.push_back(note.capacity);
    has_streams &= note.has_streams;
    for (std::size_t i = 0; i < kTraffics; ++i) {
      const std::uint64_t told = note.paces[i];
      paces[i] = told == 0 || (paces[i] != 0 && paces[i] < told) ? paces[i] : told;
    }
  }
  shares_ = next_shares(shares_, capacities);
  for (std::size_t i = 0; i < kTraffics; ++i) {
    trials_[i].conclude(paces[i], has_streams);
  }
}

base::Duration Ways::Meter::busy_time() const {
  base::Duration sum;
  for (const Busy& each : busy) {
    sum += each.to - each.from;
  }
  return sum;
}

void Ways::on_end(Traffic traffic, const Choice& choice, std::size_t bytes, base::Instant started,
                  base::Instant ended) {
  Meter& meter = meters_[static_cast<std::size_t>(traffic)];
  if (meter.stretch != trials(traffic).stretch()) {
    meter = {
        .stretch = trials(traffic).stretch(), .foreign_to = meter.latest, .latest = meter.latest};
  }
  meter.latest = ended;
  if (choice.stretch != meter.stretch) {
    meter.foreign_to = ended;
    return;
  }
  if (started < meter.foreign_to) {
    return;
  }
  // Operations are told in the order of their ends, so only the latest times can meet this one's.
  while (!meter.busy.empty() && meter.busy.back().to >= started) {
    started = std::min(started, meter.busy.back().from);
    meter.busy.pop_back();
  }
  meter.busy.push_back({started, ended});
  meter.bytes += bytes;
}

RankNote Ways::own_note(std::uint64_t capacity, bool has_streams) const {
  RankNote note{.capacity = capacity, .has_streams = has_streams};
  for (std::size_t i = 0; i < kTraffics; ++i) {
    const Meter& meter = meters_[i];
    if (meter.bytes > 0 && meter.stretch == trials_[i].stretch()) {
      const double picoseconds = static_cast<double>(meter.busy_time().count()) * 1'000.0;
      note.paces[i] = std::max<std::uint64_t>(
          1, static_cast<std::uint64_t>(picoseconds / static_cast<double>(meter.bytes)));
    }
  }
  return note;
}

}  // namespace spillway::collective
