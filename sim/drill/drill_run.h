// SPDX-License-Identifier: Apache-2.0
//
// One drill: processes with a Member and an application each, their connections, and scheduled
// trouble. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/units.h"
#include "elastic/membership/member.h"
#include "sim/drill/drill.h"
#include "sim/event_queue.h"

namespace spillway::sim {

// ------------------------------------------------------------------ applications

// The applications of a drill. They train in lock-step, stop when told to, fetch the state from
// other ranks, and check that all is consistent. A step is a rank's own work, then a sum of all
// ranks' parts. A rank completes the step when all parts have arrived, which may happen at some
// ranks and not at others. The state is a number; every step derives the next one.
//
//   standby ─ decided ─► connecting ─► fetching ─► working ─► reducing ─► working ...  ─► finished
//                   (has the state: no fetching)   any of these ─ interrupt ─► stopping ─► parked
//
// One thread.

// The training's interface to the drill around it.
class DrillHost {
 public:
  virtual ~DrillHost() = default;
  virtual base::Instant now() const = 0;
  virtual membership::Member& member(ProcessIndex process) = 0;
  virtual bool is_alive(ProcessIndex process) const = 0;
  virtual bool is_cut(ProcessIndex a, ProcessIndex b) const = 0;
  virtual base::Duration draw_delay() = 0;
  virtual void start_timer(ProcessIndex process, base::Duration after, std::uint64_t what) = 0;
  virtual void on_phase(DrillPhase phase) = 0;
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

  void start_founder(ProcessIndex process, const membership::View& view);
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
  void report_violation(std::string sentence);
  void on_interrupt(ProcessIndex process, const membership::Interrupt& interrupt);
  void on_decision(ProcessIndex process, const membership::Decision& decision);
  void on_stage_over(ProcessIndex process);
  void begin_step(ProcessIndex process);
  void contribute(ProcessIndex process);
  void distribute(const Sum& sum, const App& of);
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

// ------------------------------------------------------------------ the drill

// Connections between a drill's processes, like TCP. A connection delivers its messages in order,
// and all of them while it lasts; connections are not ordered among each other. Messages across a
// cut are held until it heals, unless the connection breaks first. A process that ends closes its
// connections after its last message.
//
// Decides what arrives when; the run schedules it. One thread.

struct DrillPacket {
  ProcessIndex from = 0;
  ProcessIndex to = 0;
  std::uint32_t connection = 0;  // number of the pair's connection
  bool is_close = false;
  std::vector<std::uint8_t> bytes{};
};

class DrillNet {
 public:
  struct Delays {
    base::Duration least{};
    base::Duration most{};
  };

  DrillNet(std::size_t processes, Delays delays, std::uint64_t seed);

  bool is_connected(ProcessIndex a, ProcessIndex b) const { return link(a, b).is_open; }
  void connect(ProcessIndex a, ProcessIndex b);
  void disconnect(ProcessIndex a, ProcessIndex b);

  // The arrival time of a packet sent now; unset if there is no connection.
  std::optional<base::Instant> send(DrillPacket& packet, base::Instant now);
  // Call at that time: false if the packet does not arrive. Keeps the packet if a cut holds it.
  bool arrives(DrillPacket& packet);
  base::Duration draw_delay();

  // Cuts `part` off from all others; if `other` is given, only from `other`.
  std::size_t cut(std::vector<bool> part, std::vector<bool> other = {});
  // Returns the held packets, in order, except those that another cut still holds.
  std::vector<DrillPacket> heal(std::size_t cut);
  bool is_cut(ProcessIndex a, ProcessIndex b) const;
  std::vector<std::pair<ProcessIndex, ProcessIndex>> pairs_of(std::size_t cut) const;

 private:
  struct Link {
    bool is_open = false;
    std::uint32_t connection = 0;
  };
  struct Cut {
    bool is_on = true;
    std::vector<bool> part{};
    std::vector<bool> other{};

