// SPDX-License-Identifier: Apache-2.0
//
// Memory for keys: pages that the kernel leaves out of core dumps (MADV_DONTDUMP), because dumps
// are sent around and kept where the keys of a job must not be.
//
//   pages of kSlabBytes ──► slots of 64, 128, ... bytes, each with a list of those that are free
//
// Invariants: a slot is zero when it is handed out, wiped when it comes back, and aligned to
// kKeyAlignment. Slabs stay for the next keys. A kernel that knows no such pages gives ordinary
// ones.
//
// Limits: throws std::bad_alloc where there is no memory. Keys are made when ranks meet and epochs
// begin, never per packet, so one lock is enough. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::wire {

inline constexpr std::size_t kKeyAlignment = 64;

void* allocate_key_memory(std::size_t bytes);
// `bytes`: as it was allocated with.
void free_key_memory(void* memory, std::size_t bytes) noexcept;

// For a struct of keys on the heap: derive from it.
struct InKeyMemory {
  static void* operator new(std::size_t bytes) { return allocate_key_memory(bytes); }
  static void operator delete(void* memory, std::size_t bytes) { free_key_memory(memory, bytes); }
};

template <typename T>
struct KeyAllocator {
  using value_type = T;

  KeyAllocator() = default;
  template <typename Other>
  KeyAllocator(const KeyAllocator<Other>&) {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t count) { return static_cast<T*>(allocate_key_memory(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t count) noexcept {
    free_key_memory(memory, count * sizeof(T));
  }
  friend bool operator==(const KeyAllocator&, const KeyAllocator&) { return true; }
};

using KeyBytes = std::vector<std::uint8_t, KeyAllocator<std::uint8_t>>;

}  // namespace spillway::wire
