// SPDX-License-Identifier: Apache-2.0
//
// How a command ends early: by an exception that main() turns into a sentence and an exit code.
#pragma once

#include <stdexcept>
#include <string>

#include "base/status.h"

namespace spillway::bench {

// Exit codes of the tool.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// A failure with a sentence for the user; main() prints it and exits with kExitFailure.
class CommandError : public std::runtime_error {
 public:
  explicit CommandError(const std::string& message) : std::runtime_error(message) {}
  explicit CommandError(const base::Status& status) : CommandError(status.to_string()) {}
};

// Ends the tool with the exit code of a command that it ran.
struct CommandExit {
  int code = kExitOk;
};

inline void throw_unless_ok(const base::Status& status) {
  if (!status.ok()) {
    throw CommandError(status);
  }
}

// Returns the value of a result, or throws CommandError.
template <typename T>
T value_or_throw(base::Result<T> result) {
  if (!result.ok()) {
    throw CommandError(result.status());
  }
  return std::move(result).value();
}

}  // namespace spillway::bench
