// SPDX-License-Identifier: Apache-2.0
//
// Checks for bugs, the third kind of failure beside loss (counted in delivery reports) and
// operating errors (Status). A failed check means this program is wrong, so it prints where and
// aborts. Received bytes and a caller's arguments must never be able to fail a check.
//
// SPILLWAY_CHECK is always on; use it per call and per packet. SPILLWAY_DCHECK disappears in
// release builds; use it inside loops over coordinates. Tracked checks the transitions of a state.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace spillway::base {

[[noreturn, gnu::cold, gnu::noinline]] inline void check_failed(const char* file, int line,
                                                                const char* condition) {
  std::fprintf(stderr, "spillway: bug at %s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

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

// A state that changes only as its enum allows. enter() asks may_follow(from, to), defined next to
// the enum, and aborts on any other transition. So an object has one state, its life cycle is
// stated in one place, and a test can try all pairs. A plain value.

namespace spillway::base {

template <typename State>
class Tracked {
 public:
  explicit Tracked(State first) : state_(first) {}

  void enter(State next) {
    SPILLWAY_CHECK(may_follow(state_, next));
    state_ = next;
  }
  State operator*() const { return state_; }
  bool operator==(State state) const { return state_ == state; }

 private:
  State state_;
};

}  // namespace spillway::base
