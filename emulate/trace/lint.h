// SPDX-License-Identifier: Apache-2.0
//
// Finds errors in traces, by file and node, before a run would hang on them:
//
//   error    a cycle, duplicate ids, dependencies on a missing node or on the node itself, members
//   of
//            a collective that call different ones, messages without a sender or receiver, and
//            nodes that can never run, with the ranks that arrive and those that do not
//   warning  communication without its kind, size or peer: a replay spends its recorded time and
//            moves nothing
//   note     ranks without a trace; control dependencies that cannot be followed
//
// Takes time linear in nodes and dependencies, except that ids are sorted if the file does not
// order them. Nothing recurses, so chains may have any length. The first kMaxFindingsPerKind
// findings of each kind are reported; the rest are counted.
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
  std::uint64_t counts[kFindingKinds] = {};  // includes findings that are not reported

  std::uint64_t count(Severity severity) const;
};

LintReport lint(const World& world);

}  // namespace spillway::emulate
