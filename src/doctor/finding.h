// SPDX-License-Identifier: Apache-2.0
//
// What one check of a host, or of the path between two hosts, found out, and what to do about it.
//
//   ok        as Spillway wants it
//   note      works; the remedy would buy something
//   warning   works, but slower or with more loss than need be
//   error     will not work as it is
//
// Checks are functions that return findings and never fail themselves: what could not be looked at
// is a note that says so. Plain values.
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
  std::string check;  // which one: "kernel", "path-mtu"; several findings may share it
  Severity severity = Severity::kOk;
  std::string finding;
  std::string remedy{};  // empty when it is ok

  friend bool operator==(const Finding&, const Finding&) = default;
};

using Findings = std::vector<Finding>;

// kOk where there are none.
Severity worst_of(std::span<const Finding> findings);
std::size_t count_of(std::span<const Finding> findings, Severity severity);

void append(Findings& to, Findings more);

}  // namespace spillway::doctor
