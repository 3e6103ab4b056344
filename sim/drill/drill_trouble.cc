// SPDX-License-Identifier: Apache-2.0
//
// DrillRun: how trouble begins and passes.
#include <algorithm>

#include "sim/drill/drill_run.h"

namespace spillway::sim {

const membership::View& DrillRun::latest_view() const {
  return record_.decisions.empty() ? founding_ : record_.decisions.rbegin()->second.view;
}

std::vector<ProcessIndex> DrillRun::living(const std::vector<membership::MemberId>& members) const {
  std::vector<ProcessIndex> found;
  for (const membership::MemberId member : members) {
    if (processes_[process_of(member)].is_alive) {
      found.push_back(process_of(member));
    }
  }
  return found;
}

std::vector<ProcessIndex> DrillRun::victims_of(const Trouble& trouble) const {
  const membership::View& view = latest_view();
  const std::vector<ProcessIndex> ranks = living(view.ranks);
  std::vector<ProcessIndex> standbys = living(view.standbys);
  std::vector<ProcessIndex> joiners = ranks;
  std::erase_if(joiners,
                [this](ProcessIndex rank) { return founding_.rank_of(id_of(rank)).has_value(); });
  std::vector<ProcessIndex> all = ranks;
  all.insert(all.end(), standbys.begin(), standbys.end());
  std::vector<ProcessIndex> from = all;
  switch (trouble.victim) {
    case Victim::kDriver:
      from = driver_ && processes_[*driver_].is_alive ? std::vector{*driver_} : ranks;
      break;
    case Victim::kJoiner:
      from = joiners.empty() ? standbys : joiners;
      break;
    case Victim::kRank:
      from = ranks;
      break;
    case Victim::kStandby:
      from = standbys;
      break;
    case Victim::kAny:
      break;
  }
  if (from.empty()) {
    return {};
  }
  std::vector<ProcessIndex> victims = {from[trouble.pick % from.size()]};
  for (const ProcessIndex rank : ranks) {
    if (victims.size() < trouble.count && rank != victims.front()) {
      victims.push_back(rank);
    }
  }
  return victims;
}

// A cut affects the smaller of two parts; of two halves, both.
void DrillRun::affect(const std::vector<ProcessIndex>& victims) {
  std::vector<membership::MemberId> members = latest_view().ranks;
  members.insert(members.end(), latest_view().standbys.begin(), latest_view().standbys.end());
  const std::vector<ProcessIndex> all = living(members);
  const bool is_smaller = 2 * victims.size() < all.size();
  const bool is_larger = 2 * victims.size() > all.size();
  for (ProcessIndex i = 0; i < processes_.size(); ++i) {
    const bool is_victim = std::ranges::find(victims, i) != victims.end();
    if (is_victim ? !is_larger : !is_smaller) {
      record_.processes[i].is_affected = true;
    }
  }
}

void DrillRun::begin_trouble(std::size_t index) {
  const Trouble& trouble = world_.troubles[index];
  if (trouble.kind == TroubleKind::kJoin) {
    join();
  }
  const std::vector<ProcessIndex> victims = victims_of(trouble);
  if (victims.empty()) {
    return;
  }
  ++record_.troubles[static_cast<std::size_t>(trouble.kind)];
  if (trouble.phase) {
    ++record_.in_phase[static_cast<std::size_t>(*trouble.phase)];
  }
  const ProcessIndex first = victims.front();
  switch (trouble.kind) {
    case TroubleKind::kKill:
      kill(victims);
      break;
    case TroubleKind::kSilence:
      record_.processes[first].is_affected = true;
      net_.cut(part_of({first}));
      break;
    case TroubleKind::kPause:
      record_.processes[first].is_affected = true;
      processes_[first].is_paused = true;
      schedule(queue_.now() + trouble.lasts, Kind::kResume, first);
      break;
    case TroubleKind::kCut:
    case TroubleKind::kReset:
      affect(victims);
      begin_cut(index, net_.cut(part_of(victims)));
      break;
    case TroubleKind::kPair:
      cut_pair(index, first);
      break;
    case TroubleKind::kMove:
    case TroubleKind::kRemove:
    case TroubleKind::kGrow:
      ask(trouble, first);
      break;
    case TroubleKind::kSlow:
      training_.slow_down(first, 3.0 + trouble.pick % 4);
      break;
    case TroubleKind::kJoin:
      break;
  }
}

std::vector<bool> DrillRun::part_of(const std::vector<ProcessIndex>& victims) const {
  std::vector<bool> part(processes_.size());
  for (const ProcessIndex victim : victims) {
    part[victim] = true;
  }
  return part;
}

void DrillRun::kill(const std::vector<ProcessIndex>& victims) {
  for (const ProcessIndex victim : victims) {
    record_.processes[victim].is_affected = true;
    end(victim, ProcessEnd::kKilled, "");
  }
}

// Connections across a cut break at once, after a while, or never.
void DrillRun::begin_cut(std::size_t index, std::size_t cut) {
  const Trouble& trouble = world_.troubles[index];
  armed_[index].cut = cut;
  if (trouble.kind == TroubleKind::kReset) {
    break_cut(index, membership::LossCause::kClosed);
  } else if (world_.tcp_limit != base::Duration()) {
    schedule(queue_.now() + world_.tcp_limit, Kind::kBreak, index);
  }
  if (trouble.lasts != base::Duration()) {
    schedule(queue_.now() + trouble.lasts, Kind::kTroubleEnd, index);
  }
}

void DrillRun::cut_pair(std::size_t index, ProcessIndex first) {
  const std::vector<ProcessIndex> ranks = living(latest_view().ranks);
  const ProcessIndex second =
      ranks.empty() ? first : ranks[(world_.troubles[index].pick + 1) % ranks.size()];
  if (second == first) {
    return;
  }
  record_.processes[first].is_affected = true;
  record_.processes[second].is_affected = true;
  begin_cut(index, net_.cut(part_of({first}), part_of({second})));
}

void DrillRun::end_trouble(std::size_t trouble) {
  for (DrillPacket& packet : net_.heal(*armed_[trouble].cut)) {
    if (processes_[packet.to].is_paused) {
      post(std::move(packet));
    } else {
      arrive(std::move(packet));
    }
  }
  armed_[trouble].cut.reset();
}

void DrillRun::break_cut(std::size_t trouble, membership::LossCause cause) {
  if (!armed_[trouble].cut) {
    return;
  }
  for (const auto& [a, b] : net_.pairs_of(*armed_[trouble].cut)) {
    break_connection(a, b, cause);
  }
}

// Sends the request to an arbitrary living member.
void DrillRun::ask(const Trouble& trouble, ProcessIndex victim) {
  const membership::View& view = latest_view();
  std::vector<membership::MemberId> members = view.ranks;
  members.insert(members.end(), view.standbys.begin(), view.standbys.end());
  const std::vector<ProcessIndex> all = living(members);
  const ProcessIndex asked = all[(trouble.pick + 1) % all.size()];
  if (processes_[asked].is_paused) {
    return;
  }
  const membership::View& known = processes_[asked].member->view();
  if (known.ranks.empty()) {
    return;
  }
  const auto rank = known.rank_of(id_of(victim))
                        .value_or(trouble.pick % static_cast<std::uint32_t>(known.ranks.size()));
  const bool is_removal = trouble.kind == TroubleKind::kRemove;
  const bool is_growth = trouble.kind == TroubleKind::kGrow;
  const base::Status status =
      processes_[asked].member->ask({.kind = is_growth    ? membership::RequestKind::kGrow
                                             : is_removal ? membership::RequestKind::kRemove
                                                          : membership::RequestKind::kMove,
                                     .ranks = {rank},
                                     .places = trouble.count,
                                     .why = "asked for"},
                                    queue_.now());
  if (status.ok()) {
    record_.moved += is_growth ? 0 : 1;
    record_.grown += is_growth ? trouble.count : 0;
    if (is_removal) {
      record_.processes[process_of(known.ranks[rank])].is_affected = true;
    }
  }
  pump(asked);
}

void DrillRun::join() {
  const ProcessIndex newcomer = next_newcomer_++;
  Process& process = processes_[newcomer];
  process.member = std::make_unique<membership::Member>(
      world_.config, id_of(newcomer), std::nullopt, training_.first_handle(newcomer), queue_.now());
  process.is_alive = true;
  ++living_;
  record_.processes[newcomer].end = ProcessEnd::kAlive;
  schedule(process.member->next_timeout(), Kind::kTimeout, newcomer);
  for (ProcessIndex other = 0; other < processes_.size(); ++other) {
    if (other != newcomer && processes_[other].is_alive) {
      reconnect(newcomer, other);
    }
  }
}

}  // namespace spillway::sim
