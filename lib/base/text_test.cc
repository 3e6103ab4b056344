// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>

#include <string>

namespace spillway::base {
namespace {

TEST(ParseBytes, BareLettersAreBinaryAndLettersWithBAreDecimal) {
  EXPECT_EQ(parse_bytes("1500").value(), bytes(1500));
  EXPECT_EQ(parse_bytes("64k").value(), bytes(65536));
  EXPECT_EQ(parse_bytes("64KiB").value(), bytes(65536));
  EXPECT_EQ(parse_bytes("64kB").value(), bytes(64000));
  EXPECT_EQ(parse_bytes("10MB").value(), bytes(10'000'000));
  EXPECT_EQ(parse_bytes("1.5m").value(), bytes(1572864));
  EXPECT_EQ(parse_bytes("2g").value(), bytes(2147483648));
  EXPECT_EQ(parse_bytes("0").value(), bytes(0));
}

TEST(ParseBytes, RefusesWhatIsNotASizeAndQuotesIt) {
  for (const char* text : {"", "k", "-1", "nan", "inf", "1e3", "10 MB", "10q", "99999999999g"}) {
    const auto parsed = parse_bytes(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.status().message().find('"' + std::string(text) + '"'), std::string::npos);
  }
}

TEST(ParseRate, ReadsPowersOfAThousandAndRefusesZero) {
  EXPECT_EQ(parse_rate("100gbit").value(), gigabits_per_second(100));
  EXPECT_EQ(parse_rate("2.5Gbit").value(), bits_per_second(2'500'000'000));
  EXPECT_EQ(parse_rate("1.6tbit").value(), gigabits_per_second(1600));
  EXPECT_EQ(parse_rate("9600bit").value(), bits_per_second(9600));
  EXPECT_FALSE(parse_rate("0gbit").ok());
  EXPECT_FALSE(parse_rate("100").ok());
  EXPECT_FALSE(parse_rate("100gb").ok());
}

TEST(ParseDuration, NeedsAUnitUnlessItIsZero) {
  EXPECT_EQ(parse_duration("500ns").value(), nanoseconds(500));
  EXPECT_EQ(parse_duration("10us").value(), microseconds(10));
  EXPECT_EQ(parse_duration("1.5ms").value(), microseconds(1500));
  EXPECT_EQ(parse_duration("2s").value(), seconds(2));
  EXPECT_EQ(parse_duration("0").value(), Duration());
  EXPECT_FALSE(parse_duration("10").ok());
  EXPECT_FALSE(parse_duration("-1us").ok());
  EXPECT_FALSE(parse_duration("10min").ok());
}

TEST(ParseFraction, ReadsPercentsPartsPerMillionAndPlainSharesUpToOne) {
  EXPECT_DOUBLE_EQ(parse_fraction("1%").value(), 0.01);
  EXPECT_DOUBLE_EQ(parse_fraction("0.25").value(), 0.25);
  EXPECT_DOUBLE_EQ(parse_fraction("250ppm").value(), 0.00025);
  EXPECT_DOUBLE_EQ(parse_fraction("100%").value(), 1.0);
  EXPECT_DOUBLE_EQ(parse_fraction("0").value(), 0.0);
  EXPECT_FALSE(parse_fraction("101%").ok());
  EXPECT_FALSE(parse_fraction("1.01").ok());
  EXPECT_FALSE(parse_fraction("-1%").ok());
  EXPECT_FALSE(parse_fraction("a lot").ok());
}

TEST(Printable, LeavesTextAsItIs) {
  for (const char* text :
       {"", "host0:7 \"is\" gone \\o/", "h\u00f6st", "\u4e3b\u6a5f", "\U0001F980"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(printable("\x1b[2J\a\r\n\x7f"), "\\x1b[2J\\x07\\x0d\\x0a\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("two\nlines\x1b", "\n"), "two\nlines\\x1b");
}

TEST(Printable, ShowsBytesThatAreNoText) {
  EXPECT_EQ(printable("\x9b\xff"), "\\x9b\\xff");
  EXPECT_EQ(printable("\xe4\xb8"), "\\xe4\\xb8") << "cut";
  EXPECT_EQ(printable("\xc0\x80\xc1\xbf\xe0\x80\x80"), "\\xc0\\x80\\xc1\\xbf\\xe0\\x80\\x80")
      << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
}

TEST(Printable, ChangesNothingTheSecondTime) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    all += static_cast<char>(byte);
  }
  EXPECT_EQ(printable(printable(all)), printable(all));
}

TEST(Printable, APrefixEndsBetweenCharacters) {
  EXPECT_EQ(printable_prefix("h\u00f6st", 9), "h\u00f6st");
  EXPECT_EQ(printable_prefix("h\u00f6st", 3), "h\u00f6");
  EXPECT_EQ(printable_prefix("h\u00f6st", 2), "h");
  EXPECT_EQ(printable_prefix("\U0001F980", 3), "");
  EXPECT_EQ(printable_prefix("a\tb", 4), "a\\x0");
}

}  // namespace

}  // namespace spillway::base
