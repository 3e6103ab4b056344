// SPDX-License-Identifier: Apache-2.0
//
// The message of spillway_last_error(), one per thread, and the only way in which functions of the
// C interface fail. No exception leaves the library: guarded() turns those of the standard library
// (out of memory) into a status.
#pragma once

#include <spillway/spillway.h>

#include <exception>
#include <string>
#include <utility>

#include "base/status.h"

namespace spillway::capi {

// The C status of a library error.
spillway_status status_of(base::StatusCode code);

spillway_status fail(spillway_status status, std::string message);
spillway_status fail(const base::Status& status);
// Fails because a required argument is NULL.
spillway_status missing(const char* argument);
const char* last_error();

template <typename Function>
spillway_status guarded(Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const std::exception& error) {
    return fail(SPILLWAY_INTERNAL, error.what());
  }
}

}  // namespace spillway::capi
