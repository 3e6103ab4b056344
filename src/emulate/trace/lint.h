// SPDX-License-Identifier: Apache-2.0
//
// What is wrong with traces, by file and node, before anybody waits for them:
//
//   error    a cycle, ids that are there twice, dependencies on no node or on the node itself,
//   members
//            of a collective who do not call the same, messages nobody sends or receives, and
//            whatever can never run, by group and number, with who comes and who does not
//   warning  communication that does not say its kind, size or other end: it takes its time in a
//            replay and moves nothing
//   note     ranks without a trace; control dependencies that could not be followed
//
// Linear in nodes and dependencies (sorting by id aside, where a file does not have them in order),
// and iterative: chains of any length are walked, not recursed into. Of each kind the first
// kMaxFindingsPerKind are told of and the rest counted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "emulate/trace/graph.h"

namespace spillway::emulate {

enum class Severity : std::uint8_t { kError, kWarning, kNote };
const char* severity_name(Severity severity);

enum class FindingKind : std::uint8_t {
  kCycle,
  kDuplicateId,
  kDanglingDependency,
  kDependsOnItself,
  kDisagreement,
  kUnmatched,
  kCannotRun,
  kIncomplete,
  kNoTrace,
  kControl,
};
inline constexpr std::size_t kFindingKinds = 10;
const char* finding_kind_name(FindingKind kind);
Severity severity_of(FindingKind kind);

struct Finding {
  FindingKind kind = FindingKind::kCycle;
  std::string file;
  std::optional<std::uint64_t> node;  // its id
  std::string text;
};

inline constexpr std::uint64_t kMaxFindingsPerKind = 20;

struct LintReport {
  std::vector<Finding> findings;
  std::uint64_t counts[kFindingKinds] = {};  // also of what is not told of

  std::uint64_t count(Severity severity) const;
};

LintReport lint(const World& world);

}  // namespace spillway::emulate
