// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace spillway::base {
namespace {

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
