// SPDX-License-Identifier: Apache-2.0
#include "elastic/job_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/chrome_events.h"

namespace spillway::runtime {
namespace {

std::string json_of(const MemberReport& member) {
  return fmt::format(
      "{{\"rank\":{},\"id\":\"{:016x}\",\"name\":{},\"address\":{},"
      "\"waits\":{}}}",
      member.rank ? std::to_string(*member.rank) : "null", member.id,
      base::json_quoted(member.name), base::json_quoted(member.address), member.waits);
}

std::string family(const char* name, const char* type, const char* help,
                   const std::vector<std::string>& samples) {
  return fmt::format("# HELP spillway_job_{0} {1}\n# TYPE spillway_job_{0} {2}\n{3}", name, help,
                     type, fmt::join(samples, ""));
}

template <typename Number>
std::string sample(const char* name, const std::string& labels, Number value) {
  return fmt::format("spillway_job_{}{{{}}} {}\n", name, labels, value);
}

}  // namespace

std::string status_json(const JobReport& report) {
  std::vector<std::string> members;
  for (const MemberReport& member : report.members) {
    members.push_back(json_of(member));
  }
  std::vector<std::string> stragglers;
  for (const std::string& straggler : report.stragglers) {
    stragglers.push_back(base::json_quoted(straggler));
  }
  return fmt::format(
      "{{\"job\":\"{}\",\"epoch\":{},\"step\":{},\"members\":[{}],\"stragglers\":[{}],"
      "\"waits_for\":{},\"last_change\":{{\"why\":{},\"step\":{},\"interrupted_ns\":{},"
      "\"parked_ns\":{},\"decided_ns\":{}}}}}",
      report.job, report.epoch, report.step, fmt::join(members, ","), fmt::join(stragglers, ","),
      base::json_quoted(report.waits_for), base::json_quoted(report.why), report.change_step,
      report.interrupted_ns, report.parked_ns, report.decided_ns);
}

std::string metrics_text(const JobReport& report) {
  const std::string job = fmt::format("job=\"{}\"", report.job);
  const auto ranks = std::ranges::count_if(
      report.members, [](const MemberReport& member) { return member.rank.has_value(); });
  const auto standbys = std::ssize(report.members) - ranks;
  const auto number = [&job](const char* name, const char* type, const char* help, auto value) {
    return family(name, type, help, {sample(name, job, value)});
  };
  return number("epoch", "gauge", "How often the members have changed, and one.", report.epoch) +
         number("rank", "gauge", "This process's rank; -1 for a standby.",
                report.rank ? static_cast<std::int64_t>(*report.rank) : -1) +
         number("step", "gauge", "The latest step that was begun here.", report.step) +
         family("members", "gauge", "Processes of the job, by what they are.",
                {sample("members", job + ",standing=\"rank\"", ranks),
                 sample("members", job + ",standing=\"standby\"", standbys)}) +
         number("stragglers", "gauge", "Ranks that are slower than others in this epoch.",
                report.stragglers.size()) +
         number("changes_total", "counter", "Changes of members that this process went through.",
                report.changes) +
         number("interruptions_total", "counter", "Steps that had to be stopped for one.",
                report.interruptions) +
         family("pause_seconds_total", "counter", "Time that training stood still for changes.",
                {sample("pause_seconds_total", job + ",phase=\"stop\"",
                        base::seconds_of(report.stopping)),
                 sample("pause_seconds_total", job + ",phase=\"decide\"",
                        base::seconds_of(report.deciding))});
}

}  // namespace spillway::runtime
