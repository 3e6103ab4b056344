// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/finding.h"

#include <algorithm>
#include <iterator>

namespace spillway::doctor {

std::string_view severity_name(Severity severity) {
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

Severity worst_of(std::span<const Finding> findings) {
  Severity worst = Severity::kOk;
  for (const Finding& finding : findings) {
    worst = std::max(worst, finding.severity);
  }
  return worst;
}

std::size_t count_of(std::span<const Finding> findings, Severity severity) {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [severity](const Finding& one) { return one.severity == severity; }));
}

void append(Findings& to, Findings more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace spillway::doctor
