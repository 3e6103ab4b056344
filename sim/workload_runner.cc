// SPDX-License-Identifier: Apache-2.0
#include "sim/workload_runner.h"

#include <algorithm>

#include "base/check.h"

namespace spillway::sim {

std::uint32_t WorkloadRunner::add(const scenario::Workload& workload, std::uint8_t stack) {
  const auto first_group = static_cast<std::uint32_t>(groups_.size());
  const auto numbered = [&](std::uint32_t group) {
    SPILLWAY_CHECK(group == scenario::kNoGroup || group < workload.groups);
    return group == scenario::kNoGroup ? scenario::kNoGroup : first_group + group;
  };
  groups_.resize(groups_.size() + workload.groups);
  for (const scenario::PlannedFlow& planned : workload.flows) {
    const auto id = static_cast<FlowId>(records_.size());
    FlowRecord record{.flow = planned.flow};
    record.flow.id = id;
    record.flow.job = jobs_;
    const Plan plan{.earliest = planned.earliest,
                    .delay = planned.delay,
                    .group = numbered(planned.group),
                    .after_group = numbered(planned.after_group),
                    .stack = stack,
                    .is_background = workload.is_background};
    if (plan.group != scenario::kNoGroup) {
      ++groups_[plan.group].open;
    }
    if (plan.after_group != scenario::kNoGroup) {
      groups_[plan.after_group].waiting.push_back(id);
    }
    open_ += plan.is_background ? 0 : 1;
    records_.push_back(record);
    plans_.push_back(plan);
  }
  return jobs_++;
}

void WorkloadRunner::start() {
  for (FlowId id = 0; id < records_.size(); ++id) {
    const std::uint32_t after = plans_[id].after_group;
    if (after == scenario::kNoGroup || groups_[after].open == 0) {
      schedule(id, network_.now());
    }
  }
}

void WorkloadRunner::schedule(FlowId id, base::Instant ready) {
  const base::Instant due = std::max(ready, plans_[id].earliest) + plans_[id].delay;
  if (due <= network_.now()) {
    launch(id, network_.now());
    return;
  }
  network_.at(due, [this, id](base::Instant now) { launch(id, now); });
}

void WorkloadRunner::launch(FlowId id, base::Instant now) {
  FlowRecord& record = records_[id];
  if (record.ended) {
    return;  // its destination died while it waited
  }
  record.start = now;
  record.started = true;
  if (is_dead(record.flow.from) || is_dead(record.flow.to)) {
    on_flow_end({.id = id, .end = FlowEnd::kPeerDead}, now);
    return;
  }
  network_.start_flow(record.flow, plans_[id].stack);
}

// Uses the network's time: the calling stack's clock may be skewed.
void WorkloadRunner::on_flow_end(const FlowResult& result, base::Instant /*now*/) {
  SPILLWAY_CHECK(result.id < records_.size());
  FlowRecord& record = records_[result.id];
  if (record.ended) {
    return;  // already ended when its destination died
  }
  record.end = network_.now();
  record.ended = true;
  record.result = result;
  settle(result.id);
}

void WorkloadRunner::settle(FlowId id) {
  const Plan& plan = plans_[id];
  if (!plan.is_background) {
    --open_;
    done_ = open_ == 0;
  }
  if (plan.group == scenario::kNoGroup || --groups_[plan.group].open > 0) {
    return;
  }
  const std::vector<FlowId> waiting = std::move(groups_[plan.group].waiting);
  for (const FlowId waiting_id : waiting) {
    schedule(waiting_id, network_.now());
  }
}

void WorkloadRunner::on_host_death(HostId host, base::Instant now) {
  dead_.push_back(host);
  for (FlowId id = 0; id < records_.size(); ++id) {
    if (records_[id].started && records_[id].flow.to == host) {
      on_flow_end({.id = id, .end = FlowEnd::kPeerDead}, now);
    }
  }
}

bool WorkloadRunner::is_dead(HostId host) const {
  return std::find(dead_.begin(), dead_.end(), host) != dead_.end();
}

}  // namespace spillway::sim
