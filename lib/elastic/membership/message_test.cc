// SPDX-License-Identifier: Apache-2.0
#include "elastic/membership/message.h"

#include <gtest/gtest.h>

namespace spillway::membership {
namespace {

Decision some_decision() {
  return {.outcome = Outcome::kContinues,
          .view = {.epoch = 8, .ranks = {11, 5}, .standbys = {7}},
          .why = "rank 1 is gone",
          .step = 1234567890123,
          .sources = {1},
          .handles = {{1, 2, 3}, {}},
          .nonce = {1, 2, 3, 4}};
}

std::vector<Message> one_of_each() {
  const Decision decision = some_decision();
  const Ballot ballot = make_ballot(3, 2);
  return {Hello{7, true, true, {9, 8}},
          Welcome{decision.view},
          DismissNotice{7, "go"},
          Alive{7, 3, base::milliseconds(5), ballot, true},
          Suspect{7, 11, LossCause::kSilent},
          StragglerNotice{7, 1, 2500},
          LeaveNotice{7, true},
          Halt{7, ballot, 12, "why"},
          Halt{7, ballot, std::nullopt, ""},
          StepBegun{7, ballot},
          Done{7},
          Parked{7, ballot, {true, 9, false}, 3, {1}, 0, std::nullopt},
          Parked{7, ballot, {true, 9, false}, 3, {1}, make_ballot(1, 1), decision},
          Accept{7, ballot, decision},
          Accepted{7, ballot},
          BallotRefused{7, ballot},
          Chosen{7, ballot},
          DecisionNotice{decision},
          ForwardedRequest{7, 1, {RequestKind::kRemove, {0, 1}, 0, "why"}},
          ForwardedRequest{7, 2, {RequestKind::kGrow, {}, 3, ""}},
          RequestRefused{7, 1, "no"},
          Fingerprint{8, 1234567890123, 42}};
}

TEST(Message, EveryKindIsReadAsItWasWritten) {
  for (const Message& message : one_of_each()) {
    const std::optional<Message> again = parse_message(encode(message));
    ASSERT_TRUE(again.has_value()) << message.index();
    EXPECT_EQ(*again, message) << message.index();
  }
}

TEST(Message, NoPartOfAMessageIsOneAndNothingMayFollow) {
  for (const Message& message : one_of_each()) {
    std::vector<std::uint8_t> bytes = encode(message);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(parse_message(base::ByteView(bytes).first(size)).has_value());
    }
    bytes.push_back(0);
    EXPECT_FALSE(parse_message(bytes).has_value());
  }
}

TEST(Message, WhatCannotBeIsRefused) {
  const auto is_read = [](const Message& message) {
    return parse_message(encode(message)).has_value();
  };
  Decision decision = some_decision();
  decision.view.standbys = {5};  // twice
  EXPECT_FALSE(is_read(DecisionNotice{decision}));
  decision = some_decision();
  decision.sources = {2};
  EXPECT_FALSE(is_read(DecisionNotice{decision}));
  decision.sources = {};
  EXPECT_FALSE(is_read(DecisionNotice{decision}));
  decision = some_decision();
  decision.handles.pop_back();
  EXPECT_FALSE(is_read(DecisionNotice{decision}));
  decision = some_decision();
  decision.view.epoch = 9;
  EXPECT_FALSE(is_read(Accept{7, make_ballot(1, 1), decision}));
  std::vector<std::uint8_t> raw = encode(DismissNotice{7, "bell!"});
  raw.back() = '\a';
  EXPECT_FALSE(parse_message(raw));
  EXPECT_FALSE(is_read(Accepted{7, 0}));
  EXPECT_FALSE(is_read(Welcome{View{.epoch = 1}}));
}

// A reason is often an exception's text, in any language.
TEST(Message, AReasonInAnyLanguageArrives) {
  const auto why_of = [](const std::string& why) {
    return std::get<DismissNotice>(parse_message(encode(DismissNotice{1, why})).value()).why;
  };
  EXPECT_EQ(why_of("h\u00f6st ist weg"), "h\u00f6st ist weg");
  EXPECT_EQ(why_of("two\nlines\xff"), "two\\x0alines\\xff");
}

TEST(Message, TextsAndHandlesAreCutToWhatFits) {
  const auto again = parse_message(encode(DismissNotice{1, std::string(5000, 'x')}));
  EXPECT_EQ(std::get<DismissNotice>(*again).why.size(), kMaxWhyBytes);
}

}  // namespace
}  // namespace spillway::membership
