// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/checks/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>

#ifdef __aarch64__
#include <sys/auxv.h>
#endif

namespace spillway::bench {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kBlock = 2 * kWord;
constexpr std::size_t kLine = 64;  // bytes
// Prefetch distance in bytes. Hardware prefetchers do not recognize several short interleaved runs.
constexpr std::size_t kAhead = 3072;
constexpr std::size_t kSideBySide = 3;  // runs; as many as the slowest of our processors needs
constexpr std::uint32_t kPolynomial = 0x82F63B78;  // reflected

// Assembly, because compilers differ in how a single function may use an optional instruction.
#if defined(__aarch64__)
constexpr unsigned long kHasCrc = 1UL << 7;  // HWCAP_CRC32

bool has_instruction() {
  static const bool has = (::getauxval(AT_HWCAP) & kHasCrc) != 0;
  return has;
}
inline std::uint32_t step(std::uint32_t state, std::uint64_t word) {
  asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(state) : "r"(word));
  return state;
}
inline std::uint32_t step(std::uint32_t state, std::uint8_t byte) {
  asm(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(state) : "r"(byte));
  return state;
}
#elif defined(__x86_64__)
bool has_instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2");
  return has;
}
inline std::uint32_t step(std::uint32_t state, std::uint64_t word) {
  std::uint64_t wide = state;
  asm("crc32q %1, %0" : "+r"(wide) : "r"(word));
  return static_cast<std::uint32_t>(wide);
}
inline std::uint32_t step(std::uint32_t state, std::uint8_t byte) {
  asm("crc32b %1, %0" : "+r"(state) : "r"(byte));
  return state;
}
#else
bool has_instruction() {
  return false;
}
inline std::uint32_t step(std::uint32_t state, std::uint64_t /*word*/) {
  return state;
}
inline std::uint32_t step(std::uint32_t state, std::uint8_t /*byte*/) {
  return state;
}
#endif

// Copies bytes [begin, end) of N runs, starting with run `first`, and advances their states, one
// block of each run in turn. The strides are local copies: for all the compiler knows, the written
// bytes could alias them.
template <std::size_t N>
void copy_side_by_side(const wire::StridedCopy& copy, std::size_t first, std::size_t begin,
                       std::size_t end, std::uint32_t* states) {
  const std::size_t from_stride = copy.from_stride;
  const std::size_t to_stride = copy.to_stride;
  const std::uint8_t* from = copy.from + first * from_stride;
  std::uint8_t* to = copy.to + first * to_stride;
  std::array<std::uint32_t, N> running;
  std::copy_n(states, N, running.begin());
  std::size_t at = begin;
  for (; at + kBlock <= end; at += kBlock) {
    if (at % kLine == 0) {
      for (std::size_t run = 0; run < N; ++run) {
        __builtin_prefetch(from + run * from_stride + at + kAhead);
      }
    }
    for (std::size_t run = 0; run < N; ++run) {
      std::array<std::uint64_t, kBlock / kWord> words;
      std::memcpy(words.data(), from + run * from_stride + at, kBlock);
      std::memcpy(to + run * to_stride + at, words.data(), kBlock);
      for (const std::uint64_t word : words) {
        running[run] = step(running[run], word);
      }
    }
  }
  for (; at < end; ++at) {
    for (std::size_t run = 0; run < N; ++run) {
      const std::uint8_t byte = from[run * from_stride + at];
      to[run * to_stride + at] = byte;
      running[run] = step(running[run], byte);
    }
  }
  std::copy_n(running.begin(), N, states);
}

// The last N runs: all of them up to the length of the shortest, then the longer ones.
template <std::size_t N>
void copy_last(const wire::StridedCopy& copy, std::size_t first, std::uint32_t* states) {
  copy_side_by_side<N>(copy, first, 0, copy.last_length, states);
  if constexpr (N > 1) {
    copy_side_by_side<N - 1>(copy, first, copy.last_length, copy.length, states);
  }
}

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) {
      state = (state >> 1) ^ ((state & 1) != 0 ? kPolynomial : 0);
    }
    table[byte] = state;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

// For processors without the instruction.
std::uint32_t crc_by_table(std::uint32_t state, base::ByteView bytes) {
  for (const std::uint8_t byte : bytes) {
    state = (state >> 8) ^ kTable[(state ^ byte) & 0xFF];
  }
  return state;
}

void copy_by_table(const wire::StridedCopy& copy, std::span<std::uint32_t> states) {
  for (std::size_t run = 0; run < states.size(); ++run) {
    const bool is_last = run + 1 == states.size();
    const base::ByteView bytes(copy.from + run * copy.from_stride,
                               is_last ? copy.last_length : copy.length);
    states[run] = crc_by_table(states[run], bytes);
    std::copy(bytes.begin(), bytes.end(), copy.to + run * copy.to_stride);
  }
}

// One run, without copying it.
std::uint32_t crc_alone(std::uint32_t state, base::ByteView bytes) {
  std::size_t at = 0;
  for (; at + kWord <= bytes.size(); at += kWord) {
    state = step(state, base::load_le<std::uint64_t>(bytes.data() + at));
  }
  for (; at < bytes.size(); ++at) {
    state = step(state, bytes[at]);
  }
  return state;
}

}  // namespace

std::uint32_t crc32c(std::uint32_t state, base::ByteView bytes) {
  return has_instruction() ? crc_alone(state, bytes) : crc_by_table(state, bytes);
}

std::uint32_t copy_crc32c(std::uint32_t state, base::ByteView bytes, std::uint8_t* out) {
  const wire::StridedCopy copy{.from = bytes.data(), .to = out, .last_length = bytes.size()};
  if (has_instruction()) {
    copy_last<1>(copy, 0, &state);
  } else {
    copy_by_table(copy, {&state, 1});
  }
  return state;
}

void copy_crc32c(const wire::StridedCopy& copy, std::span<std::uint32_t> states) {
  if (!has_instruction()) {
    copy_by_table(copy, states);
    return;
  }
  std::size_t run = 0;
  for (; run + kSideBySide < states.size(); run += kSideBySide) {
    copy_side_by_side<kSideBySide>(copy, run, 0, copy.length, &states[run]);
  }
  switch (states.size() - run) {
    case 3:
      copy_last<3>(copy, run, &states[run]);
      break;
    case 2:
      copy_last<2>(copy, run, &states[run]);
      break;
    case 1:
      copy_last<1>(copy, run, &states[run]);
      break;
    default:
      break;
  }
}

}  // namespace spillway::bench
