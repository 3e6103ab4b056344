// SPDX-License-Identifier: Apache-2.0
#include "sim/drill/drill_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace spillway::sim {
namespace {

constexpr unsigned kKindShift = 56;
constexpr std::uint64_t kNetStream = 0x6e6574;
constexpr std::uint64_t kRunStream = 0x72756e;

// The first byte of a message of type T.
template <typename T, std::size_t kIndex = 0>
constexpr std::uint8_t kind_of() {
  if constexpr (std::is_same_v<T, std::variant_alternative_t<kIndex, membership::Message>>) {
    return kIndex;
  } else {
    return kind_of<T, kIndex + 1>();
  }
}

std::size_t processes_of(const DrillWorld& world) {
  const auto joins = std::ranges::count(world.troubles, TroubleKind::kJoin, &Trouble::kind);
  return world.ranks + world.standbys + static_cast<std::size_t>(joins);
}

std::uint64_t stream(const DrillWorld& world, std::uint64_t of) {
  return base::derive_key(world.seed, {static_cast<std::uint32_t>(of), 0, 0, 0});
}

}  // namespace

DrillRun::DrillRun(const DrillWorld& world)
    : world_(world),
      net_(processes_of(world), {world.least_delay, world.most_delay}, stream(world, kNetStream)),
      random_(stream(world, kRunStream)),
      processes_(processes_of(world)),
      armed_(world.troubles.size()),
      next_newcomer_(world.ranks + world.standbys),
      training_(world_, processes_.size(), *this, record_) {
  record_.processes.resize(processes_.size());
  for (ProcessIndex i = 0; i < processes_.size(); ++i) {
    if (i < world.ranks + world.standbys) {
      (i < world.ranks ? founding_.ranks : founding_.standbys).push_back(id_of(i));
    } else {
      record_.processes[i].end = ProcessEnd::kAbsent;
      record_.processes[i].is_newcomer = true;
    }
  }
  founding_.epoch = 1;
}

DrillRecord DrillRun::run() && {
  found();
  for (std::size_t i = 0; i < world_.troubles.size(); ++i) {
    schedule(base::Instant(world_.troubles[i].at), Kind::kTrouble, i);
  }
  while (living_ > 0 && queue_.run_next(world_.limit)) {
  }
  training_.check_end();
  record_.ended = queue_.now();
  for (ProcessIndex i = 0; i < processes_.size(); ++i) {
    if (processes_[i].lives) {
      record_.processes[i].why = processes_[i].member->waits_for(queue_.now());
    }
  }
  return std::move(record_);
}

void DrillRun::found() {
  const std::size_t founders = founding_.ranks.size() + founding_.standbys.size();
  for (ProcessIndex i = 0; i < founders; ++i) {
    processes_[i].member = std::make_unique<membership::Member>(
        world_.config, id_of(i), founding_, training_.first_handle(i), queue_.now());
    processes_[i].lives = true;
    record_.processes[i].was_voter = true;
    ++living_;
  }
  for (ProcessIndex a = 0; a < founders; ++a) {
    for (ProcessIndex b = 0; b < founders; ++b) {
      if (a < b) {
        net_.connect(a, b);
      }
      if (a != b) {
        processes_[a].member->on_connected(id_of(b), queue_.now());
      }
    }
    // Founders know the view; their greetings say nothing new.
    while (processes_[a].member->poll_transmit()) {
    }
  }
  for (ProcessIndex i = 0; i < founders; ++i) {
    training_.found(i, founding_);
    pump(i);
    schedule(queue_.now() + base::Duration(static_cast<std::int64_t>(random_.next_below(
                                static_cast<std::uint64_t>(world_.config.heartbeat.count())))),
             Kind::kTimeout, i);
  }
}

void DrillRun::schedule(base::Instant when, Kind kind, std::uint64_t of) {
  queue_.schedule(std::max(when, queue_.now()), *this,
                  static_cast<std::uint64_t>(kind) << kKindShift | of);
}

