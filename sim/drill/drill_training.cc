// SPDX-License-Identifier: Apache-2.0
#include "sim/drill/drill_run.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::sim {
namespace {

constexpr std::uint64_t kTrainingStream = 0x7261696e;
constexpr std::uint64_t kFirstState = 0x5eed;
constexpr unsigned kTimerBits = 8;
constexpr double kPartLost = 0.5;  // probability, for a dead rank's part at each other rank

}  // namespace

DrillTraining::DrillTraining(const DrillWorld& world, std::size_t processes, DrillHost& host,
                             DrillRecord& record)
    : world_(world),
      host_(host),
      record_(record),
      random_(base::derive_key(world.seed, {kTrainingStream, 0, 0, 0})),
      apps_(processes) {}

membership::Handle DrillTraining::first_handle(ProcessIndex process) {
  App& app = apps_[process];
  app.handle = {static_cast<std::uint8_t>(process), static_cast<std::uint8_t>(process >> 8),
                app.handles++};
  return app.handle;
}

void DrillTraining::start_founder(ProcessIndex process, const membership::View& view) {
  App& app = apps_[process];
  app.decision.view = view;
  if (view.rank_of(id_of(process))) {
    app.has_state = true;
    app.state = kFirstState;
    begin_step(process);
  } else {
    park(process);
    enter(process, Stage::kStandby);
  }
}

void DrillTraining::enter(ProcessIndex process, Stage stage) {
  apps_[process].stage = stage;
  ++apps_[process].stages;
}

void DrillTraining::start(ProcessIndex process, base::Duration after, Timer timer) {
  host_.start_timer(process, after,
                    apps_[process].stages << kTimerBits | static_cast<std::uint64_t>(timer));
}

base::Duration DrillTraining::vary(base::Duration around) {
  return base::Duration(static_cast<std::int64_t>(static_cast<double>(around.count()) *
                                                  (0.8 + 0.4 * random_.next_unit())));
}

void DrillTraining::report_violation(std::string sentence) {
  record_.violations.push_back(std::move(sentence));
}

std::uint64_t DrillTraining::next_state(std::uint64_t state, std::uint64_t step,
                                        std::size_t ranks) const {
  return base::derive_key(
      state, {static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(ranks), 0, 0});
}

// ------------------------------------------------------------------ member events

void DrillTraining::on_event(ProcessIndex process, const membership::Event& event) {
  if (const auto* interrupt = std::get_if<membership::Interrupt>(&event)) {
    on_interrupt(process, *interrupt);
  } else if (const auto* decided = std::get_if<membership::Decided>(&event)) {
    on_decision(process, decided->decision);
  } else if (const auto* found = std::get_if<membership::StragglerFound>(&event)) {
    const bool is_new = stragglers_.emplace(apps_[process].epoch, found->rank).second;
    record_.stragglers += is_new ? 1 : 0;
    record_.moved += is_new && world_.config.replace_stragglers ? 1 : 0;
  }
}

void DrillTraining::on_interrupt(ProcessIndex process, const membership::Interrupt& interrupt) {
  App& app = apps_[process];
  if (app.stage == Stage::kStandby || app.stage == Stage::kParked || interrupt.epoch != app.epoch) {
    report_violation(fmt::format("process {} is interrupted in epoch {} although it stands still",
                                 process + 1, interrupt.epoch));
    return;
  }
  if (interrupt.at_step) {
    app.stop_at = interrupt.at_step;
    return;
  }
  change_since_ = change_since_.value_or(host_.now());
  if (app.stage != Stage::kStopping) {
    enter(process, Stage::kStopping);
    start(process, vary(world_.park) / 2, Timer::kStage);
  }
}

