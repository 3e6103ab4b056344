// SPDX-License-Identifier: Apache-2.0
#include "lab/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <type_traits>

namespace spillway::lab {
namespace {

// Calls `visit` with every number, in the order of the report's line.
template <typename Snapshot, typename Visit>
void visit_fabric(Snapshot& fabric, Visit visit) {
  visit(fabric.frames_in);
  visit(fabric.frames_out);
  visit(fabric.missed_in);
  visit(fabric.missed_out);
  visit(fabric.dropped_in);
  visit(fabric.oversized);
  visit(fabric.foreign);
  visit(fabric.unknown);
  visit(fabric.same_port);
  visit(fabric.lost_to_faults);
  visit(fabric.tenant_bytes);
  visit(fabric.wanted_bytes);
  visit(fabric.latest_us);
  visit(fabric.mean_late_us);
  visit(fabric.p99_late_us);
}

template <typename Pace, typename Visit>
void visit_pace(Pace& pace, Visit visit) {
  visit(pace.mean_late_us);
  visit(pace.p99_late_us);
  visit(pace.limit_us);
  visit(pace.missed);
  visit(pace.stolen);
}

template <typename Time, typename Visit>
void visit_time(Time& time, Visit visit) {
  visit(time.knows_operations);
  visit(time.use);
  visit(time.gaps);
  visit(time.sent_bytes);
  visit(time.resent_bytes);
  visit(time.wasted_bytes);
}

template <typename Time, typename Visit>
void visit_time_durations(Time& time, Visit visit) {
  visit(time.elapsed);
  visit(time.bin);
  visit(time.under_way);
  visit(time.idle);
  visit(time.gaps_total);
  visit(time.longest_gap);
  for (auto& idle : time.idle_by_part) {
    visit(idle);
  }
}

template <typename Port, typename Visit>
void visit_port(Port& port, Visit visit) {
  visit(port.sent_packets);
  visit(port.sent_bytes);
  visit(port.lost_to_faults);
  visit(port.queued_bytes);
  visit(port.untouched);
  visit(port.same_port);
  auto& counters = port.counters;
  for (unsigned i = 0; i < SPILLWAY_REASONS; ++i) {
    visit(counters.packets[i]);
    visit(counters.bytes[i]);
  }
  for (unsigned i = 0; i < SPILLWAY_PRIORITIES; ++i) {
    visit(counters.trimmed[i]);
    visit(counters.dropped[i]);
  }
  visit(counters.dropped_control);
  for (auto& verdicts : counters.by_class) {
    for (auto& packets : verdicts) {
      visit(packets);
    }
  }
}

template <typename Counters, typename Visit>
void visit_sums(Counters& counters, Visit visit) {
  for (auto& packets : counters.outcomes) {
    visit(packets);
  }
  visit(counters.lost_slots);
  visit(counters.copies);
  visit(counters.unknown);
}

template <typename Adder, typename Visit>
void visit_adder(Adder& adder, Visit visit) {
  visit(adder.config.slots);
  visit(adder.config.lease_us);
  visit(adder.config.pools);
  visit(adder.held);
  visit_sums(adder.counters, visit);
}

template <typename Job, typename Visit>
void visit_sum_job(Job& job, Visit visit) {
  visit(job.job);
  visit(job.held);
  visit(job.limit);
  visit_sums(job.counters, visit);
}

template <typename Summary, typename Visit>
void visit_trace(Summary& trace, Visit visit) {
  for (auto& packets : trace.packets) {
    visit(packets);
  }
  visit(trace.left_out);
  visit(trace.missed);
}

template <typename Sample, typename Visit>
void visit_sample(Sample& sample, Visit visit) {
  visit(sample.sent_bytes);
  visit(sample.queued_bytes);
  visit(sample.deepest_bytes);
  visit(sample.trimmed);
  visit(sample.lost);
}

auto append_to(std::string& line) {
  return [&line](auto number) { line += fmt::format(" {}", +number); };  // bool as 0 or 1
}

auto read_from(std::istringstream& words) {
  return [&words](auto& number) { words >> number; };
}

base::Duration read_duration(std::istringstream& words) {
  std::int64_t nanoseconds = 0;
  words >> nanoseconds;
  return base::nanoseconds(nanoseconds);
}

// Names have no spaces; an empty name is written as a dash.
std::string time_line(const TimeReport& time) {
  std::string line =
      fmt::format("time {} {}", time.link.empty() ? "-" : time.link, time.rate.count());
  visit_time(time, append_to(line));
  visit_time_durations(
      time, [&line](base::Duration duration) { line += fmt::format(" {}", duration.count()); });
  for (const double use : time.use_over_time) {
    line += fmt::format(" {:.4f}", use);
  }
  return line;
}

TimeReport read_time(std::istringstream& words) {
  TimeReport time;
  std::int64_t rate = 0;
  words >> time.link >> rate;
  time.link = time.link == "-" ? "" : time.link;
  time.rate = base::bits_per_second(rate);
  visit_time(time, read_from(words));
  visit_time_durations(time,
                       [&words](base::Duration& duration) { duration = read_duration(words); });
  for (double use = 0.0; words >> use;) {
    time.use_over_time.push_back(use);
  }
  return time;
}

TraceSummary read_trace(std::istringstream& words) {
  TraceSummary trace;
  visit_trace(trace, read_from(words));
  trace.median = read_duration(words);
  trace.p99 = read_duration(words);
  return trace;
}

// Reads a byte as a number, not as a character.
std::uint8_t read_byte(std::istringstream& words) {
  unsigned value = 0;
  words >> value;
  return static_cast<std::uint8_t>(value);
}

sim::AdderTotals read_adder(std::istringstream& words) {
  sim::AdderTotals adder;
  words >> adder.name;
  adder.config.policy = read_byte(words);
  adder.config.level = read_byte(words);
  visit_adder(adder, read_from(words));
  return adder;
}

std::string adder_lines(const sim::AdderTotals& adder) {
  std::string lines =
      fmt::format("\nadder {} {} {}", adder.name, adder.config.policy, adder.config.level);
  visit_adder(adder, append_to(lines));
  for (const sim::SumJobTotals& job : adder.jobs) {
    lines += "\nsums";
    visit_sum_job(job, append_to(lines));
  }
  return lines;
}

void read_line(const std::string& line, Report& report) {
  std::istringstream words(line);
  std::string noun;
  words >> noun;
  if (noun == "ready") {
    report.ready = true;
  } else if (noun == "error") {
    int code = 0;
    std::string message;
    words >> code >> std::ws;
    std::getline(words, message);
    report.error = base::Status(static_cast<base::StatusCode>(code), message);
  } else if (noun == "exit") {
    words >> report.outcome.exit_codes.emplace_back();
  } else if (noun == "interrupted") {
    words >> report.outcome.interrupted_by;
  } else if (noun == "failed") {
    words >> report.outcome.first_failed.emplace();
  } else if (noun == "overlimit") {
    report.outcome.over_limit = true;
  } else if (noun == "dataplane") {
    std::string name;
    words >> name;
    report.outcome.dataplane =
        name == dataplane_name(Dataplane::kBpf) ? Dataplane::kBpf : Dataplane::kUser;
  } else if (noun == "fabric") {
    visit_fabric(report.outcome.fabric, read_from(words));
  } else if (noun == "port") {
    fabric::PortSnapshot& port = report.outcome.fabric.ports.emplace_back();
    words >> port.name;
    visit_port(port, read_from(words));
  } else if (noun == "adder") {
    report.outcome.fabric.adders.push_back(read_adder(words));
  } else if (noun == "sums" && !report.outcome.fabric.adders.empty()) {
    visit_sum_job(report.outcome.fabric.adders.back().jobs.emplace_back(), read_from(words));
  } else if (noun == "pace") {
    visit_pace(report.outcome.pace, read_from(words));
  } else if (noun == "time") {
    report.outcome.time = read_time(words);
  } else if (noun == "trace") {
    report.outcome.trace = read_trace(words);
  } else if (noun == "took") {
    report.outcome.elapsed = read_duration(words);
    report.outcome.cpu = read_duration(words);
  }
}

}  // namespace

std::string error_line(const base::Status& status) {
  std::string message = status.message();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return fmt::format("error {} {}\n", static_cast<int>(status.code()), message);
}

std::string outcome_lines(const LabOutcome& outcome) {
  std::string text;
  for (const int code : outcome.exit_codes) {
    text += fmt::format("exit {}\n", code);
  }
  text += outcome.first_failed ? fmt::format("failed {}\n", *outcome.first_failed) : "";
  text += outcome.over_limit ? "overlimit\n" : "";
  text +=
      fmt::format("interrupted {}\ntook {} {}\ndataplane {}\nfabric", outcome.interrupted_by,
                  outcome.elapsed.count(), outcome.cpu.count(), dataplane_name(outcome.dataplane));
  visit_fabric(outcome.fabric, append_to(text));
  for (const fabric::PortSnapshot& port : outcome.fabric.ports) {
    text += fmt::format("\nport {}", port.name);
    visit_port(port, append_to(text));
  }
  for (const sim::AdderTotals& adder : outcome.fabric.adders) {
    text += adder_lines(adder);
  }
  text += "\npace";
  visit_pace(outcome.pace, append_to(text));
  text += "\n" + time_line(outcome.time);
  if (outcome.trace) {
    text += "\ntrace";
    visit_trace(*outcome.trace, append_to(text));
    text += fmt::format(" {} {}", outcome.trace->median.count(), outcome.trace->p99.count());
  }
  return text + "\n";
}

std::string sample_line(const FabricSample& sample) {
  std::string line = fmt::format("sample {}", sample.at.count());
  visit_sample(sample, append_to(line));
  return line + "\n";
}

std::optional<FabricSample> parse_sample(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string noun;
  words >> noun;
  if (noun != "sample") {
    return std::nullopt;
  }
  FabricSample sample;
  sample.at = read_duration(words);
  visit_sample(sample, read_from(words));
  return words.fail() ? std::nullopt : std::optional(sample);
}

Report parse_report(std::string_view text) {
  Report report;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    read_line(std::string(text.substr(0, end)), report);
    text.remove_prefix(end + 1);
  }
  return report;
}

int LabOutcome::worst_exit_code() const {
  if (interrupted_by != 0) {
    return 128 + interrupted_by;
  }
  if (over_limit) {
    return kOverLimitExit;
  }
  return exit_codes.empty() ? 0 : *std::max_element(exit_codes.begin(), exit_codes.end());
}

}  // namespace spillway::lab