void DrillRun::start_timer(ProcessIndex process, base::Duration after, std::uint64_t what) {
  std::uint64_t slot = timers_.size();
  if (free_timers_.empty()) {
    timers_.emplace_back();
  } else {
    slot = free_timers_.back();
    free_timers_.pop_back();
  }
  timers_[slot] = {process, what};
  schedule(queue_.now() + after, Kind::kTimer, slot);
}

// ------------------------------------------------------------------ events

void DrillRun::on_event(std::uint64_t argument, base::Instant now) {
  const std::uint64_t of = argument & ((std::uint64_t{1} << kKindShift) - 1);
  const auto kind = static_cast<Kind>(argument >> kKindShift);
  const std::optional<ProcessIndex> process = whose(kind, of);
  if (process && processes_[*process].is_paused) {
    processes_[*process].backlog.push_back(argument);
    return;
  }
  mix(argument ^ static_cast<std::uint64_t>(now.since_zero().count()));
  run_event(kind, of);
  come_if_due();
}

// The process in which an event happens; unset if in none.
std::optional<ProcessIndex> DrillRun::whose(Kind kind, std::uint64_t of) const {
  switch (kind) {
    case Kind::kArrival:
      return packets_[of].to;
    case Kind::kTimeout:
      return static_cast<ProcessIndex>(of);
    case Kind::kTimer:
      return timers_[of].process;
    default:
      return std::nullopt;
  }
}

void DrillRun::run_event(Kind kind, std::uint64_t of) {
  switch (kind) {
    case Kind::kArrival:
      free_packets_.push_back(of);
      arrive(std::move(packets_[of]));
      break;
    case Kind::kTimeout:
      time_out(static_cast<ProcessIndex>(of));
      break;
    case Kind::kTimer: {
      const AppTimer timer = timers_[of];
      free_timers_.push_back(of);
      if (processes_[timer.process].lives) {
        training_.on_timer(timer.process, timer.what);
        pump(timer.process);
      }
      break;
    }
    case Kind::kTrouble:
      if (world_.troubles[of].phase) {
        armed_[of].is_armed = true;
      } else {
        come(of);
      }
      break;
    case Kind::kRelief:
      pass(of);
      break;
    case Kind::kBreak:
      break_cut(of, membership::LossCause::kSilent);
      break;
    case Kind::kTouch:
      touch(touches_[of].first, touches_[of].second);
      break;
    case Kind::kResume:
      processes_[of].is_paused = false;
      for (const std::uint64_t late : std::exchange(processes_[of].backlog, {})) {
        on_event(late, queue_.now());
      }
      break;
  }
}

void DrillRun::time_out(ProcessIndex process) {
  if (!processes_[process].lives) {
    return;
  }
  membership::Member& member = *processes_[process].member;
  member.on_timeout(queue_.now());
  pump(process);
  schedule(std::max(member.next_timeout(), queue_.now() + base::nanoseconds(1)), Kind::kTimeout,
           process);
}

void DrillRun::come_if_due() {
  while (!due_.empty()) {
    const std::size_t trouble = due_.back();
    due_.pop_back();
    come(trouble);
  }
}

// Sends and does what a member asks for, until it asks for nothing more.
void DrillRun::pump(ProcessIndex process) {
  Process& of = processes_[process];
  bool has_more = of.lives;
  while (has_more) {
    has_more = false;
    while (of.lives) {
      std::optional<membership::Outgoing> out = of.member->poll_transmit();
      if (!out) {
        break;
      }
      ++record_.messages;
      look_at(process, out->message);
      post({.from = process, .to = process_of(out->to), .bytes = std::move(out->message)});
      come_if_due();  // between two messages
    }
    if (!of.lives || of.is_paused) {
      return;
    }
    if (const auto event = of.member->poll_event()) {
      has_more = true;
      if (const auto* dismissed = std::get_if<membership::Dismissed>(&*event)) {
        end(process, ProcessEnd::kDismissed, dismissed->why);
        return;
      }
      if (std::holds_alternative<membership::Decided>(*event)) {
        record_.processes[process].was_voter = true;
      }
      training_.on_event(process, *event);
    }
  }
}