void DrillTraining::on_decision(ProcessIndex process, const membership::Decision& decision) {
  App& app = apps_[process];
  const auto [known, is_first] = record_.decisions.try_emplace(decision.view.epoch, decision);
  if (!is_first && !(known->second == decision)) {
    report_violation(fmt::format("epoch {} was decided twice", decision.view.epoch));
  }
  if (decision.outcome == membership::Outcome::kEnds) {
    return;
  }
  host_.on_phase(DrillPhase::kDecided);
  const auto rank = decision.view.rank_of(id_of(process));
  if (rank && decision.handles[*rank] != app.handle) {
    report_violation(fmt::format("epoch {} has another handle of process {} than it gave",
                                 decision.view.epoch, process + 1));
  }
  app.epoch = decision.view.epoch;
  app.decision = decision;
  app.stop_at.reset();
  app.tries = 0;
  if (!rank) {
    app.has_state = false;
    enter(process, Stage::kStandby);
    return;
  }
  const bool has_step = app.has_state && app.step == decision.step;
  const bool is_source = std::ranges::find(decision.sources, *rank) != decision.sources.end();
  if (has_step != is_source) {
    report_violation(fmt::format("epoch {} is wrong about whether rank {} has step {}",
                                 decision.view.epoch, *rank, decision.step));
  }
  enter(process, Stage::kConnecting);
  start(process, vary(world_.connect), Timer::kStage);
}

// ------------------------------------------------------------------ stages

void DrillTraining::on_timer(ProcessIndex process, std::uint64_t what) {
  if (what >> kTimerBits != apps_[process].stages) {
    return;
  }
  switch (static_cast<Timer>(what & ((1U << kTimerBits) - 1))) {
    case Timer::kStage:
      on_stage_over(process);
      break;
    case Timer::kCompletion:
      complete(process);
      break;
    case Timer::kDataCheck:
      check_data(process);
      break;
  }
}

void DrillTraining::on_stage_over(ProcessIndex process) {
  App& app = apps_[process];
  switch (app.stage) {
    case Stage::kConnecting:
      if (app.has_state && app.step == app.decision.step) {
        begin_step(process);
      } else {
        app.has_state = app.has_state && !world_.overwrites;
        enter(process, Stage::kFetching);
        start(process, vary(world_.fetch), Timer::kStage);
        host_.on_phase(DrillPhase::kFetching);
      }
      break;
    case Stage::kFetching:
      fetch(process);
      break;
    case Stage::kWorking:
      contribute(process);
      break;
    case Stage::kStopping:
      park(process);
      break;
    default:
      break;
  }
}

void DrillTraining::begin_step(ProcessIndex process) {
  App& app = apps_[process];
  if (app.step == world_.steps) {
    final_states_.push_back(app.state);
    enter(process, Stage::kFinished);
    host_.member(process).leave(true, host_.now());
    return;
  }
  if (app.stop_at && app.step >= *app.stop_at) {
    change_since_ = change_since_.value_or(host_.now());
    park(process);
    return;
  }
  enter(process, Stage::kWorking);
  host_.member(process).on_step(app.step, app.work, host_.now());
  app.work = vary(world_.work) * static_cast<std::int64_t>(app.slowness);
  start(process, app.work, Timer::kStage);
}

void DrillTraining::fetch(ProcessIndex process) {
  App& app = apps_[process];
  const membership::Decision& decision = app.decision;
  const std::uint32_t rank = decision.sources[(process + app.tries++) % decision.sources.size()];
  const ProcessIndex from = process_of(decision.view.ranks[rank]);
  const App& source = apps_[from];
  const bool is_there = host_.is_alive(from) && !host_.is_cut(process, from) &&
                        source.epoch == app.epoch && source.stage != Stage::kStopping &&
                        source.stage != Stage::kParked;
  if (!is_there) {
    start(process, vary(world_.fetch), Timer::kStage);
    return;
  }
  if (!source.has_state || source.step != decision.step) {
    report_violation(fmt::format("rank {} is a source of step {} in epoch {}, but has step {}",
                                 rank, decision.step, app.epoch, source.step));
  }
  app.has_state = true;
  app.step = source.step;
  app.state = source.state;
  begin_step(process);
}

void DrillTraining::park(ProcessIndex process) {
  App& app = apps_[process];
  enter(process, Stage::kParked);
  host_.member(process).on_parked(app.epoch, {.has_state = app.has_state, .step = app.step},
                                  first_handle(process), host_.now());
}

// ------------------------------------------------------------------ sums

