// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/outcome.h"

#include <gtest/gtest.h>

namespace spillway::runtime {
namespace {

Gather gather_of_two() {
  return {.drawn = {}, .randoms = {{1}, {2}}, .blobs = {{10}, {20}}};
}

wire::RunKey key_of(const Credential& credential, const Gather& gather) {
  return meeting_of(credential, gather).value().key;
}

TEST(RendezvousOutcome, TheKeyFollowsFromSecretDrawingAndEveryRandom) {
  const Credential none;
  const Credential secret = Credential::of_secret(Blob(16, 1)).value();
  const wire::RunKey key = key_of(secret, gather_of_two());
  EXPECT_EQ(key, key_of(secret, gather_of_two()));
  EXPECT_NE(key, key_of(none, gather_of_two()));
  EXPECT_NE(key, key_of(Credential::of_secret(Blob(16, 2)).value(), gather_of_two()));
  Gather other = gather_of_two();
  other.drawn.bytes[31] = 1;
  EXPECT_NE(key, key_of(secret, other));
  EXPECT_NE(key_of(none, gather_of_two()), key_of(none, other));
  for (const std::size_t rank : {0, 1}) {
    other = gather_of_two();
    other.randoms[rank][31] ^= 1;
    EXPECT_NE(key, key_of(secret, other));
  }
  other = gather_of_two();
  std::swap(other.randoms[0], other.randoms[1]);
  EXPECT_NE(key, key_of(secret, other));
}

TEST(RendezvousOutcome, StrangersAreCountedByWhatTheyWere) {
  StrangerCounts counts;
  EXPECT_EQ(counts.to_string(), "");
  counts[StrangerKind::kUnproven] = 2;
  ++counts[StrangerKind::kSilent];
  counts[StrangerKind::kCrowded] = 3;
  EXPECT_EQ(counts.total(), 6U);
  EXPECT_EQ(counts.to_string(),
            "turned away: 2 did not prove that they belong to this job; 1 did not say in time who "
            "they are; 3 came when all places of their address were taken");
}

}  // namespace
}  // namespace spillway::runtime