void DrillRun::look_at(ProcessIndex from, const std::vector<std::uint8_t>& message) {
  const std::uint8_t kind = message.front();
  if (kind == kind_of<membership::Halt>()) {
    driver_ = from;
    see(DrillPhase::kHalt);
  } else if (kind == kind_of<membership::Parked>()) {
    see(DrillPhase::kParked);
  } else if (kind == kind_of<membership::Accept>()) {
    see(DrillPhase::kAccept);
  } else if (kind == kind_of<membership::Accepted>()) {
    see(DrillPhase::kAccepted);
  } else if (kind == kind_of<membership::Chosen>()) {
    see(DrillPhase::kChosen);
  }
}

void DrillRun::see(DrillPhase phase) {
  for (std::size_t i = 0; i < armed_.size(); ++i) {
    Armed& armed = armed_[i];
    if (armed.is_armed && !armed.has_come && world_.troubles[i].phase == phase &&
        ++armed.seen >= world_.troubles[i].nth) {
      armed.has_come = true;
      due_.push_back(i);
    }
  }
}

// ------------------------------------------------------------------ connections

void DrillRun::post(DrillPacket packet) {
  const std::optional<base::Instant> when = net_.send(packet, queue_.now());
  if (!when) {
    return;
  }
  std::uint64_t slot = packets_.size();
  if (free_packets_.empty()) {
    packets_.emplace_back();
  } else {
    slot = free_packets_.back();
    free_packets_.pop_back();
  }
  packets_[slot] = std::move(packet);
  schedule(*when, Kind::kArrival, slot);
}

void DrillRun::arrive(DrillPacket packet) {
  const ProcessIndex to = packet.to;
  if (!net_.arrives(packet)) {
    return;
  }
  if (packet.is_close) {
    net_.disconnect(packet.from, to);
  }
  if (!processes_[to].lives) {
    return;
  }
  if (packet.is_close) {
    processes_[to].member->on_lost(id_of(packet.from), membership::LossCause::kClosed,
                                   queue_.now());
  } else {
    processes_[to].member->on_message(id_of(packet.from), packet.bytes, queue_.now());
  }
  pump(to);
}

void DrillRun::touch(ProcessIndex a, ProcessIndex b) {
  if (!processes_[a].lives || !processes_[b].lives || net_.is_connected(a, b)) {
    return;
  }
  if (net_.is_cut(a, b) || processes_[a].is_paused || processes_[b].is_paused) {
    touches_.emplace_back(a, b);
    schedule(queue_.now() + base::milliseconds(500), Kind::kTouch, touches_.size() - 1);
    return;
  }
  net_.connect(a, b);
  processes_[a].member->on_connected(id_of(b), queue_.now());
  processes_[b].member->on_connected(id_of(a), queue_.now());
  pump(a);
  pump(b);
}

// Both ends notice, and try to reconnect until it works.
void DrillRun::separate(ProcessIndex a, ProcessIndex b, membership::LossCause cause) {
  if (!net_.is_connected(a, b)) {
    return;
  }
  net_.disconnect(a, b);
  for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
    if (processes_[one].lives) {
      processes_[one].member->on_lost(id_of(other), cause, queue_.now());
      pump(one);
    }
  }
  touches_.emplace_back(a, b);
  schedule(queue_.now() + base::milliseconds(200) + net_.draw_delay(), Kind::kTouch,
           touches_.size() - 1);
}

void DrillRun::end(ProcessIndex process, ProcessEnd how, const std::string& why) {
  if (!processes_[process].lives) {
    return;
  }
  processes_[process].lives = false;
  --living_;
  record_.processes[process].end = how;
  record_.processes[process].why = why;
  mix(process);
  for (ProcessIndex other = 0; other < processes_.size(); ++other) {
    if (other != process && net_.is_connected(process, other)) {
      post({.from = process, .to = other, .is_close = true});
    }
  }
}

void DrillRun::mix(std::uint64_t value) {
  record_.digest = (record_.digest ^ value) * 0x9E3779B97F4A7C15ULL;
  record_.digest ^= record_.digest >> 29;
}

}  // namespace spillway::sim
