// SPDX-License-Identifier: Apache-2.0
#include "wire/key_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "wire/key.h"

namespace spillway::wire {
namespace {

// True if the kernel leaves the page with this address out of core dumps (flag "dd").
bool is_left_out_of_dumps(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  std::ifstream maps("/proc/self/smaps");
  bool is_here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      is_here = begin <= address && address < end;
    } else if (is_here && line.starts_with("VmFlags:")) {
      return line.find(" dd") != std::string::npos;
    }
  }
  return false;
}

struct Expanded : InKeyMemory {
  std::uint8_t rounds[1000] = {};
};

TEST(KeyMemory, IsLeftOutOfCoreDumps) {
  const auto ordinary = std::make_unique<int>();
  ASSERT_FALSE(is_left_out_of_dumps(ordinary.get()));
  const RunKey key;
  EXPECT_TRUE(is_left_out_of_dumps(key.bytes.data())) << "on the stack otherwise";
  const RunKey copy = key;
  EXPECT_TRUE(is_left_out_of_dumps(copy.bytes.data()));
  const std::unique_ptr<Expanded> expanded(new Expanded);
  EXPECT_TRUE(is_left_out_of_dumps(expanded.get()));
  const KeyBytes secret(70'000);
  EXPECT_TRUE(is_left_out_of_dumps(secret.data()));
}

TEST(KeyMemory, IsAlignedApartAndEmptyAgain) {
  std::set<std::uintptr_t> seen;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<RunKey>> keys;
    std::set<std::uintptr_t> now;
    for (int i = 0; i < 3000; ++i) {
      keys.push_back(std::make_unique<RunKey>());
      const RunKey& key = *keys.back();
      EXPECT_EQ(key, RunKey()) << "something is left of another key";
      keys.back()->bytes.fill(0xA5);
      const auto address = reinterpret_cast<std::uintptr_t>(key.bytes.data());
      EXPECT_EQ(address % kKeyAlignment, 0U);
      EXPECT_TRUE(now.insert(address).second);
    }
    seen.insert(now.begin(), now.end());
  }
  EXPECT_LT(seen.size(), 6000U) << "slots are not used again";
}

TEST(KeyMemory, TakesAnySize) {
  for (const std::size_t bytes : {1, 63, 64, 65, 4096, 65'535, 65'536, 65'537, 1'000'000}) {
    auto* const memory = static_cast<std::uint8_t*>(allocate_key_memory(bytes));
    EXPECT_TRUE(std::all_of(memory, memory + bytes, [](std::uint8_t byte) { return byte == 0; }));
    std::fill_n(memory, bytes, 0xFF);
    free_key_memory(memory, bytes);
  }
}

}  // namespace
}  // namespace spillway::wire
