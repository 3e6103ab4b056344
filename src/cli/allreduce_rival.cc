// SPDX-License-Identifier: Apache-2.0
#include "cli/allreduce_rival.h"

#include <sstream>

namespace spillway::cli {

std::vector<std::string> rival_task(const AllreduceSettings& settings, std::size_t bytes) {
  return {collective::nccl_tests_name(settings.type),
          redop_name(settings.op),
          std::to_string(bytes / collective::element_size(settings.type)),
          std::to_string(settings.warmup),
          std::to_string(settings.iterations),
          std::to_string(settings.in_flight)};
}

RivalTimes parse_rival_answer(const std::string& line, const AllreduceSettings& settings) {
  std::istringstream words(line);
  std::string kind;
  words >> kind;
  RivalTimes times;
  if (kind == "times") {
    for (double seconds = 0.0; words >> seconds;) {
      times.seconds.push_back(seconds / settings.in_flight);
    }
  }
  if (times.seconds.size() == settings.iterations) {
    return times;
  }
  times.seconds.clear();
  times.why_not = kind == "error" ? line.substr(kind.size() + 1) : "it ended without an answer";
  return times;
}

}  // namespace spillway::cli
