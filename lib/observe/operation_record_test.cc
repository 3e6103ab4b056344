// SPDX-License-Identifier: Apache-2.0
#include "observe/operation_record.h"

#include <gtest/gtest.h>

#include <string>

#include "observe/safe_text.h"

namespace spillway::runtime {
namespace {

TEST(OperationRecord, AFailureKeepsItsCauseAndIsCutBetweenCharacters) {
  OperationRecord record;
  const std::string umlauts = [] {
    std::string text = "x";
    for (int i = 0; i < 200; ++i) {
      text += "\u00e4";
    }
    return text;
  }();
  record.fail(base::StatusCode::kUnavailable, umlauts, 3, base::Instant(base::seconds(1)));
  EXPECT_EQ(record.state, OperationState::kFailed);
  EXPECT_EQ(record.error, base::StatusCode::kUnavailable);
  EXPECT_EQ(record.culprit_rank, 3);
  // 159 bytes and a zero leave room for only half an umlaut more.
  EXPECT_EQ(std::string(record.message.data()), umlauts.substr(0, 159));
}

TEST(OperationRecord, NamesAFewLateRanksAndCountsAll) {
  OperationRecord record;
  for (std::uint32_t rank = 0; rank < 20; ++rank) {
    record.add_late_rank(100 + rank);
  }
  EXPECT_EQ(record.late_count, 20U);
  EXPECT_EQ(record.named_late_ranks(), OperationRecord::kMaxLateRanks);
  EXPECT_EQ(record.late_ranks.back(), 107U);
}

TEST(OperationRecord, LastsUntilItsEndOrUntilNow) {
  OperationRecord record{.queued = base::Instant(base::seconds(1)),
                         .finished = base::Instant(base::seconds(3))};
  const base::Instant now(base::seconds(9));
  EXPECT_EQ(record.duration(now), base::seconds(8));
  record.state = OperationState::kDone;
  EXPECT_EQ(record.duration(now), base::seconds(2));
}

TEST(CleanText, KeepsCharactersAndReplacesWhatIsNone) {
  EXPECT_EQ(clean_text("plain \u00e4 \u20ac \U0001F600"), "plain \u00e4 \u20ac \U0001F600");
  EXPECT_EQ(clean_text("a\xff"
                       "b"),
            "a?b");
  EXPECT_EQ(clean_text("\xc3"), "?");                 // an incomplete character
  EXPECT_EQ(clean_text("\xc0\xaf"), "??");            // '/' in two bytes
  EXPECT_EQ(clean_text("\xed\xa0\x80"), "???");       // half of a surrogate pair
  EXPECT_EQ(clean_text("\xf4\x90\x80\x80"), "????");  // past the last code point
  EXPECT_EQ(clean_text(std::string_view("a\0b", 3)), "a?b");
}

TEST(CleanText, CutsBetweenCharacters) {
  std::array<char, 4> out{};
  copy_clean("ab\u00e4", out);
  EXPECT_STREQ(out.data(), "ab");
  copy_clean("a\u00e4x", out);
  EXPECT_STREQ(out.data(), "a\u00e4");
}

}  // namespace
}  // namespace spillway::runtime
