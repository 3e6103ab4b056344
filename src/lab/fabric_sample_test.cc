// SPDX-License-Identifier: Apache-2.0
#include "lab/fabric_sample.h"

#include <gtest/gtest.h>

namespace spillway::lab {
namespace {

TEST(FabricSample, AddsUpItsPorts) {
  fabric::FabricSnapshot fabric;
  fabric.lost_to_faults = 1000;
  for (const unsigned scale : {1U, 10U}) {
    fabric::PortSnapshot& port = fabric.ports.emplace_back();
    port.sent_bytes = 5 * scale;
    port.queued_bytes = 7 * scale;
    port.lost_to_faults = 500;  // part of the fabric's
    for (unsigned reason = 0; reason < SPILLWAY_REASONS; ++reason) {
      port.counters.packets[reason] = scale;
    }
  }
  const FabricSample sample = sample_of(fabric, base::milliseconds(3));
  EXPECT_EQ(sample.at, base::milliseconds(3));
  EXPECT_EQ(sample.sent_bytes, 55U);
  EXPECT_EQ(sample.queued_bytes, 77U);
  EXPECT_EQ(sample.deepest_bytes, 70U);
  EXPECT_EQ(sample.trimmed, 11U);
  EXPECT_EQ(sample.lost, 1000U + 4 * 11U);  // full, early, red, control full
}

TEST(FabricSample, AFabricWithoutPortsHasNothing) {
  const FabricSample sample = sample_of({}, {});
  EXPECT_EQ(sample.queued_bytes, 0U);
  EXPECT_EQ(sample.deepest_bytes, 0U);
}

}  // namespace
}  // namespace spillway::lab
