// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/measure/user_sums.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "switch/dataplane/sum_frame.h"
#include "switch/kernel/measure/run_times.h"

namespace spillway::kernel {
namespace {

constexpr spillway_sum_config kUserSums = {.slots = 1,
                                           .lease_us = SPILLWAY_SUM_LEASE_US,
                                           .pools = 1,
                                           .policy = SPILLWAY_SUM_PREEMPTIVE,
                                           .level = 0,
                                           .reserved = {}};
// Copies prepared before the clock is read, few enough to stay in the nearest caches.
constexpr std::size_t kCopies = 8;

// An addition that the compiler cannot vectorize.
void add_word_by_word(__u64* slot, const std::uint8_t* packet) {
  for (std::size_t i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
    __u64 word = spillway_load_sum_word(packet + 8 * i);
    __asm__("" : "+r"(word));
    slot[i] += word;
  }
}

void move_words_by(SumWordsBy words, std::uint8_t move, spillway_sum_slot& slot, std::uint8_t* at) {
  if (words == SumWordsBy::kWords && move == SPILLWAY_SUM_MOVE_ADD) {
    add_word_by_word(slot.words, at);
  } else {
    spillway_move_words(slot.words, at, move);
  }
}

void pass_slot_once(Frame& frame, spillway_sum_slot& slot, spillway_sum_job& job,
                    SumWordsBy words) {
  std::uint8_t* data = frame.data();
  const std::uint8_t* end = data + frame.size();
  const auto bytes = static_cast<std::uint32_t>(frame.size());
  spillway_layout layout;
  spillway_frame seen;
  spillway_sum_image image;
  spillway_sum_frame found;
  spillway_sum_route route;
  spillway_sum_decision decision;
  spillway_read_frame(data, end, bytes, &layout, &seen);
  if ((seen.flags & SPILLWAY_FRAME_SUM) == 0 ||
      spillway_find_sum(data, end, bytes, &layout, &image, &found) == 0 ||
      spillway_read_route(data, end, &layout, &route) == 0 ||
      spillway_screen_sum(&kUserSums, &image, found.has_words, &decision) == 0) {
    return;
  }
  spillway_learn_member(&job, &image, &route, 0);
  const spillway_sum_key key = spillway_sum_key_of(&image);
  spillway_decide_sum(&kUserSums, &job, &key, 0, &slot, &image, &route, &decision);
  move_words_by(words, decision.move, slot, spillway_sum_words_in(data, end, &layout));
  if (decision.action == SPILLWAY_SUM_SWAP) {
    spillway_write_route(data, end, &layout, &route);
  }
  if (decision.is_changed != 0) {
    spillway_write_sum(data, end, &layout, &image);
  }
}

}  // namespace

double user_sum_ns(const Frame& frame, const spillway_sum_slot& slot, SumWordsBy words,
                   std::uint32_t runs) {
  const base::MonotonicClock clock;
  std::vector<spillway_sum_job> jobs(1);  // too large for a stack
  std::vector<Frame> frames(kCopies, frame);
  std::vector<spillway_sum_slot> slots(kCopies, slot);
  std::vector<double> times;
  for (std::uint32_t run = 0; run < std::max<std::uint32_t>(runs / kCopies, 4); ++run) {
    std::ranges::fill(slots, slot);
    for (Frame& copy : frames) {
      std::ranges::copy(frame, copy.begin());
    }
    const base::Instant start = clock.now();
    for (std::size_t i = 0; i < kCopies; ++i) {
      pass_slot_once(frames[i], slots[i], jobs.front(), words);
    }
    times.push_back(static_cast<double>((clock.now() - start).count()) / kCopies);
  }
  return middle_mean(times);
}

}  // namespace spillway::kernel
