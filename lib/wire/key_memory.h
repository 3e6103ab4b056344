// SPDX-License-Identifier: Apache-2.0
//
// Memory for keys: pages that the kernel leaves out of core dumps (MADV_DONTDUMP). Core dumps get
// copied to places where a job's keys must not be.
//
//   pages of kSlabBytes ──► slots of 64, 128, ... bytes, with a free list per size
//
// Invariants: a slot is zero when allocated, wiped when freed, and aligned to kKeyAlignment. Slabs
// are never unmapped but reused. A kernel without MADV_DONTDUMP gives ordinary pages.
//
// Limits: throws std::bad_alloc when memory runs out. Keys are made when ranks meet and epochs
// begin, never per packet, so one lock is enough. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::wire {

inline constexpr std::size_t kKeyAlignment = 64;

void* allocate_key_memory(std::size_t bytes);
// `bytes` must equal the size of the allocation.
void free_key_memory(void* memory, std::size_t bytes) noexcept;

// Base class for structs of keys on the heap.
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
