// SPDX-License-Identifier: Apache-2.0
#include "sim/drill/drill_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace spillway::sim {

// ------------------------------------------------------------------ network

DrillNet::DrillNet(std::size_t processes, Delays delays, std::uint64_t seed)
    : processes_(processes),
      delays_(delays),
      random_(seed),
      links_(processes * processes),
      last_arrival_(processes * processes) {}

void DrillNet::connect(ProcessIndex a, ProcessIndex b) {
  Link& of = link(a, b);
  of.is_open = true;
  ++of.connection;
}

void DrillNet::disconnect(ProcessIndex a, ProcessIndex b) {
  link(a, b).is_open = false;
  held_.erase(at(a, b));
  held_.erase(at(b, a));
}

base::Duration DrillNet::draw_delay() {
  const auto range = static_cast<std::uint64_t>((delays_.most - delays_.least).count());
  return delays_.least + base::Duration(static_cast<std::int64_t>(random_.next_below(range + 1)));
}

std::optional<base::Instant> DrillNet::send(DrillPacket& packet, base::Instant now) {
  const Link& of = link(packet.from, packet.to);
  if (!of.is_open) {
    return std::nullopt;
  }
  packet.connection = of.connection;
  base::Instant& last = last_arrival_[at(packet.from, packet.to)];
  last = std::max(last + base::nanoseconds(1), now + draw_delay());
  return last;
}

bool DrillNet::arrives(DrillPacket& packet) {
  const Link& of = link(packet.from, packet.to);
  if (!of.is_open || of.connection != packet.connection) {
    return false;
  }
  const std::size_t direction = at(packet.from, packet.to);
  if (is_cut(packet.from, packet.to) || held_.contains(direction)) {
    held_[direction].push_back(std::move(packet));
    return false;
  }
  return true;
}

std::size_t DrillNet::cut(std::vector<bool> part, std::vector<bool> other) {
  cuts_.push_back({.part = std::move(part), .other = std::move(other)});
  return cuts_.size() - 1;
}

std::vector<DrillPacket> DrillNet::heal(std::size_t cut) {
  cuts_[cut].is_on = false;
  std::vector<DrillPacket> released;
  std::erase_if(held_, [&](auto& held) {
    const ProcessIndex from = static_cast<ProcessIndex>(held.first / processes_);
    const ProcessIndex to = static_cast<ProcessIndex>(held.first % processes_);
    if (is_cut(from, to)) {
      return false;
    }
    std::ranges::move(held.second, std::back_inserter(released));
    return true;
  });
  return released;
}

bool DrillNet::is_cut(ProcessIndex a, ProcessIndex b) const {
  return std::ranges::any_of(cuts_,
                             [a, b](const Cut& cut) { return cut.is_on && cut.parts(a, b); });
}

std::vector<std::pair<ProcessIndex, ProcessIndex>> DrillNet::pairs_of(std::size_t cut) const {
  std::vector<std::pair<ProcessIndex, ProcessIndex>> pairs;
  for (ProcessIndex a = 0; a < processes_; ++a) {
    for (ProcessIndex b = a + 1; b < processes_; ++b) {
      if (cuts_[cut].parts(a, b)) {
        pairs.emplace_back(a, b);
      }
    }
  }
  return pairs;
}

// ------------------------------------------------------------------ the run

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
  start_founders();
  for (std::size_t i = 0; i < world_.troubles.size(); ++i) {
    schedule(base::Instant(world_.troubles[i].at), Kind::kTrouble, i);
  }
  while (living_ > 0 && queue_.run_next(world_.limit)) {
  }
  training_.check_end();
  record_.ended = queue_.now();
  for (ProcessIndex i = 0; i < processes_.size(); ++i) {
    if (processes_[i].is_alive) {
      record_.processes[i].why = processes_[i].member->waits_for(queue_.now());
    }
  }
  return std::move(record_);
}

