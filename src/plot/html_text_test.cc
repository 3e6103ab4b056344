// SPDX-License-Identifier: Apache-2.0
#include "plot/html_text.h"

#include <gtest/gtest.h>

namespace spillway::plot {
namespace {

TEST(HtmlText, NothingOfTheTextIsMarkup) {
  EXPECT_EQ(html_escape("<script src='x' y=\"z\">&amp;</script>"),
            "&lt;script src=&#39;x&#39; y=&quot;z&quot;&gt;&amp;amp;&lt;/script&gt;");
}

TEST(HtmlText, OtherLettersStay) {
  EXPECT_EQ(html_escape("a\tb\n\xC3\xA9 {backend}"), "a\tb\n\xC3\xA9 {backend}");
}

TEST(HtmlText, ControlCharactersBecomeSpaces) {
  EXPECT_EQ(html_escape(std::string("a\0\x1B[1m\x7F", 7)), "a  [1m ");
}

}  // namespace
}  // namespace spillway::plot
