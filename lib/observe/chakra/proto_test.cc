// SPDX-License-Identifier: Apache-2.0
#include "observe/chakra/proto.h"

#include <gtest/gtest.h>

#include "observe/chakra/encode.h"

namespace spillway::chakra {
namespace {

base::ByteView view_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

TEST(Proto, VarintsComeBackAndLongOnesAreRefused) {
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{127}, std::uint64_t{128},
                                    std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    std::string text;
    append_varint(text, value);
    base::ByteView bytes = view_of(text);
    std::uint64_t read = 1;
    ASSERT_TRUE(read_varint(bytes, read));
    EXPECT_EQ(read, value);
    EXPECT_TRUE(bytes.empty());
    text.pop_back();
    bytes = view_of(text);
    EXPECT_FALSE(read_varint(bytes, read));
  }
  const std::string eleven(11, '\x80');
  const std::string too_large = std::string(9, '\xFF') + '\x02';
  for (const std::string& text : {eleven, too_large}) {
    base::ByteView bytes = view_of(text);
    std::uint64_t read = 0;
    EXPECT_FALSE(read_varint(bytes, read));
  }
}

TEST(Proto, FieldsOfEveryTypeAreWalkedAndBadOnesEndTheWalk) {
  std::string text;
  append_varint_field(text, 1, 300);
  append_bytes_field(text, 2, "abc");
  append_varint(text, 3 << 3 | 5);
  text += std::string("\x01\x00\x00\x00", 4);
  append_varint(text, 4 << 3 | 1);
  text += std::string("\x02\x00\x00\x00\x00\x00\x00\x00", 8);
  ProtoReader reader(view_of(text));
  ProtoField field;
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(field.value, 300U);
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(field.text(), "abc");
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(field.value, 1U);
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(field.value, 2U);
  EXPECT_FALSE(reader.next(field));
  EXPECT_TRUE(reader.ok());
  // A group, field number 0, bytes beyond the end.
  for (const std::string& bad :
       {std::string("\x0b"), std::string("\x00\x01", 2), std::string("\x12\x05x")}) {
    ProtoReader refusing(view_of(bad));
    EXPECT_FALSE(refusing.next(field));
    EXPECT_FALSE(refusing.ok());
  }
}

TEST(Proto, SignedNumbersZigzag) {
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{5}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(unzigzag(zigzag(value)), value);
  }
}

TEST(Encoder, GroupsAreJsonWhateverTheirNames) {
  EXPECT_EQ(process_groups_json({{"a\"b", {0, 2}}, {"c", {}}}),
            R"([{"pg_name": "a\"b", "ranks": [0, 2]}, {"pg_name": "c", "ranks": []}])");
}

}  // namespace
}  // namespace spillway::chakra
