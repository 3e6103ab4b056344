// SPDX-License-Identifier: Apache-2.0
//
// Decides which message a receive gets. A sender numbers its messages to a peer, whatever their
// tags. It announces each (the transport's PROBE) with its number and, in its signature, its tag.
// Here the receiver puts announcements and receives together:
//
// - A receive of a rank and a tag gets the earliest message of that rank and tag that is not taken.
//   A receive from any rank gets the one that was announced first.
// - A message goes to the receive that was posted first among those it fits.
// - Announcements of a rank count in the order of its numbers: one that overtook another waits for
//   it. So messages of one tag never overtake each other, and those of different tags may be
//   received in any order: no message has to be received for a later one to be.
//
// Types and counts play no part: if they differ, the receive that gets the message fails and says
// so.
//
//   post()        a receive; `order` is its name, and the lower was posted earlier
//   announce()    a message that nobody expects yet; its sender announces it again and again
//   next()        the next pair that was found; ask until there is none
//   finish()      a receive has ended; returns the number below which all of that rank have
//
// Limits: messages that are kMaxAhead or more beyond the oldest unreceived one of their rank are
// ignored. Their sender asks again. One thread, the engine's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "collective/operation_run.h"

namespace spillway::collective {

class ReceiveMatching {
 public:
  static constexpr std::uint32_t kMaxAhead = 4096;

  // A rank's messages are numbered from `first` on.
  explicit ReceiveMatching(std::size_t ranks, std::uint64_t first = 0)
      : sources_(ranks, Source{{}, first, {}, first}) {}

  struct Match {
    std::uint64_t order = 0;
    wire::MessageId message;
  };

  // `source` may be kAnyRank.
  void post(std::uint64_t order, std::uint16_t source, std::uint32_t tag);
  void announce(const wire::MessageId& message);
  std::optional<Match> next();
  std::uint64_t finish(std::uint16_t source, std::uint64_t number);

 private:
  using Channel = std::pair<std::uint32_t, std::uint16_t>;  // tag, source
  struct Announced {
    wire::MessageId message;
    std::uint64_t arrival = 0;  // counted over all ranks
  };
  struct Source {
    std::map<std::uint64_t, wire::MessageId> early;  // by number; an earlier one is missing
    std::uint64_t next = 0;                          // all before it were announced
    std::set<std::uint64_t> finished;
    std::uint64_t floor = 0;  // all before it have ended
  };

  void offer(const wire::MessageId& message);
  std::map<Channel, std::deque<Announced>>::iterator find_announced(std::uint16_t source,
                                                                    std::uint32_t tag);

  std::vector<Source> sources_;
  // No announced message fits a posted receive, by rank or by kAnyRank. No queue is empty.
  std::map<Channel, std::deque<std::uint64_t>> posted_;
  std::map<Channel, std::deque<Announced>> announced_;
  std::uint64_t arrivals_ = 0;
  std::deque<Match> matches_;
};

// A receive that has no message yet. The engine replaces it with a run that carries it out.
class PostedReceive final : public OperationRun {
 public:
  using HasLeft = std::function<bool(std::uint16_t rank)>;

  PostedReceive(const Operation& operation, std::uint64_t key, const RunConfig& config,
                HasLeft has_left)
      : OperationRun(operation, key, config), has_left_(std::move(has_left)) {}

  base::Status start(RunContext& /*context*/) override { return {}; }
  base::Status on_received(const transport::ReceiveReport& /*report*/,
                           RunContext& /*context*/) override {
    return {};
  }
  base::Status on_sent(const transport::SendReport& /*report*/, RunContext& /*context*/) override {
    return {};
  }
  base::Status on_computed(std::uint32_t /*tag*/, RunContext& /*context*/) override { return {}; }

  bool is_done() const override { return false; }
  bool is_idle() const override { return true; }
  void withdraw(RunContext& /*context*/) override {}
  std::size_t message_count() const override { return 0; }
  std::vector<std::uint16_t> awaited() const override;
  // Receiving from any rank needs only that one rank is left.
  bool needs(std::uint16_t peer) const override {
    return report_.operation.root == kAnyRank ? awaited().empty() : report_.operation.root == peer;
  }

 private:
  HasLeft has_left_;
};

}  // namespace spillway::collective
