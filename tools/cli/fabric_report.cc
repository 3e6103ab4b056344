// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/fabric_report.h"

#include <fmt/format.h>

#include <iterator>

#include "sim/scenario/aggregation.h"
#include "switch/dataplane/port_config.h"

namespace spillway::cli {

// ------------------------------------------------------------------ switches that add

namespace {

using nlohmann::json;

json counters_json(const spillway_sum_counters& counters) {
  json out = {{"lost_slots", counters.lost_slots},
              {"copies", counters.copies},
              {"unknown_recipients", counters.unknown}};
  for (std::size_t i = 0; i < SPILLWAY_SUM_OUTCOMES; ++i) {
    out[std::string(sim::sum_outcome_name(i))] = counters.outcomes[i];
  }
  return out;
}

json job_json(const sim::SumJobTotals& job) {
  return {{"job", job.job},
          {"held", job.held},
          {"limit", job.limit},
          {"packets", counters_json(job.counters)}};
}

json adder_json(const sim::AdderTotals& adder) {
  json jobs = json::array();
  for (const sim::SumJobTotals& job : adder.jobs) {
    jobs.push_back(job_json(job));
  }
  return {{"switch", adder.name},
          {"slots", adder.config.slots},
          {"policy", scenario::policy_name(adder.config.policy)},
          {"level", adder.config.level},
          {"held", adder.held},
          {"packets", counters_json(adder.counters)},
          {"jobs", jobs}};
}

// Packets that were forwarded without asking for a slot.
std::uint64_t passed(const spillway_sum_counters& counters) {
  std::uint64_t sum = 0;
  for (unsigned i = SPILLWAY_SUM_PAST_ALONE; i < SPILLWAY_SUM_OUTCOMES; ++i) {
    sum += counters.outcomes[i];
  }
  return sum;
}

}  // namespace

json adders_json(const std::vector<sim::AdderTotals>& adders) {
  json out = json::array();
  for (const sim::AdderTotals& adder : adders) {
    out.push_back(adder_json(adder));
  }
  return out;
}

TextTable adders_table(const std::vector<sim::AdderTotals>& adders) {
  TextTable table({"adds", "job", "held", "claimed", "added", "whole", "repeated", "collided",
                   "evicted", "flushed", "not held", "passed", "copies"});
  for (const sim::AdderTotals& adder : adders) {
    for (const sim::SumJobTotals& job : adder.jobs) {
      const auto count = [&job](spillway_sum_outcome outcome) {
        return std::to_string(job.counters.outcomes[outcome]);
      };
      table.add_row({adder.name, std::to_string(job.job), std::to_string(job.held),
                     count(SPILLWAY_SUM_DID_CLAIM), count(SPILLWAY_SUM_DID_ADD),
                     count(SPILLWAY_SUM_DID_EMIT), count(SPILLWAY_SUM_DID_DUPLICATE),
                     count(SPILLWAY_SUM_DID_COLLISION), std::to_string(job.counters.lost_slots),
                     count(SPILLWAY_SUM_DID_FLUSH), count(SPILLWAY_SUM_DID_NOT_HELD),
                     std::to_string(passed(job.counters)), std::to_string(job.counters.copies)});
    }
  }
  return table;
}

std::string adders_metrics(const std::vector<sim::AdderTotals>& adders) {
  std::string text;
  if (adders.empty()) {
    return text;
  }
  const auto out = std::back_inserter(text);
  const auto type = [&out](const char* name, const char* kind, const char* help) {
    fmt::format_to(out, "# HELP {0} {2}\n# TYPE {0} {1}\n", name, kind, help);
  };
  // Prints a line per switch and job, with `value` of the job.
  const auto lines = [&](const char* name, const std::string& label, const auto& value) {
    for (const sim::AdderTotals& adder : adders) {
      for (const sim::SumJobTotals& job : adder.jobs) {
        fmt::format_to(out, "{}{{switch=\"{}\",job=\"{}\"{}}} {}\n", name, adder.name, job.job,
                       label, value(job));
      }
    }
  };
  type("spillway_switch_sums_total", "counter", "Sum packets by what became of them.");
  for (std::size_t i = 0; i < SPILLWAY_SUM_OUTCOMES; ++i) {
    lines("spillway_switch_sums_total", fmt::format(",outcome=\"{}\"", sim::sum_outcome_name(i)),
          [i](const sim::SumJobTotals& job) { return job.counters.outcomes[i]; });
  }
  type("spillway_switch_sums_lost_slots_total", "counter", "Slots that other jobs or chunks took.");
  lines("spillway_switch_sums_lost_slots_total", "",
        [](const sim::SumJobTotals& job) { return job.counters.lost_slots; });
  type("spillway_switch_sums_copies_total", "counter", "Copies of results.");
  lines("spillway_switch_sums_copies_total", "",
        [](const sim::SumJobTotals& job) { return job.counters.copies; });
  type("spillway_switch_sums_held", "gauge", "Slots that wait for parts.");
  lines("spillway_switch_sums_held", "", [](const sim::SumJobTotals& job) { return job.held; });
  type("spillway_switch_sums_slots", "gauge", "Slots there are.");
  for (const sim::AdderTotals& adder : adders) {
    fmt::format_to(out, "spillway_switch_sums_slots{{switch=\"{}\"}} {}\n", adder.name,
                   adder.config.slots);
  }
  return text;
}

// ------------------------------------------------------------------ all switches

namespace {

using fabric::FabricSnapshot;
using fabric::PortSnapshot;
using nlohmann::json;

std::string reason(unsigned number) {
  return std::string(dataplane::reason_name(static_cast<spillway_reason>(number)));
}

// The name of a class: the priority that it holds.
std::string class_name(unsigned queue) {
  return queue == SPILLWAY_CONTROL_QUEUE ? "control" : std::to_string(queue);
}

double gigabits_per_second(std::uint64_t bytes, base::Duration elapsed) {
  return elapsed > base::Duration()
             ? static_cast<double>(bytes) * 8 / static_cast<double>(elapsed.count())
             : 0.0;
}

// Packets by class, for classes that had any.
json classes_json(const spillway_port_counters& counters) {
  json classes = json::object();
  for (unsigned queue = 0; queue < SPILLWAY_QUEUES; ++queue) {
    for (unsigned i = 0; i < SPILLWAY_REASONS; ++i) {
      if (counters.by_class[queue][i] != 0) {
        classes[class_name(queue)][reason(i)] = counters.by_class[queue][i];
      }
    }
  }
  return classes;
}

json port_json(const PortSnapshot& port) {
  return {{"port", port.name},
          {"packets", reasons_json(port.counters)},
          {"trimmed_by_importance", port.counters.trimmed},
          {"dropped_by_importance", port.counters.dropped},
          {"dropped_control", port.counters.dropped_control},
          {"packets_by_class", classes_json(port.counters)},
          {"sent_packets", port.sent_packets},
          {"sent_bytes", port.sent_bytes},
          {"lost_to_faults", port.lost_to_faults},
          {"queued_bytes", port.queued_bytes},
          {"untouched", port.untouched},
          {"same_port", port.same_port}};
}

// An event that should not happen, and its meaning.
struct Trouble {
  std::uint64_t count;
  const char* meaning;
};

}  // namespace

TextTable fabric_table(const FabricSnapshot& now, const FabricSnapshot& before,
                       base::Duration elapsed) {
  TextTable table({"port", "sent", "marked", "trimmed", "diverted", "full", "early", "red",
                   "control full", "lost", "queued", "Gbit/s"});
  for (std::size_t i = 0; i < now.ports.size(); ++i) {
    const PortSnapshot& port = now.ports[i];
    const std::uint64_t bytes_before = i < before.ports.size() ? before.ports[i].sent_bytes : 0;
    const auto count = [&port](spillway_reason which) {
      return std::to_string(port.counters.packets[which]);
    };
    table.add_row(
        {port.name, std::to_string(port.sent_packets), count(SPILLWAY_REASON_MARKED),
         count(SPILLWAY_REASON_TRIMMED), count(SPILLWAY_REASON_DIVERTED),
         count(SPILLWAY_REASON_QUEUE_FULL), count(SPILLWAY_REASON_EARLY),
         count(SPILLWAY_REASON_RED), count(SPILLWAY_REASON_CONTROL_FULL),
         std::to_string(port.lost_to_faults), std::to_string(port.queued_bytes),
         fmt::format("{:.3f}", gigabits_per_second(port.sent_bytes - bytes_before, elapsed))});
  }
  return table;
}

std::string fabric_summary(const FabricSnapshot& snapshot) {
  std::string text = fmt::format("{} frames in, {} out", snapshot.frames_in, snapshot.frames_out);
  text += snapshot.mean_late_us > 0.0
              ? fmt::format("; late by {:.1f} us on average, {:.0f} us at p99, {} us at worst\n",
                            snapshot.mean_late_us, snapshot.p99_late_us, snapshot.latest_us)
              : "\n";
  const Trouble troubles[] = {
      {snapshot.missed_in, "lost before they were read: this machine is too slow for the load"},
      {snapshot.missed_out, "refused by the kernel on their way out"},
      {snapshot.dropped_in, "dropped at their own host: it sent more than its link carries"},
      {snapshot.oversized, "longer than the interface's MTU: turn off TSO, GSO and GRO"},
      {snapshot.foreign, "not Spillway packets: a relay carries nothing else"},
      {snapshot.unknown, "from or for nobody that is known here"},
      {snapshot.same_port, "for somebody behind the port they came in at: dropped"}};
  for (const Trouble& trouble : troubles) {
    if (trouble.count > 0) {
      text += fmt::format("{} {}\n", trouble.count, trouble.meaning);
    }
  }
  return text;
}

json reasons_json(const spillway_port_counters& counters) {
  json packets = json::object();
  for (unsigned i = 0; i < SPILLWAY_REASONS; ++i) {
    packets[reason(i)] = counters.packets[i];
  }
  return packets;
}

json fabric_json(const FabricSnapshot& snapshot) {
  json ports = json::array();
  for (const PortSnapshot& port : snapshot.ports) {
    ports.push_back(port_json(port));
  }
  return {{"ports", ports},
          {"frames_in", snapshot.frames_in},
          {"frames_out", snapshot.frames_out},
          {"missed_in", snapshot.missed_in},
          {"missed_out", snapshot.missed_out},
          {"dropped_in", snapshot.dropped_in},
          {"oversized", snapshot.oversized},
          {"foreign", snapshot.foreign},
          {"unknown", snapshot.unknown},
          {"same_port", snapshot.same_port},
          {"lost_to_faults", snapshot.lost_to_faults},
          {"tenant_bytes", snapshot.tenant_bytes},
          {"tenants_wanted_bytes", snapshot.wanted_bytes},
          {"latest_us", snapshot.latest_us},
          {"mean_late_us", snapshot.mean_late_us},
          {"p99_late_us", snapshot.p99_late_us},
          {"adders", adders_json(snapshot.adders)}};
}

std::string fabric_metrics(const FabricSnapshot& snapshot) {
  std::string text;
  const auto out = std::back_inserter(text);
  const auto type = [&out](const char* name, const char* kind, const char* help) {
    fmt::format_to(out, "# HELP {0} {2}\n# TYPE {0} {1}\n", name, kind, help);
  };
  type("spillway_switch_packets_total", "counter",
       "Packets by the class they belong to and by what was decided about them.");
  for (const PortSnapshot& port : snapshot.ports) {
    for (unsigned queue = 0; queue < SPILLWAY_QUEUES; ++queue) {
      for (unsigned i = 0; i < SPILLWAY_REASONS; ++i) {
        fmt::format_to(
            out, "spillway_switch_packets_total{{port=\"{}\",class=\"{}\",verdict=\"{}\"}} {}\n",
            port.name, class_name(queue), reason(i), port.counters.by_class[queue][i]);
      }
    }
  }
  type("spillway_switch_lost_total", "counter", "Packets lost behind the queue, to faults.");
  for (const PortSnapshot& port : snapshot.ports) {
    fmt::format_to(out, "spillway_switch_lost_total{{port=\"{}\"}} {}\n", port.name,
                   port.lost_to_faults);
  }
  type("spillway_switch_dropped_total", "counter", "Dropped Spillway data packets.");
  for (const PortSnapshot& port : snapshot.ports) {
    for (unsigned i = 0; i < SPILLWAY_PRIORITIES; ++i) {
      fmt::format_to(out, "spillway_switch_dropped_total{{port=\"{}\",importance=\"{}\"}} {}\n",
                     port.name, i, port.counters.dropped[i]);
    }
  }
  type("spillway_switch_untouched_total", "counter",
       "Frames that are not Spillway's and were left to the kernel.");
  for (const PortSnapshot& port : snapshot.ports) {
    fmt::format_to(out, "spillway_switch_untouched_total{{port=\"{}\"}} {}\n", port.name,
                   port.untouched);
  }
  type("spillway_switch_same_port_total", "counter",
       "Frames dropped because their receiver is behind the port they came in at (in the kernel).");
  for (const PortSnapshot& port : snapshot.ports) {
    fmt::format_to(out, "spillway_switch_same_port_total{{port=\"{}\"}} {}\n", port.name,
                   port.same_port);
  }
  type("spillway_switch_sent_bytes_total", "counter", "Bytes put on the port's link.");
  for (const PortSnapshot& port : snapshot.ports) {
    fmt::format_to(out, "spillway_switch_sent_bytes_total{{port=\"{}\"}} {}\n", port.name,
                   port.sent_bytes);
  }
  type("spillway_switch_queued_bytes", "gauge", "Bytes that wait at the port.");
  for (const PortSnapshot& port : snapshot.ports) {
    fmt::format_to(out, "spillway_switch_queued_bytes{{port=\"{}\"}} {}\n", port.name,
                   port.queued_bytes);
  }
  type("spillway_switch_frames_total", "counter", "Frames at the fabric's edge.");
  for (const auto& [edge, count] :
       {std::pair("in", snapshot.frames_in), std::pair("out", snapshot.frames_out),
        std::pair("missed_in", snapshot.missed_in), std::pair("missed_out", snapshot.missed_out),
        std::pair("dropped_in", snapshot.dropped_in), std::pair("oversized", snapshot.oversized),
        std::pair("foreign", snapshot.foreign), std::pair("unknown", snapshot.unknown),
        std::pair("same_port", snapshot.same_port)}) {
    fmt::format_to(out, "spillway_switch_frames_total{{edge=\"{}\"}} {}\n", edge, count);
  }
  type("spillway_switch_latest_microseconds", "gauge", "How late the latest frame left.");
  fmt::format_to(out, "spillway_switch_latest_microseconds {}\n", snapshot.latest_us);
  return text + adders_metrics(snapshot.adders);
}

}  // namespace spillway::cli