void DrillTraining::contribute(ProcessIndex process) {
  App& app = apps_[process];
  enter(process, Stage::kReducing);
  if (app.epoch > 1) {
    host_.on_phase(DrillPhase::kFirstStep);
    if (change_since_) {
      record_.longest_change = std::max(record_.longest_change, host_.now() - *change_since_);
      change_since_.reset();
    }
  }
  const auto [at, is_first] = sums_.try_emplace({app.epoch, app.step}, Sum{app.state, {}});
  Sum& sum = at->second;
  if (is_first && app.step < latest_step_) {
    ++record_.steps_repeated;
  }
  latest_step_ = std::max(latest_step_, app.step + 1);
  if (sum.state != app.state) {
    report_violation(fmt::format("process {} takes part in step {} of epoch {} with another state",
                                 process + 1, app.step, app.epoch));
  }
  if (!app.decision.view.rank_of(id_of(process)) ||
      std::ranges::find(sum.parts, process) != sum.parts.end()) {
    report_violation(fmt::format("process {} is not to take part in step {} of epoch {}",
                                 process + 1, app.step, app.epoch));
  }
  sum.parts.push_back(process);
  start(process, vary(world_.data_limit), Timer::kDataCheck);
  if (sum.parts.size() == app.decision.view.ranks.size()) {
    distribute(sum, app);
  }
}

// All parts have been sent. Parts of dead ranks may get lost, and parts across a cut do.
void DrillTraining::distribute(const Sum& sum, const App& of) {
  std::vector<ProcessIndex> dead;
  std::ranges::copy_if(sum.parts, std::back_inserter(dead),
                       [this](ProcessIndex part) { return !host_.is_alive(part); });
  const std::uint64_t step = of.step;
  for (const ProcessIndex rank : sum.parts) {
    const App& app = apps_[rank];
    const bool waits = app.stage == Stage::kReducing && app.step == step && app.epoch == of.epoch;
    const bool lacks =
        std::ranges::any_of(dead,
                            [this](ProcessIndex) { return random_.next_unit() < kPartLost; }) ||
        std::ranges::any_of(sum.parts,
                            [this, rank](ProcessIndex part) { return host_.is_cut(rank, part); });
    if (waits && !lacks && host_.is_alive(rank)) {
      start(rank, host_.draw_delay(), Timer::kCompletion);
    }
  }
}

void DrillTraining::complete(ProcessIndex process) {
  App& app = apps_[process];
  if (app.stage != Stage::kReducing) {
    return;
  }
  record_.completions.push_back({app.epoch, app.step, id_of(process)});
  app.state = next_state(app.state, app.step, app.decision.view.ranks.size());
  ++app.step;
  begin_step(process);
}

// An operation that takes too long reports a lost rank and fails.
void DrillTraining::check_data(ProcessIndex process) {
  const App& app = apps_[process];
  const auto& ranks = app.decision.view.ranks;
  const auto missing = std::ranges::find_if(ranks, [&](membership::MemberId rank) {
    return !host_.is_alive(process_of(rank)) || host_.is_cut(process, process_of(rank));
  });
  if (missing == ranks.end()) {
    // All ranks are in reach again: the parts that a cut held arrive.
    const bool is_whole = sums_.at({app.epoch, app.step}).parts.size() == ranks.size();
    start(process, vary(world_.data_limit), is_whole ? Timer::kCompletion : Timer::kDataCheck);
    return;
  }
  change_since_ = change_since_.value_or(host_.now());
  host_.member(process).on_lost(*missing, membership::LossCause::kData, host_.now());
  park(process);
}

void DrillTraining::check_end() {
  std::uint64_t state = kFirstState;
  for (std::uint64_t step = 0; step < world_.steps; ++step) {
    state = next_state(state, step, world_.ranks);
  }
  const bool differs = std::ranges::any_of(
      final_states_, [state](std::uint64_t final_state) { return final_state != state; });
  if (differs && !world_.config.size.may_shrink && record_.grown == 0) {
    report_violation("the job ended with another state than an undisturbed one");
  }
}

}  // namespace spillway::sim
