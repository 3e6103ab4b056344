// SPDX-License-Identifier: Apache-2.0
//
// The messages that one operation has in the endpoint: what was expected or sent and has not ended.
// One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "collective/operation_run.h"
#include "transport/message_table.h"

namespace spillway::collective {

class MessageSet {
 public:
  base::Status expect(const transport::ReceiveSpec& spec, RunContext& context) {
    return keep(context.endpoint.expect(spec, context.now), {spec.id, spec.id.source});
  }
  base::Status send(const transport::SendSpec& spec, RunContext& context) {
    return keep(context.endpoint.send(spec, context.now), {spec.id, spec.to});
  }
  void on_received(const transport::ReceiveReport& report) {
    keys_.erase({report.id, report.id.source});
  }
  void on_sent(const transport::SendReport& report) { keys_.erase({report.id, report.to}); }

  // Takes those back for which `condition` holds.
  template <typename Condition>
  void withdraw_if(RunContext& context, Condition&& condition) {
    for (auto key = keys_.begin(); key != keys_.end();) {
      if (condition(*key)) {
        context.endpoint.withdraw(key->message, key->peer, context.now);
        key = keys_.erase(key);
      } else {
        ++key;
      }
    }
  }

  bool empty() const { return keys_.empty(); }
  template <typename Condition>
  bool any(Condition&& condition) const {
    return std::any_of(keys_.begin(), keys_.end(), condition);
  }
  // The ranks at their other ends, each once, in order.
  std::vector<std::uint16_t> peers() const {
    std::vector<std::uint16_t> ranks;
    for (const transport::MessageKey& key : keys_) {
      ranks.push_back(key.peer);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }

 private:
  struct Hash {
    std::size_t operator()(const transport::MessageKey& key) const {
      return transport::hash_of(key);
    }
  };

  base::Status keep(base::Status status, const transport::MessageKey& key) {
    if (status.ok()) {
      keys_.insert(key);
    }
    return status;
  }

  std::unordered_set<transport::MessageKey, Hash> keys_;
};

}  // namespace spillway::collective