    bool parts(ProcessIndex a, ProcessIndex b) const {
      return other.empty() ? part[a] != part[b] : (part[a] && other[b]) || (part[b] && other[a]);
    }
  };

  std::size_t at(ProcessIndex a, ProcessIndex b) const { return a * processes_ + b; }
  const Link& link(ProcessIndex a, ProcessIndex b) const {
    return links_[a < b ? at(a, b) : at(b, a)];
  }
  Link& link(ProcessIndex a, ProcessIndex b) { return links_[a < b ? at(a, b) : at(b, a)]; }

  std::size_t processes_;
  Delays delays_;
  base::RandomSequence random_;
  std::vector<Link> links_;
  std::vector<base::Instant> last_arrival_;
  std::vector<Cut> cuts_{};
  std::map<std::size_t, std::vector<DrillPacket>> held_{};  // by direction
};

class DrillRun final : public Actor, private DrillHost {
 public:
  explicit DrillRun(const DrillWorld& world);

  DrillRecord run() &&;

  void on_event(std::uint64_t argument, base::Instant now) override;

 private:
  // Type of an event, in the upper bits of its argument; the lower bits say which process or
  // object.
  enum class Kind : std::uint8_t {
    kArrival,     // of a packet
    kTimeout,     // of a member
    kTimer,       // of an application
    kTrouble,     // begins, or gets armed
    kTroubleEnd,  // a trouble ends
    kBreak,       // of connections that were cut for too long
    kReconnect,   // two processes reconnect
    kResume,      // of a paused process
  };
  struct Process {
    std::unique_ptr<membership::Member> member{};
    bool is_alive = false;
    bool is_paused = false;
    std::vector<std::uint64_t> backlog{};  // events that came during a pause
  };
  struct AppTimer {
    ProcessIndex process = 0;
    std::uint64_t what = 0;
  };
  struct Armed {
    bool is_armed = false;
    bool has_begun = false;
    std::uint32_t seen = 0;
    std::optional<std::size_t> cut{};
  };

  // ---- DrillHost
  base::Instant now() const override { return queue_.now(); }
  membership::Member& member(ProcessIndex process) override { return *processes_[process].member; }
  bool is_alive(ProcessIndex process) const override { return processes_[process].is_alive; }
  bool is_cut(ProcessIndex a, ProcessIndex b) const override { return net_.is_cut(a, b); }
  base::Duration draw_delay() override { return net_.draw_delay(); }
  void start_timer(ProcessIndex process, base::Duration after, std::uint64_t what) override;
  void on_phase(DrillPhase phase) override;

  void start_founders();
  void schedule(base::Instant when, Kind kind, std::uint64_t of);
  std::optional<ProcessIndex> process_of_event(Kind kind, std::uint64_t of) const;
  void run_event(Kind kind, std::uint64_t of);
  void time_out(ProcessIndex process);
  void pump(ProcessIndex process);
  void note_phase_of(ProcessIndex from, const std::vector<std::uint8_t>& message);
  void post(DrillPacket packet);
  void arrive(DrillPacket packet);
  void reconnect(ProcessIndex a, ProcessIndex b);
  void break_connection(ProcessIndex a, ProcessIndex b, membership::LossCause cause);
  void end(ProcessIndex process, ProcessEnd how, const std::string& why);

  void begin_trouble(std::size_t trouble);
  void end_trouble(std::size_t trouble);
  void begin_due_troubles();
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
  std::vector<std::pair<ProcessIndex, ProcessIndex>> reconnects_{};
  std::vector<Armed> armed_;
  std::vector<std::size_t> due_{};  // troubles whose phase was reached
  ProcessIndex next_newcomer_ = 0;
  std::optional<ProcessIndex> driver_{};
  std::size_t living_ = 0;
  DrillRecord record_{};
  DrillTraining training_;
};

}  // namespace spillway::sim
