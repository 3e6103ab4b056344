// SPDX-License-Identifier: Apache-2.0
//
// Several members in one process, for tests. Messages arrive at once and in order, and time
// advances only on request. Applications only park when interrupted, unless they are set to be
// slow.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "elastic/membership/member.h"

namespace spillway::membership {

class Cluster {
 public:
  // Ranks have ids 1, 2, ...; standbys follow.
  Cluster(MemberConfig config, std::uint32_t ranks, std::uint32_t standbys) : config_(config) {
    View view{.epoch = 1};
    for (MemberId id = 1; id <= ranks + standbys; ++id) {
      (id <= ranks ? view.ranks : view.standbys).push_back(id);
    }
    for (MemberId id = 1; id <= ranks + standbys; ++id) {
      add(id, view);
    }
    settle();
  }

  void add(MemberId id, std::optional<View> view = std::nullopt) {
    members_.emplace(id,
                     std::make_unique<Member>(config_, id, std::move(view), handle(id, 1), now_));
    for (auto& [other, member] : members_) {
      if (other != id) {
        member->on_connected(id, now_);
        members_.at(id)->on_connected(other, now_);
      }
    }
  }
  static Handle handle(MemberId id, std::uint8_t number) {
    return {static_cast<std::uint8_t>(id), number};
  }

  Member& at(MemberId id) { return *members_.at(id); }
  base::Instant now() const { return now_; }

  // Ends all connections of a process.
  void kill(MemberId id) {
    members_.erase(id);
    for (auto& [other, member] : members_) {
      member->on_lost(id, LossCause::kClosed, now_);
    }
    settle();
  }
  // Drops all messages between the two; neither is told.
  void cut(MemberId a, MemberId b) {
    cut_.insert({a, b});
    cut_.insert({b, a});
  }
  void heal() { cut_.clear(); }

  void run(base::Duration time) {
    const base::Instant end = now_ + time;
    settle();
    while (now_ < end) {
      base::Instant next = end;
      for (auto& [id, member] : members_) {
        next = std::min(next, member->next_timeout());
      }
      now_ = std::max(now_, next);
      for (auto& [id, member] : members_) {
        member->on_timeout(now_);
      }
      settle();
    }
  }
  // Runs until no member has anything left to send.
  void settle() {
    for (bool any = true; any;) {
      any = false;
      for (auto& [id, member] : members_) {
        while (auto out = member->poll_transmit()) {
          any = true;
          deliver(id, *out);
        }
        while (auto event = member->poll_event()) {
          any = true;
          take(id, *std::move(event));
        }
      }
    }
  }

  template <typename T>
  std::vector<T> seen(MemberId id) const {
    std::vector<T> found;
    const auto at = seen_.find(id);
    for (const Event& event : at == seen_.end() ? std::vector<Event>() : at->second) {
      if (const T* of_kind = std::get_if<T>(&event)) {
        found.push_back(*of_kind);
      }
    }
    return found;
  }
  std::string dismissal(MemberId id) const {
    const std::vector<Dismissed> seen = this->seen<Dismissed>(id);
    return seen.empty() ? "" : seen.back().why;
  }

  void all_begin(std::uint64_t step) {
    for (auto& [id, member] : members_) {
      step_[id] = step;
      member->on_step(step, base::milliseconds(10), now_);
    }
    settle();
  }
  // `lie` replaces the messages of `liar`. It gets each message with its receiver and returns the
  // messages that arrive there instead.
  using Lie = std::function<std::vector<Message>(MemberId to, const Message& truth)>;
  void let_lie(MemberId liar, Lie lie) {
    liar_ = liar;
    lie_ = std::move(lie);
  }
  void say(MemberId from, MemberId to, const Message& message) {
    at(to).on_message(from, encode(message), now_);
    settle();
  }

  // The step that a rank is at when it is interrupted. Ranks in `slow_` do not park.
  std::map<MemberId, std::uint64_t> step_{};
  std::set<MemberId> slow_{};
  std::set<MemberId> stateless_{};

  void park(MemberId id) {
    at(id).on_parked(at(id).view().epoch,
                     {.has_state = !stateless_.contains(id), .step = step_[id]},
                     handle(id, ++handles_[id]), now_);
  }

 private:
  void deliver(MemberId from, const Outgoing& out) {
    const auto to = members_.find(out.to);
    if (to == members_.end() || cut_.contains({from, out.to})) {
      return;
    }
    if (!lie_ || from != liar_) {
      to->second->on_message(from, out.message, now_);
      return;
    }
    for (const Message& said : lie_(out.to, parse_message(out.message).value())) {
      to->second->on_message(from, encode(said), now_);
    }
  }
  void take(MemberId id, Event event) {
    const auto* interrupt = std::get_if<Interrupt>(&event);
    const bool parks = interrupt != nullptr && !slow_.contains(id);
    if (interrupt != nullptr && interrupt->at_step) {
      step_[id] = *interrupt->at_step;
    }
    if (const auto* decided = std::get_if<Decided>(&event)) {
      step_[id] = decided->decision.step;
    }
    seen_[id].push_back(std::move(event));
    if (parks) {
      park(id);
    }
  }

  MemberConfig config_;
  base::Instant now_{base::seconds(1)};
  std::map<MemberId, std::unique_ptr<Member>> members_{};
  std::set<std::pair<MemberId, MemberId>> cut_{};
  std::map<MemberId, std::vector<Event>> seen_{};
  std::map<MemberId, std::uint8_t> handles_{};
  MemberId liar_ = 0;
  Lie lie_{};
};

}  // namespace spillway::membership
