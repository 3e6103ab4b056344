// SPDX-License-Identifier: Apache-2.0
//
// Tests a rank's leaving: it needs nothing any more, and has not said what it received.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "transport/exchange_testing.h"

namespace spillway::transport {
namespace {

TEST(Leave, EndsWhatIsSentToTheRankWithoutSayingThatItArrived) {
  Exchange net(2);
  ASSERT_TRUE(net[0].send(net.send_options(1, 0, 1, /*operation=*/1), net.now()).ok());
  net.run(base::milliseconds(1));  // rank 1 does not expect it
  net[1].leave(1, wire::FailureCause::kClosed);
  net.run(base::milliseconds(500));
  ASSERT_EQ(net.sent(0).size(), 1U);
  EXPECT_EQ(net.sent(0)[0].outcome, Outcome::kEverything);
  EXPECT_EQ(net.sent(0)[0].delivered, 0U);
  ASSERT_TRUE(net[0].send(net.send_options(1, 0, 1, /*operation=*/2), net.now()).ok());
  net.run(base::milliseconds(1));
  ASSERT_EQ(net.sent(0).size(), 2U);
  EXPECT_EQ(net.sent(0)[1].delivered, 0U);
}

// The event that rank 0 of two gets when rank 1 has left.
std::optional<PeerFailed> told_of(Endpoint& leaver, wire::FailureCause cause, std::uint16_t culprit,
                                  const wire::Mismatch* mismatch = nullptr) {
  EndpointConfig config;
  Endpoint other(config);
  EXPECT_TRUE(other.add_peer(1, base::Instant()).ok());
  leaver.leave(culprit, cause, mismatch);
  Transmission sent;
  while (leaver.poll_transmit(base::Instant(), sent)) {
    other.on_control(sent.control, base::Instant());
  }
  Event event;
  while (other.poll_event(event)) {
    if (const auto* failed = std::get_if<PeerFailed>(&event)) {
      return *failed;
    }
  }
  return std::nullopt;
}

TEST(Leave, SaysWhichOperationsAreOver) {
  EndpointConfig config;
  config.rank = 1;
  Endpoint leaver(config);
  ASSERT_TRUE(leaver.add_peer(0, base::Instant()).ok());
  leaver.retire_before(17);
  const std::optional<PeerFailed> told = told_of(leaver, wire::FailureCause::kClosed, 1);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->from, 1);
  EXPECT_EQ(told->finished_before, 17U);
}

TEST(Leave, TellsBothCallsWhereTheyDiffer) {
  EndpointConfig config;
  config.rank = 1;
  Endpoint leaver(config);
  ASSERT_TRUE(leaver.add_peer(0, base::Instant()).ok());
  wire::Mismatch mismatch;
  mismatch.operation = 5;
  mismatch.calls[0].rank = 1;
  mismatch.calls[0].bytes = 7;
  std::copy_n("barrier", 7, mismatch.calls[0].text.begin());
  const std::optional<PeerFailed> told =
      told_of(leaver, wire::FailureCause::kMismatch, 2, &mismatch);
  ASSERT_TRUE(told.has_value());
  ASSERT_NE(told->mismatch, nullptr);
  EXPECT_EQ(told->culprit, 2);
  EXPECT_EQ(told->mismatch->operation, 5U);
  EXPECT_EQ(told->mismatch->calls[0].view(), "barrier");
  EXPECT_EQ(told->mismatch->calls[1].bytes, 0);
}

// A rank that left because another closed too early is not done.
TEST(Leave, BecauseOfAnotherEndsNothing) {
  Exchange net(2);
  ASSERT_TRUE(net[0].send(net.send_options(1, 0, 1, /*operation=*/1), net.now()).ok());
  net.run(base::milliseconds(1));
  net[1].leave(/*culprit=*/5, wire::FailureCause::kClosed);
  net.run(base::milliseconds(500));
  EXPECT_TRUE(net.sent(0).empty());
}

}  // namespace
}  // namespace spillway::transport
