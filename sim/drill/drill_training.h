// SPDX-License-Identifier: Apache-2.0
//
// The applications of a drill. They train in lock-step, stop when told to, fetch the state from
// other ranks, and check that all is consistent. A step is a rank's own work, then a sum of all
// ranks' parts. A rank completes the step when all parts have arrived, which may happen at some
// ranks and not at others. The state is a number; every step derives the next one.
//
//   standby ─ decided ─► connecting ─► fetching ─► working ─► reducing ─► working ...  ─► finished
//                   (has the state: no fetching)   any of these ─ interrupt ─► stopping ─► parked
//
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "elastic/membership/member.h"
#include "sim/drill/drill.h"
#include "sim/drill/drill_net.h"

namespace spillway::sim {

// The training's interface to the drill around it.
class DrillHost {
 public:
  virtual ~DrillHost() = default;
  virtual base::Instant now() const = 0;
  virtual membership::Member& member(ProcessIndex process) = 0;
  virtual bool lives(ProcessIndex process) const = 0;
  virtual bool is_cut(ProcessIndex a, ProcessIndex b) const = 0;
  virtual base::Duration draw_delay() = 0;
  virtual void start_timer(ProcessIndex process, base::Duration after, std::uint64_t what) = 0;
  virtual void see(DrillPhase phase) = 0;
};

inline membership::MemberId id_of(ProcessIndex process) {
  return membership::MemberId{process} + 1;
}
inline ProcessIndex process_of(membership::MemberId id) {
  return static_cast<ProcessIndex>(id - 1);
}

class DrillTraining {
 public:
  DrillTraining(const DrillWorld& world, std::size_t processes, DrillHost& host,
                DrillRecord& record);

  void found(ProcessIndex process, const membership::View& view);
  membership::Handle first_handle(ProcessIndex process);
  void on_event(ProcessIndex process, const membership::Event& event);
  void on_timer(ProcessIndex process, std::uint64_t what);
  void slow_down(ProcessIndex process, double times) { apps_[process].slowness = times; }
  void check_end();

 private:
  enum class Stage : std::uint8_t {
    kStandby,
    kConnecting,
    kFetching,
    kWorking,
    kReducing,
    kStopping,
    kParked,
    kFinished,
  };
  // Purpose of a timer. Its upper bits hold App::stages, so that timers of earlier stages are
  // ignored.
  enum class Timer : std::uint8_t { kStage, kCompletion, kDataCheck };
  struct App {
    Stage stage = Stage::kStandby;
    std::uint64_t stages = 0;
    std::uint32_t epoch = 1;
    membership::Decision decision{};
    bool has_state = false;
    std::uint64_t step = 0;
    std::uint64_t state = 0;
    std::optional<std::uint64_t> stop_at{};
    std::uint8_t handles = 0;
    membership::Handle handle{};
    double slowness = 1;
    base::Duration work{};
    std::uint32_t tries = 0;
  };
  struct Sum {
    std::uint64_t state = 0;
    std::vector<ProcessIndex> parts{};
  };

  void enter(ProcessIndex process, Stage stage);
  void start(ProcessIndex process, base::Duration after, Timer timer);
  base::Duration vary(base::Duration around);
  void wrong(std::string sentence);
  void take(ProcessIndex process, const membership::Interrupt& interrupt);
  void take(ProcessIndex process, const membership::Decision& decision);
  void on_stage_over(ProcessIndex process);
  void begin_step(ProcessIndex process);
  void contribute(ProcessIndex process);
  void hand_out(const Sum& sum, const App& of);
  void complete(ProcessIndex process);
  void check_data(ProcessIndex process);
  void fetch(ProcessIndex process);
  void park(ProcessIndex process);
  std::uint64_t next_state(std::uint64_t state, std::uint64_t step, std::size_t ranks) const;

  const DrillWorld& world_;
  DrillHost& host_;
  DrillRecord& record_;
  base::RandomSequence random_;
  std::vector<App> apps_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Sum> sums_{};  // by epoch and step
  std::uint64_t latest_step_ = 0;
  std::vector<std::uint64_t> final_states_{};
  std::set<std::pair<std::uint32_t, std::uint32_t>> stragglers_{};  // epoch and rank
  std::optional<base::Instant> change_since_{};
};

}  // namespace spillway::sim
