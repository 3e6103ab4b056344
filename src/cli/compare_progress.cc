// SPDX-License-Identifier: Apache-2.0
#include "cli/compare_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "compare/metrics.h"

namespace spillway::cli {

CompareProgress::CompareProgress(std::size_t runs)
    : runs_(runs), shown_(::isatty(STDERR_FILENO) == 1) {}

CompareProgress::~CompareProgress() {
  clear();
}

void CompareProgress::show(const compare::RunProgress& progress) const {
  if (shown_) {
    fmt::print(stderr, "\r\033[K{}", progress_line(run_, runs_, progress));
    std::fflush(stderr);
  }
}

void CompareProgress::clear() const {
  if (shown_) {
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
  }
}

std::string progress_line(std::size_t run, std::size_t runs, const compare::RunProgress& progress) {
  const compare::ProgressLog& log = progress.log;
  std::string line = fmt::format("[{}/{}] {}  {} s", run, runs, progress.transport.name,
                                 progress.sample.at.count() / 1'000'000'000);
  if (!log.steps.empty()) {
    line += fmt::format("  step {}", log.steps.back().step);
  }
  if (!log.evaluations.empty()) {
    line += fmt::format("  accuracy {:.1f} %", log.evaluations.back().accuracy * 100);
  }
  return line + fmt::format("  queue {} KiB  trimmed {}  lost {}",
                            progress.sample.queued_bytes / 1024,
                            compare::count_text(progress.sample.trimmed),
                            compare::count_text(progress.sample.lost));
}

}  // namespace spillway::cli
