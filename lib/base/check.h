// SPDX-License-Identifier: Apache-2.0
//
// Checks for bugs, the third kind of failure beside loss (counted in delivery reports) and
// operating errors (Status). A failed check means this program is wrong, so it prints where and
// aborts. Received bytes and a caller's arguments must never be able to fail a check.
//
// SPILLWAY_CHECK is always on; use it per call and per packet. SPILLWAY_DCHECK disappears in
// release builds; use it inside loops over coordinates.
#pragma once

namespace spillway::base {

[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace spillway::base

#define SPILLWAY_CHECK(condition)                                     \
  do {                                                                \
    if (!(condition)) [[unlikely]] {                                  \
      ::spillway::base::check_failed(__FILE__, __LINE__, #condition); \
    }                                                                 \
  } while (false)

#ifdef NDEBUG
#define SPILLWAY_DCHECK(condition) \
  do {                             \
  } while (false && (condition))
#else
#define SPILLWAY_DCHECK(condition) SPILLWAY_CHECK(condition)
#endif
