// SPDX-License-Identifier: Apache-2.0
//
// The functions of include/spillway/spillway.h about the library itself: version, names of
// statuses, the last error, and variables. The table of variables (base/variables.h) is thus
// defined once for all languages.
#include <fmt/format.h>
#include <spillway/spillway.h>

#include <cstring>

#include "base/environment.h"
#include "base/version.h"
#include "capi/handles.h"

namespace spillway::capi {
namespace {

thread_local std::string message_of_thread;

}  // namespace

spillway_status status_of(base::StatusCode code) {
  switch (code) {
    case base::StatusCode::kOk:
      return SPILLWAY_OK;
    case base::StatusCode::kLimitExceeded:
      return SPILLWAY_LIMIT_EXCEEDED;
    case base::StatusCode::kUnavailable:
      return SPILLWAY_UNAVAILABLE;
    case base::StatusCode::kInternal:
      return SPILLWAY_INTERNAL;
    case base::StatusCode::kPeerFailed:
      return SPILLWAY_PEER_FAILED;
    case base::StatusCode::kMismatch:
      return SPILLWAY_MISMATCH;
    case base::StatusCode::kTimedOut:
      return SPILLWAY_TIMED_OUT;
    case base::StatusCode::kAborted:
      return SPILLWAY_ABORTED;
    case base::StatusCode::kInvalidArgument:
    case base::StatusCode::kMalformed:
    case base::StatusCode::kCorrupt:
    case base::StatusCode::kForeign:
      return SPILLWAY_INVALID_ARGUMENT;
  }
  return SPILLWAY_INTERNAL;
}

spillway_status fail(spillway_status status, std::string message) {
  message_of_thread = std::move(message);
  return status;
}

spillway_status fail(const base::Status& status) {
  return fail(status_of(status.code()), status.message());
}

spillway_status missing(const char* argument) {
  return fail(SPILLWAY_INVALID_ARGUMENT, std::string(argument) + " is NULL");
}

const char* last_error() {
  return message_of_thread.c_str();
}

}  // namespace spillway::capi

const char* spillway_version(void) {
  return spillway::base::kVersion;
}

const char* spillway_status_name(spillway_status status) {
  switch (status) {
    case SPILLWAY_OK:
      return "ok";
    case SPILLWAY_INVALID_ARGUMENT:
      return "invalid-argument";
    case SPILLWAY_LIMIT_EXCEEDED:
      return "limit-exceeded";
    case SPILLWAY_UNAVAILABLE:
      return "unavailable";
    case SPILLWAY_INTERNAL:
      return "internal";
    case SPILLWAY_PEER_FAILED:
      return "peer-failed";
    case SPILLWAY_MISMATCH:
      return "mismatch";
    case SPILLWAY_TIMED_OUT:
      return "timed-out";
    case SPILLWAY_ABORTED:
      return "aborted";
    case SPILLWAY_IN_PROGRESS:
      return "in-progress";
  }
  return "unknown";
}

const char* spillway_last_error(void) {
  return spillway::capi::last_error();
}

// ------------------------------------------------------------------ variables

namespace spillway::capi {
namespace {

base::Result<base::VariableValue> variable_named(std::string_view name) {
  const base::Variable* variable = base::find_variable(name);
  if (variable == nullptr) {
    return base::invalid_argument(fmt::format("nothing reads a variable {}; the nearest name is {}",
                                              name, base::nearest_variable(name)));
  }
  return base::value_of(base::Environment::of_process(), *variable);
}

}  // namespace
}  // namespace spillway::capi

spillway_status spillway_variable(const char* name, char* text, size_t size, int* is_set) {
  if (name == nullptr || text == nullptr) {
    return spillway::capi::missing(name == nullptr ? "name" : "text");
  }
  return spillway::capi::guarded([&] {
    const auto value = spillway::capi::variable_named(name);
    if (!value.ok()) {
      return spillway::capi::fail(value.status());
    }
    if (value->text.size() >= size) {
      return spillway::capi::fail(
          SPILLWAY_LIMIT_EXCEEDED,
          fmt::format("the value of {} has {} bytes: give room for one more", name,
                      value->text.size()));
    }
    std::memcpy(text, value->text.c_str(), value->text.size() + 1);
    if (is_set != nullptr) {
      *is_set = value->is_set ? 1 : 0;
    }
    return SPILLWAY_OK;
  });
}
