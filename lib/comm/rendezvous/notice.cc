// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/notice.h"

#include <fmt/format.h>

#include <vector>

namespace spillway::runtime {
namespace {

constexpr std::size_t kMaxRunsNamed = 12;

std::string name_run(std::uint32_t first, std::uint32_t last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

// "a", "a and b", "a, b and c"
std::string joined(const std::vector<std::string>& parts) {
  if (parts.size() == 1) {
    return parts.front();
  }
  return fmt::format("{} and {}", fmt::join(parts.begin(), parts.end() - 1, ", "), parts.back());
}

}  // namespace

std::string name_ranks(std::span<const std::uint32_t> ranks, std::uint32_t world) {
  std::vector<std::string> runs;
  std::size_t at = 0;
  while (at < ranks.size() && runs.size() < kMaxRunsNamed) {
    std::size_t end = at + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
      ++end;
    }
    // Two in a row are listed as two: "3 and 4".
    end = end - at == 2 ? at + 1 : end;
    runs.push_back(name_run(ranks[at], ranks[end - 1]));
    at = end;
  }
  if (at < ranks.size()) {
    runs.push_back(fmt::format("{} others", ranks.size() - at));
  }
  return fmt::format("{} {} of {}", ranks.size() == 1 ? "rank" : "ranks", joined(runs), world);
}

std::string name_duration(base::Duration duration) {
  const std::int64_t ms = duration.count() / 1'000'000;
  return ms % 1000 == 0 ? fmt::format("{} s", ms / 1000) : fmt::format("{} ms", ms);
}

}  // namespace spillway::runtime
