// SPDX-License-Identifier: Apache-2.0
//
// Operating errors as values. A Status is success, or a code with a message that says what went
// wrong and what to do. A Result<T> is a T or such a Status.
//
// Codes are grouped by the largest thing that must be rebuilt before a retry (ErrorScope): callers
// decide by scope, people read the message. Lost, trimmed or late packets are not errors and never
// appear here; bugs are SPILLWAY_CHECKs.
//
// Success allocates nothing. Both types are plain values: movable, not shared between threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace spillway::base {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,  // the call is wrong as written: fix the arguments
  kMalformed,        // bytes that are not a Spillway packet of a version we read
  kCorrupt,          // the integrity check of received bytes failed
  kForeign,          // well-formed, but of another job, epoch or message
  kLimitExceeded,    // the call would exceed a named limit
  kUnavailable,      // this machine or build lacks something that was requested
  kInternal,         // an underlying library failed unexpectedly
  kPeerFailed,       // another rank died, left too early or failed
  kMismatch,         // ranks called different operations, or the same in another order
  kTimedOut,         // waiting for other ranks exceeded its limit
  kAborted,          // this rank's owner aborted the group
};

// The thing to recreate before the operation can succeed.
enum class ErrorScope { kNone, kCall, kPacket, kGroup, kProcess };

std::string_view status_code_name(StatusCode code);
ErrorScope error_scope(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {
    SPILLWAY_CHECK(code != StatusCode::kOk);
  }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // For logs and command-line tools: "invalid-argument: trim size 80 ...".
  std::string to_string() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status invalid_argument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Status error) : error_(std::move(error)) {  // NOLINT(google-explicit-constructor)
    SPILLWAY_CHECK(!error_.ok());
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return error_; }

  const T& value() const& {
    SPILLWAY_CHECK(ok());
    return *value_;
  }
  T& value() & {
    SPILLWAY_CHECK(ok());
    return *value_;
  }
  T value() && {
    SPILLWAY_CHECK(ok());
    return std::move(*value_);
  }
  const T* operator->() const { return &value(); }
  const T& operator*() const& { return value(); }

 private:
  std::optional<T> value_;
  Status error_;
};

}  // namespace spillway::base
