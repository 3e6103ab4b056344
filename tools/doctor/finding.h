// SPDX-License-Identifier: Apache-2.0
//
// What one check of a host, or of the path between two hosts, found, and the remedy.
//
//   ok        as Spillway wants it
//   note      works; the remedy would improve something
//   warning   works, but slower or with more loss than necessary
//   error     will not work as it is
//
// Checks are functions that return findings and never fail: if a check cannot examine something, it
// returns a note that says so. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::doctor {

enum class Severity : std::uint8_t { kOk, kNote, kWarning, kError };

std::string_view severity_name(Severity severity);

struct Finding {
  std::string check;  // name of the check: "kernel", "path-mtu"; several findings may share it
  Severity severity = Severity::kOk;
  std::string finding;
  std::string remedy{};  // empty if ok

  friend bool operator==(const Finding&, const Finding&) = default;
};

using Findings = std::vector<Finding>;

// kOk if there are no findings.
Severity worst_of(std::span<const Finding> findings);
std::size_t count_of(std::span<const Finding> findings, Severity severity);

void append(Findings& to, Findings more);

}  // namespace spillway::doctor
