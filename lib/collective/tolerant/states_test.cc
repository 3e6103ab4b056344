// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant/states.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace spillway::collective {
namespace {

template <typename State>
using Transitions = std::set<std::pair<State, State>>;

// Exactly these transitions are legal.
template <typename State>
void expect_legal(unsigned states, const Transitions<State>& legal) {
  for (unsigned from = 0; from < states; ++from) {
    for (unsigned to = 0; to < states; ++to) {
      const std::pair pair{static_cast<State>(from), static_cast<State>(to)};
      EXPECT_EQ(may_follow(pair.first, pair.second), legal.contains(pair)) << from << " to " << to;
    }
  }
}

TEST(TolerantStates, AContributionIsEncodedAndSentOrSpared) {
  using enum ContributionState;
  expect_legal<ContributionState>(
      kContributionStates,
      {{kWaiting, kEncoding}, {kWaiting, kSkipped}, {kEncoding, kSent}, {kEncoding, kSkipped}});
}

TEST(TolerantStates, ASumIsHeldOrDropped) {
  using enum SumState;
  expect_legal<SumState>(kSumStates, {{kCollecting, kAddingUp},
                                      {kAddingUp, kHeld},
                                      {kAwaited, kReceived},
                                      {kReceived, kDecoding},
                                      {kDecoding, kHeld},
                                      {kCollecting, kDropped},
                                      {kAddingUp, kDropped},
                                      {kAwaited, kDropped},
                                      {kReceived, kDropped},
                                      {kDecoding, kDropped},
                                      {kHeld, kDropped}});
}

TEST(TolerantStates, AnAccountIsSettledOnce) {
  using enum ReceiptState;
  expect_legal<ReceiptState>(kReceiptStates, {{kNone, kAwaited},
                                              {kAwaited, kReceived},
                                              {kAwaited, kSettled},
                                              {kReceived, kSettling},
                                              {kReceived, kSettled},
                                              {kSettling, kSettled}});
}

TEST(TolerantStates, ARunIsDoneOnce) {
  using enum RunPhase;
  expect_legal<RunPhase>(kRunPhases, {{kNew, kHoldingBack},
                                      {kNew, kExchanging},
                                      {kHoldingBack, kExchanging},
                                      {kHoldingBack, kDecided},
                                      {kExchanging, kDecided},
                                      {kExchanging, kDone},
                                      {kDecided, kDone}});
}

TEST(TolerantStates, EnteringALegalStateIsRemembered) {
  Tracked<SumState> sum(SumState::kAwaited);
  sum.enter(SumState::kReceived);
  sum.enter(SumState::kDecoding);
  EXPECT_EQ(*sum, SumState::kDecoding);
}

TEST(TolerantStatesDeathTest, EnteringAnIllegalStateStopsTheProgram) {
  Tracked<SumState> sum(SumState::kAwaited);
  EXPECT_DEATH(sum.enter(SumState::kHeld), "may_follow");
  Tracked<RunPhase> phase(RunPhase::kDone);
  EXPECT_DEATH(phase.enter(RunPhase::kExchanging), "may_follow");
}

}  // namespace
}  // namespace spillway::collective
