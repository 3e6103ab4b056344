// SPDX-License-Identifier: Apache-2.0
//
// The finding of one check of a host, or of the path between two, and the remedy.
//
//   ok        as Spillway wants it
//   note      works; the remedy would improve something
//   warning   works, but slower or with more loss than necessary
//   error     will not work as it is
//
// Checks are functions that return findings and never fail: if a check cannot examine something, it
// returns a note that says so. Plain values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::doctor {

enum class Severity : std::uint8_t { kOk, kNote, kWarning, kError };

inline std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return "ok";
    case Severity::kNote:
      return "note";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "unknown";
}

struct Finding {
  std::string check;  // name of the check: "kernel", "path-mtu"; several findings may share it
  Severity severity = Severity::kOk;
  std::string finding;
  std::string remedy{};  // empty if ok

  friend bool operator==(const Finding&, const Finding&) = default;
};

using Findings = std::vector<Finding>;

// kOk if there are no findings.
inline Severity worst_of(std::span<const Finding> findings) {
  Severity worst = Severity::kOk;
  for (const Finding& finding : findings) {
    worst = std::max(worst, finding.severity);
  }
  return worst;
}

inline std::size_t count_of(std::span<const Finding> findings, Severity severity) {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [severity](const Finding& one) { return one.severity == severity; }));
}

inline void append(Findings& to, Findings more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace spillway::doctor