void DrillRun::start_founders() {
  const std::size_t founders = founding_.ranks.size() + founding_.standbys.size();
  for (ProcessIndex i = 0; i < founders; ++i) {
    processes_[i].member = std::make_unique<membership::Member>(
        world_.config, id_of(i), founding_, training_.first_handle(i), queue_.now());
    processes_[i].is_alive = true;
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
    training_.start_founder(i, founding_);
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
  const std::optional<ProcessIndex> process = process_of_event(kind, of);
  if (process && processes_[*process].is_paused) {
    processes_[*process].backlog.push_back(argument);
    return;
  }
  mix(argument ^ static_cast<std::uint64_t>(now.since_zero().count()));
  run_event(kind, of);
  begin_due_troubles();
}

// The process in which an event happens; unset if in none.
std::optional<ProcessIndex> DrillRun::process_of_event(Kind kind, std::uint64_t of) const {
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
      if (processes_[timer.process].is_alive) {
        training_.on_timer(timer.process, timer.what);
        pump(timer.process);
      }
      break;
    }
    case Kind::kTrouble:
      if (world_.troubles[of].phase) {
        armed_[of].is_armed = true;
      } else {
        begin_trouble(of);
      }
      break;
    case Kind::kTroubleEnd:
      end_trouble(of);
      break;
    case Kind::kBreak:
      break_cut(of, membership::LossCause::kSilent);
      break;
    case Kind::kReconnect:
      reconnect(reconnects_[of].first, reconnects_[of].second);
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
  if (!processes_[process].is_alive) {
    return;
  }
  membership::Member& member = *processes_[process].member;
  member.on_timeout(queue_.now());
  pump(process);
  schedule(std::max(member.next_timeout(), queue_.now() + base::nanoseconds(1)), Kind::kTimeout,
           process);
}

void DrillRun::begin_due_troubles() {
  while (!due_.empty()) {
    const std::size_t trouble = due_.back();
    due_.pop_back();
    begin_trouble(trouble);
  }
}

// Sends and does what a member asks for, until it asks for nothing more.
void DrillRun::pump(ProcessIndex process) {
  Process& of = processes_[process];
  bool has_more = of.is_alive;
  while (has_more) {
    has_more = false;
    while (of.is_alive) {
      std::optional<membership::Outgoing> out = of.member->poll_transmit();
      if (!out) {
        break;
      }
      ++record_.messages;
      note_phase_of(process, out->message);
      post({.from = process, .to = process_of(out->to), .bytes = std::move(out->message)});
      begin_due_troubles();  // between two messages
    }
    if (!of.is_alive || of.is_paused) {
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

void DrillRun::note_phase_of(ProcessIndex from, const std::vector<std::uint8_t>& message) {
  const std::uint8_t kind = message.front();
  if (kind == kind_of<membership::Halt>()) {
    driver_ = from;
    on_phase(DrillPhase::kHalt);
  } else if (kind == kind_of<membership::Parked>()) {
    on_phase(DrillPhase::kParked);
  } else if (kind == kind_of<membership::Accept>()) {
    on_phase(DrillPhase::kAccept);
  } else if (kind == kind_of<membership::Accepted>()) {
    on_phase(DrillPhase::kAccepted);
  } else if (kind == kind_of<membership::Chosen>()) {
    on_phase(DrillPhase::kChosen);
  }
}

void DrillRun::on_phase(DrillPhase phase) {
  for (std::size_t i = 0; i < armed_.size(); ++i) {
    Armed& armed = armed_[i];
    if (armed.is_armed && !armed.has_begun && world_.troubles[i].phase == phase &&
        ++armed.seen >= world_.troubles[i].nth) {
      armed.has_begun = true;
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
  if (!processes_[to].is_alive) {
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

void DrillRun::reconnect(ProcessIndex a, ProcessIndex b) {
  if (!processes_[a].is_alive || !processes_[b].is_alive || net_.is_connected(a, b)) {
    return;
  }
  if (net_.is_cut(a, b) || processes_[a].is_paused || processes_[b].is_paused) {
    reconnects_.emplace_back(a, b);
    schedule(queue_.now() + base::milliseconds(500), Kind::kReconnect, reconnects_.size() - 1);
    return;
  }
  net_.connect(a, b);
  processes_[a].member->on_connected(id_of(b), queue_.now());
  processes_[b].member->on_connected(id_of(a), queue_.now());
  pump(a);
  pump(b);
}

// Both ends notice, and try to reconnect until it works.
void DrillRun::break_connection(ProcessIndex a, ProcessIndex b, membership::LossCause cause) {
  if (!net_.is_connected(a, b)) {
    return;
  }
  net_.disconnect(a, b);
  for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
    if (processes_[one].is_alive) {
      processes_[one].member->on_lost(id_of(other), cause, queue_.now());
      pump(one);
    }
  }
  reconnects_.emplace_back(a, b);
  schedule(queue_.now() + base::milliseconds(200) + net_.draw_delay(), Kind::kReconnect,
           reconnects_.size() - 1);
}

void DrillRun::end(ProcessIndex process, ProcessEnd how, const std::string& why) {
  if (!processes_[process].is_alive) {
    return;
  }
  processes_[process].is_alive = false;
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
