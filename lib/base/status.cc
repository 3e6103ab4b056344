// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

namespace spillway::base {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid-argument";
    case StatusCode::kMalformed:
      return "malformed";
    case StatusCode::kCorrupt:
      return "corrupt";
    case StatusCode::kForeign:
      return "foreign";
    case StatusCode::kLimitExceeded:
      return "limit-exceeded";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kInternal:
      return "internal";
    case StatusCode::kPeerFailed:
      return "peer-failed";
    case StatusCode::kMismatch:
      return "mismatch";
    case StatusCode::kTimedOut:
      return "timed-out";
    case StatusCode::kAborted:
      return "aborted";
  }
  return "unknown";
}

ErrorScope error_scope(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return ErrorScope::kNone;
    case StatusCode::kInvalidArgument:
    case StatusCode::kLimitExceeded:
      return ErrorScope::kCall;
    case StatusCode::kMalformed:
    case StatusCode::kCorrupt:
    case StatusCode::kForeign:
      return ErrorScope::kPacket;
    case StatusCode::kPeerFailed:
    case StatusCode::kMismatch:
    case StatusCode::kTimedOut:
    case StatusCode::kAborted:
      return ErrorScope::kGroup;
    case StatusCode::kUnavailable:
    case StatusCode::kInternal:
      return ErrorScope::kProcess;
  }
  return ErrorScope::kProcess;
}

std::string Status::to_string() const {
  if (ok()) {
    return "ok";
  }
  return std::string(status_code_name(code_)) + ": " + message_;
}

}  // namespace spillway::base
