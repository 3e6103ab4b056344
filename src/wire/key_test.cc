// SPDX-License-Identifier: Apache-2.0
#include "wire/key.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace spillway::wire {
namespace {

std::vector<std::uint8_t> run_of(std::uint8_t first, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  std::iota(bytes.begin(), bytes.end(), first);
  return bytes;
}

// RFC 5869, test case 1.
TEST(Key, IsDerivedAsTheRfcSays) {
  const std::vector<std::uint8_t> secret(22, 0x0B);
  const std::vector<std::uint8_t> info = run_of(0xF0, 10);
  std::array<std::uint8_t, 42> out{};
  ASSERT_TRUE(
      derive(secret, run_of(0, 13), {reinterpret_cast<const char*>(info.data()), info.size()}, out)
          .ok());
  const std::array<std::uint8_t, 42> expected = {
      0x3C, 0xB2, 0x5F, 0x25, 0xFA, 0xAC, 0xD5, 0x7A, 0x90, 0x43, 0x4F, 0x64, 0xD0, 0x36,
      0x2F, 0x2A, 0x2D, 0x2D, 0x0A, 0x90, 0xCF, 0x1A, 0x5A, 0x4C, 0x5D, 0xB0, 0x2D, 0x56,
      0xEC, 0xC4, 0xC5, 0xBF, 0x34, 0x00, 0x72, 0x08, 0xD5, 0xB8, 0x87, 0x18, 0x58, 0x65};
  EXPECT_EQ(out, expected);
}

TEST(Key, DependsOnSecretSaltAndLabel) {
  const auto derived = [](std::uint8_t secret, std::uint8_t salt, const std::string& label) {
    RunKey key;
    EXPECT_TRUE(derive(run_of(secret, 32), run_of(salt, 16), label, key.bytes).ok());
    return key;
  };
  const RunKey key = derived(1, 2, "a");
  EXPECT_EQ(key, derived(1, 2, "a"));
  EXPECT_NE(key, derived(2, 2, "a"));
  EXPECT_NE(key, derived(1, 3, "a"));
  EXPECT_NE(key, derived(1, 2, "b"));
}

TEST(Key, MayBeWithoutSalt) {
  RunKey key;
  EXPECT_TRUE(derive(run_of(1, 16), {}, "a", key.bytes).ok());
  EXPECT_NE(key, RunKey());
}

}  // namespace
}  // namespace spillway::wire
