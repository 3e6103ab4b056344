// SPDX-License-Identifier: Apache-2.0
//
// Which state may follow which in the life of a message, and what its sender is owed.
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "transport/incoming_message.h"
#include "transport/outgoing_message.h"

namespace spillway::transport {
namespace {

template <typename State>
using Transitions = std::set<std::pair<State, State>>;

// Exactly these transitions are accepted; all others stop the program.
template <typename State>
void expect_exactly(unsigned states, const Transitions<State>& legal) {
  for (unsigned i = 0; i < states * states; ++i) {
    const auto from = static_cast<State>(i / states);
    const auto to = static_cast<State>(i % states);
    base::Tracked<State> state(from);
    if (legal.contains({from, to})) {
      EXPECT_TRUE(may_follow(from, to)) << i / states << " to " << i % states;
      state.enter(to);
      EXPECT_EQ(*state, to);
    } else {
      EXPECT_FALSE(may_follow(from, to)) << i / states << " to " << i % states;
      EXPECT_DEATH(state.enter(to), "check failed");
    }
  }
}

TEST(IncomingState, GoesFromExpectedToEndedAndEndsFromEverywhere) {
  using enum IncomingState;
  expect_exactly<IncomingState>(kIncomingStates, {{kFree, kExpected},
                                                  {kExpected, kArriving},
                                                  {kArriving, kLingering},
                                                  {kExpected, kEnded},
                                                  {kArriving, kEnded},
                                                  {kLingering, kEnded},
                                                  {kEnded, kFree}});
}

TEST(IncomingState, IsOpenBetweenFreeAndEnded) {
  IncomingMessage message;
  EXPECT_TRUE(message.is_free() && !message.is_open());
  for (const IncomingState open :
       {IncomingState::kExpected, IncomingState::kArriving, IncomingState::kLingering}) {
    message.state.enter(open);
    EXPECT_TRUE(message.is_open() && !message.is_free());
  }
  message.state.enter(IncomingState::kEnded);
  EXPECT_FALSE(message.is_open() || message.is_free());
}

TEST(OutgoingState, IsInLineOrWaits) {
  using enum OutgoingState;
  expect_exactly<OutgoingState>(kOutgoingStates, {{kWaiting, kInLine}, {kInLine, kWaiting}});
}

TEST(Owed, IsASetOfWhatWasNotSaid) {
  Owed owed;
  EXPECT_TRUE(owed.empty());
  owed.add(Owed::kStop);
  owed.add(Owed::kBitmap);
  owed.add(Owed::kBitmap);
  EXPECT_TRUE(owed.has(Owed::kStop) && owed.has(Owed::kBitmap) && !owed.has(Owed::kCredit));
  EXPECT_TRUE(owed.take(Owed::kStop));
  EXPECT_FALSE(owed.take(Owed::kStop));
  owed.remove(Owed::kBitmap);
  EXPECT_TRUE(owed.empty());
}

TEST(Owed, AQuestionBringsACredit) {
  Owed owed;
  owed.add(Owed::kQuestion);
  EXPECT_TRUE(owed.take(Owed::kCredit));
  EXPECT_TRUE(owed.take(Owed::kQuestion));
  EXPECT_TRUE(owed.empty());
}

}  // namespace
}  // namespace spillway::transport
