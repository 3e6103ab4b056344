// SPDX-License-Identifier: Apache-2.0
//
// Structs of the C interface that may grow. They begin with `size`, and callers may have been
// compiled with older or newer headers than the library. Both sides know the beginning of the
// struct:
//
//   a smaller struct is read over the defaults, and written up to its size;
//   a larger struct is read if its unknown fields are zero; those are never written.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/status.h"

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
