// SPDX-License-Identifier: Apache-2.0
//
// Shared by the files of this folder: errors, structs that may grow, and the handles of
// communicators and requests. Each part below states its rules.
#pragma once

#include <fmt/format.h>
#include <spillway/spillway.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/environment.h"
#include "base/status.h"
#include "comm/communicator.h"

// ------------------------------------------------------------------ errors

// The message of spillway_last_error(), one per thread, and the only way in which functions of the
// C interface fail. No exception leaves the library: guarded() turns those of the standard library
// (out of memory) into a status.

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

// ------------------------------------------------------------------ structs that may grow

// Structs of the C interface that may grow. They begin with `size`, and callers may have been
// compiled with older or newer headers than the library. Both sides know the beginning of the
// struct:
//
//   a smaller struct is read over the defaults, and written up to its size;
//   a larger struct is read if its unknown fields are zero; those are never written.

namespace spillway::capi {

namespace internal {

inline bool is_zero(const unsigned char* bytes, std::size_t count) {
  return std::all_of(bytes, bytes + count, [](unsigned char byte) { return byte == 0; });
}

inline base::Status wrong_size(std::string_view type, std::size_t size) {
  return base::invalid_argument(fmt::format(
      "{}.size is {}, which no version of it has; set the struct up with its init function or "
      "sizeof",
      type, size));
}

}  // namespace internal

// Initialises a caller's struct of `size` bytes. Fields unknown to the library become zero. Does
// nothing if `given` is null or has no room for its size.
template <typename T>
void init_sized(T defaults, T* given, std::size_t size) {
  if (given == nullptr || size < sizeof(given->size)) {
    return;
  }
  std::memset(static_cast<void*>(given), 0, size);
  defaults.size = size;
  std::memcpy(static_cast<void*>(given), &defaults, std::min(size, sizeof(T)));
}

// `defaults`, overridden by the caller's struct. A null struct overrides nothing.
template <typename T>
base::Result<T> read_sized(const T* given, T defaults, std::string_view type) {
  if (given == nullptr) {
    return defaults;
  }
  if (given->size < sizeof(given->size)) {
    return internal::wrong_size(type, given->size);
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (given->size > sizeof(T) && !internal::is_zero(bytes + sizeof(T), given->size - sizeof(T))) {
    return base::Status(
        base::StatusCode::kUnavailable,
        fmt::format("{} has fields set that this version of Spillway does not know of; leave them "
                    "0 or install a newer library",
                    type));
  }
  std::memcpy(&defaults, given, std::min(given->size, sizeof(T)));
  defaults.size = sizeof(T);
  return defaults;
}

// Writes `value`; the caller's struct keeps its size.
template <typename T>
base::Status write_sized(T value, T* given, std::string_view type) {
  if (given == nullptr) {
    return base::invalid_argument(fmt::format("{} is NULL", type));
  }
  if (given->size < sizeof(given->size)) {
    return internal::wrong_size(type, given->size);
  }
  value.size = given->size;
  std::memcpy(given, &value, std::min(given->size, sizeof(T)));
  return {};
}

}  // namespace spillway::capi

// ------------------------------------------------------------------ communicators

// Defines spillway_comm, and checks and converts a caller's spillway_comm_config for the runtime.
// Pure, except that it may read the rank from the environment.

namespace spillway::capi {

spillway_comm_config default_comm_config();

base::Result<comm::CommunicatorConfig> communicator_config_from(
    const spillway_comm_config* config, const base::Environment& environment);

}  // namespace spillway::capi

struct spillway_comm {
  // Shared with a job while the job aborts it.
  std::shared_ptr<spillway::comm::Communicator> communicator;
};

// ------------------------------------------------------------------ requests

// Defines spillway_request: an operation and its callback. It shares the operation with its
// communicator, so it may outlive the communicator.
//
// Any thread, as the header promises; the caller must serialise freeing with other calls.

namespace spillway::capi {

// The caller's callback, and whether it has returned: its context is in use until then.
class CallbackCall {
 public:
  CallbackCall(spillway_callback callback, void* context)
      : callback_(callback), context_(context) {}

  void run(const base::Status& status);
  void wait_until_returned() const { has_returned_.wait(false); }

 private:
  spillway_callback callback_;
  void* context_;
  std::atomic<bool> has_returned_{false};
};

}  // namespace spillway::capi

struct spillway_request {
  // nullopt if the operation has not ended within `limit`.
  std::optional<spillway::base::Status> wait(std::optional<std::chrono::nanoseconds> limit) const;

  std::shared_ptr<spillway::comm::Request> request{};
  std::shared_ptr<spillway::capi::CallbackCall> callback{};  // null if there is none
  pid_t process = 0;                                         // the process whose threads finish it

  mutable std::mutex mutex{};
  mutable std::string message{};  // set on the first request, then constant
};
