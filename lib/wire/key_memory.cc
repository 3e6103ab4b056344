// SPDX-License-Identifier: Apache-2.0
#include "wire/key_memory.h"

#include <openssl/crypto.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <new>

namespace spillway::wire {
namespace {

constexpr std::size_t kSlabBytes = 64 * 1024;
constexpr std::size_t kSizes = 11;  // 64 bytes to kSlabBytes
static_assert(kKeyAlignment << (kSizes - 1) == kSlabBytes);

void* map_pages(std::size_t bytes) {
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    throw std::bad_alloc();
  }
  ::madvise(pages, bytes, MADV_DONTDUMP);
  return pages;
}

class KeySlots {
 public:
  // Never destroyed: keys in static objects are freed while the process exits.
  static KeySlots& of_process() {
    static auto* slots = new KeySlots;
    return *slots;
  }

  void* take(std::size_t size) {
    const std::lock_guard lock(mutex_);
    if (free_[size] == nullptr) {
      add_slab(size);
    }
    Slot* slot = free_[size];
    free_[size] = slot->next;
    slot->next = nullptr;
    return slot;
  }

  void give_back(void* memory, std::size_t size) {
    const std::lock_guard lock(mutex_);
    free_[size] = new (memory) Slot{free_[size]};
  }

 private:
  struct Slot {
    Slot* next;
  };

  void add_slab(std::size_t size) {
    auto* const slab = static_cast<std::byte*>(map_pages(kSlabBytes));
    const std::size_t bytes = kKeyAlignment << size;
    for (std::size_t at = 0; at < kSlabBytes; at += bytes) {
      free_[size] = new (slab + at) Slot{free_[size]};
    }
  }

  std::mutex mutex_;
  std::array<Slot*, kSizes> free_{};  // by log2 of the slot size in units of kKeyAlignment
};

std::size_t size_for(std::size_t bytes) {
  const std::size_t slots = (std::max(bytes, kKeyAlignment) + kKeyAlignment - 1) / kKeyAlignment;
  return static_cast<std::size_t>(std::bit_width(slots - 1));
}

}  // namespace

void* allocate_key_memory(std::size_t bytes) {
  return bytes > kSlabBytes ? map_pages(bytes) : KeySlots::of_process().take(size_for(bytes));
}

void free_key_memory(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) {
    return;
  }
  OPENSSL_cleanse(memory, bytes);
  if (bytes > kSlabBytes) {
    ::munmap(memory, bytes);
  } else {
    KeySlots::of_process().give_back(memory, size_for(bytes));
  }
}

}  // namespace spillway::wire
