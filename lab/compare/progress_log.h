// SPDX-License-Identifier: Apache-2.0
//
// Progress of a training program: one JSON object per line, written by its rank 0.
//
//   {"event": "step", "step": 7, "seconds": 1.25, "step_ms": 80.5, "loss": 0.7}
//   {"event": "evaluation", "step": 50, "seconds": 9.5, "accuracy": 0.81}
//   {"event": "end"}
//
// or what the lab observes of a PyTorch script (python/spillway/lab):
//
//   {"event": "group", "backend": "gloo"}    it made its process group
//   {"event": "hook", "by": "lab"}           a model has torch's hook; "script": it had its own
//
// `seconds` counts from the program's own start; `step_ms` and `loss` may be missing. Other events
// and keys are ignored. Lines that are not such objects, or in which one of these keys is no
// sensible number, are counted and otherwise ignored.
//
// The reader takes bytes as they come and trusts none of them; it does no I/O. A LogFollower reads
// the file while it is being written: each look takes what was added. A missing file counts as
// empty.
//
// Limits: kMaxLineBytes per line; kMaxPoints of each kind, the excess is counted; kMaxBytesPerRead.
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/system_call.h"

namespace spillway::compare {

inline constexpr std::size_t kMaxLineBytes = 65536;
inline constexpr std::size_t kMaxPoints = 100'000;

struct LogStep {
  std::uint64_t step = 0;
  double seconds = 0.0;
  std::optional<double> step_ms;
  std::optional<double> loss;
};

struct LogEvaluation {
  std::uint64_t step = 0;
  double seconds = 0.0;
  double accuracy = 0.0;  // 0 to 1
};

// The fate of the hook that a transport wants around models.
enum class HookUse : std::uint8_t { kNoModel, kUsed, kScriptHasOwn };

struct ProgressLog {
  std::vector<LogStep> steps;
  std::vector<LogEvaluation> evaluations;
  bool has_ended = false;  // the program said so
  bool has_group = false;  // the lab saw its process group
  HookUse hook = HookUse::kNoModel;
  std::uint64_t bad_lines = 0;  // not understood, or too long
  std::uint64_t left_out = 0;   // steps and evaluations beyond kMaxPoints

  bool is_empty() const { return steps.empty() && evaluations.empty() && !has_ended; }
};

class ProgressLogReader {
 public:
  void feed(std::string_view bytes);
  // The log is complete; a last line without a newline counts, too.
  void finish();

  const ProgressLog& log() const { return log_; }

 private:
  void take_part(std::string_view part);
  void end_line();

  ProgressLog log_;
  std::string line_;
  bool is_too_long_ = false;
};

class LogFollower {
 public:
  static constexpr std::size_t kMaxBytesPerRead = std::size_t{1} << 20;

  explicit LogFollower(std::string path) : path_(std::move(path)) {}

  // Returns true if there was something to read.
  bool look();
  // Reads the rest. The file must be complete.
  void finish();

  const ProgressLog& log() const { return reader_.log(); }

 private:
  std::string path_;
  net::UniqueFd file_;
  ProgressLogReader reader_;
};

}  // namespace spillway::compare
