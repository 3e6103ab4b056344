// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace spillway::cli {
namespace {

using doctor::Severity;

constexpr std::array<Severity, 4> kSeverities = {Severity::kOk, Severity::kNote, Severity::kWarning,
                                                 Severity::kError};

struct Label {
  std::string_view text;
  std::string_view colour;  // what turns it on
};

Label label_of(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return {"ok", "\x1b[32m"};
    case Severity::kNote:
      return {"note", "\x1b[36m"};
    case Severity::kWarning:
      return {"warn", "\x1b[33m"};
    case Severity::kError:
      return {"FAIL", "\x1b[1;31m"};
  }
  return {"", ""};
}

std::string label_text(Severity severity, bool coloured) {
  const Label label = label_of(severity);
  const std::string padded = fmt::format("{:<4}", label.text);
  return coloured ? fmt::format("{}{}\x1b[0m", label.colour, padded) : padded;
}

std::string counts_text(std::span<const doctor::Finding> findings) {
  return fmt::format("{} ok, {} notes, {} warnings, {} errors", count_of(findings, Severity::kOk),
                     count_of(findings, Severity::kNote), count_of(findings, Severity::kWarning),
                     count_of(findings, Severity::kError));
}

std::string_view verdict(Severity worst) {
  if (worst == Severity::kError) {
    return "not fit";
  }
  return worst == Severity::kWarning ? "fit with reservations" : "fit";
}

}  // namespace

std::string findings_text(std::span<const doctor::Finding> findings, bool coloured) {
  std::size_t width = 0;
  for (const doctor::Finding& finding : findings) {
    width = std::max(width, finding.check.size());
  }
  std::string text;
  for (const doctor::Finding& finding : findings) {
    text += fmt::format("{}  {:<{}}  {}\n", label_text(finding.severity, coloured), finding.check,
                        width, finding.finding);
    if (!finding.remedy.empty()) {
      text += fmt::format("{:{}}do: {}\n", "", width + 8, finding.remedy);
    }
  }
  return text + fmt::format("{}: {}\n", verdict(worst_of(findings)), counts_text(findings));
}

nlohmann::json findings_json(std::span<const doctor::Finding> findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const doctor::Finding& finding : findings) {
    list.push_back({{"check", finding.check},
                    {"severity", severity_name(finding.severity)},
                    {"finding", finding.finding},
                    {"remedy", finding.remedy}});
  }
  nlohmann::json summary = {{"fit", worst_of(findings) < Severity::kWarning}};
  for (const Severity severity : kSeverities) {
    summary[std::string(severity_name(severity))] = count_of(findings, severity);
  }
  return {{"findings", list}, {"summary", summary}};
}

bool wants_colours() {
  const char* refused = std::getenv("NO_COLOR");
  return (refused == nullptr || *refused == '\0') && ::isatty(STDOUT_FILENO) == 1;
}

}  // namespace spillway::cli
