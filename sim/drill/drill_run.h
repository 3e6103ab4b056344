// SPDX-License-Identifier: Apache-2.0
//
// One drill: processes with a Member and an application each, their connections, and scheduled
// trouble. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "elastic/membership/member.h"
#include "sim/drill/drill.h"
#include "sim/drill/drill_net.h"
#include "sim/drill/drill_training.h"
#include "sim/event_queue.h"

namespace spillway::sim {

class DrillRun final : public Actor, private DrillHost {
 public:
  explicit DrillRun(const DrillWorld& world);

  DrillRecord run() &&;

  void on_event(std::uint64_t argument, base::Instant now) override;

 private:
  // Type of an event, in the upper bits of its argument; the lower bits say which process or
  // object.
  enum class Kind : std::uint8_t {
    kArrival,  // of a packet
    kTimeout,  // of a member
    kTimer,    // of an application
    kTrouble,  // begins, or gets armed
    kRelief,   // a trouble ends
    kBreak,    // of connections that were cut for too long
    kTouch,    // two processes reconnect
    kResume,   // of a paused process
  };
  struct Process {
    std::unique_ptr<membership::Member> member{};
    bool lives = false;
    bool is_paused = false;
    std::vector<std::uint64_t> backlog{};  // events that came during a pause
  };
  struct AppTimer {
    ProcessIndex process = 0;
    std::uint64_t what = 0;
  };
  struct Armed {
    bool is_armed = false;
    bool has_come = false;
    std::uint32_t seen = 0;
    std::optional<std::size_t> cut{};
  };

  // ---- DrillHost
  base::Instant now() const override { return queue_.now(); }
  membership::Member& member(ProcessIndex process) override { return *processes_[process].member; }
  bool lives(ProcessIndex process) const override { return processes_[process].lives; }
  bool is_cut(ProcessIndex a, ProcessIndex b) const override { return net_.is_cut(a, b); }
  base::Duration draw_delay() override { return net_.draw_delay(); }
  void start_timer(ProcessIndex process, base::Duration after, std::uint64_t what) override;
  void see(DrillPhase phase) override;

  void found();
  void schedule(base::Instant when, Kind kind, std::uint64_t of);
  std::optional<ProcessIndex> whose(Kind kind, std::uint64_t of) const;
  void run_event(Kind kind, std::uint64_t of);
  void time_out(ProcessIndex process);
  void pump(ProcessIndex process);
  void look_at(ProcessIndex from, const std::vector<std::uint8_t>& message);
  void post(DrillPacket packet);
  void arrive(DrillPacket packet);
  void touch(ProcessIndex a, ProcessIndex b);
  void separate(ProcessIndex a, ProcessIndex b, membership::LossCause cause);
  void end(ProcessIndex process, ProcessEnd how, const std::string& why);

  void come(std::size_t trouble);
  void pass(std::size_t trouble);
  void come_if_due();
  std::vector<bool> part_of(const std::vector<ProcessIndex>& victims) const;
  void kill(const std::vector<ProcessIndex>& victims);
  void begin_cut(std::size_t index, std::size_t cut);
  void cut_pair(std::size_t index, ProcessIndex first);
  void break_cut(std::size_t trouble, membership::LossCause cause);
  std::vector<ProcessIndex> victims_of(const Trouble& trouble) const;
  std::vector<ProcessIndex> living(const std::vector<membership::MemberId>& members) const;
  const membership::View& latest_view() const;
  void affect(const std::vector<ProcessIndex>& victims);
  void ask(const Trouble& trouble, ProcessIndex victim);
  void join();
  void mix(std::uint64_t value);

  DrillWorld world_;
  EventQueue queue_{};
  DrillNet net_;
  base::RandomSequence random_;
  membership::View founding_{};
  std::vector<Process> processes_;
  std::vector<DrillPacket> packets_{};
  std::vector<std::uint64_t> free_packets_{};
  std::vector<AppTimer> timers_{};
  std::vector<std::uint64_t> free_timers_{};
  std::vector<std::pair<ProcessIndex, ProcessIndex>> touches_{};
  std::vector<Armed> armed_;
  std::vector<std::size_t> due_{};  // troubles whose phase was reached
  ProcessIndex next_newcomer_ = 0;
  std::optional<ProcessIndex> driver_{};
  std::size_t living_ = 0;
  DrillRecord record_{};
  DrillTraining training_;
};

}  // namespace spillway::sim
