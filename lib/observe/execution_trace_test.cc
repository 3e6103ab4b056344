// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "harness/slowdown.h"
#include "observe/chakra.h"
#include "observe/execution_trace.h"

namespace spillway::observe {

namespace {

using chakra::ProtoField;
using chakra::ProtoReader;

struct ReadNode {
  std::uint64_t id = 0;
  std::uint64_t type = 0;
  std::uint64_t microseconds = 0;
  std::set<std::uint64_t> after;
};

// A minimal reader of traces; the real one is in emulate.
std::vector<ReadNode> nodes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  base::ByteView rest(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  std::vector<ReadNode> nodes;
  std::uint64_t size = 0;
  bool is_metadata = true;
  while (!rest.empty() && chakra::read_varint(rest, size) && size <= rest.size()) {
    ProtoReader reader(rest.first(size));
    rest = rest.subspan(size);
    if (std::exchange(is_metadata, false)) {
      continue;
    }
    ReadNode node;
    ProtoField field;
    while (reader.next(field)) {
      node.id = field.number == 1 ? field.value : node.id;
      node.type = field.number == 3 ? field.value : node.type;
      node.microseconds = field.number == 7 ? field.value : node.microseconds;
      std::uint64_t id = 0;
      while (field.number == 5 && !field.bytes.empty() && chakra::read_varint(field.bytes, id)) {
        node.after.insert(id);
      }
    }
    nodes.push_back(node);
  }
  return nodes;
}

class ExecutionTraceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "execution_trace_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<ExecutionTrace> open(std::uint32_t rank) {
    return ExecutionTrace::open(folder_.string(), {},
                                {.communicator = "world", .rank = rank, .world = 4})
        .value();
  }
  static base::Instant now() { return base::MonotonicClock().now(); }
  // Nodes count whole microseconds; this returns after at least one more has passed.
  static base::Instant later() {
    const base::Instant end = now() + base::microseconds(2);
    while (now() < end) {
    }
    return now();
  }
  // Whole microseconds, rounded as nodes are.
  static std::uint64_t between(base::Instant from, base::Instant to) {
    return static_cast<std::uint64_t>(((to - from).count() + 500) / 1'000);
  }

  std::filesystem::path folder_;
  collective::Operation operation_{.count = 1000};
  collective::Group group_{0, 4, 0};
};

TEST_F(ExecutionTraceTest, ComputingIsWhatIsBetweenCallsAndWaits) {
  const auto trace = open(2);
  EXPECT_EQ(trace->group_for({.communicator = "a", .world = 4}), "");
  EXPECT_EQ(trace->group_for({.communicator = "b", .world = 4}), "b");
  EXPECT_EQ(trace->group_for({.communicator = "c", .world = 2}), "c");

  // The test reads the clock around every call, which bounds the recorded times.
  const auto first = trace->on_call(operation_, group_, "");
  const base::Instant first_called = now();
  const base::Instant computed = later();
  const auto second = trace->on_call(operation_, group_, "");
  const base::Instant second_called = now();
  const base::Instant began = later();
  const base::Instant ended = later();  // blocked until then
  first->on_end(ended);
  first->on_wait(began, ended, true);
  const base::Instant computed_behind = later();
  const auto third = trace->on_call(operation_, group_, "");
  const base::Instant third_called = now();
  second->on_end(now());
  third->on_end(now());
  trace->flush();

  // first; computing, second; computing before the wait; computing after it, third.
  const std::vector<ReadNode> nodes = nodes_of(folder_ / "trace.2.et");
  ASSERT_EQ(nodes.size(), 6U);
  EXPECT_EQ(nodes[0].type, 7U);
  EXPECT_GE(nodes[0].microseconds, between(first_called, ended));
  EXPECT_EQ(nodes[1].type, 4U);
  EXPECT_GE(nodes[1].microseconds, between(first_called, computed));
  EXPECT_EQ(nodes[2].after, std::set<std::uint64_t>{1});
  EXPECT_GE(nodes[3].microseconds, between(second_called, began));
  EXPECT_EQ(nodes[3].after, std::set<std::uint64_t>{1});
  EXPECT_EQ(nodes[4].after, (std::set<std::uint64_t>{0, 3}));  // it waited for the first
  EXPECT_GE(nodes[4].microseconds, between(ended, computed_behind));
  EXPECT_LE(nodes[4].microseconds, between(ended, third_called));  // being blocked is not computing
  EXPECT_EQ(nodes[5].after, std::set<std::uint64_t>{4});
}

TEST_F(ExecutionTraceTest, WaitsOfThreadsThatNeverCallAreLeftOut) {
  const auto trace = open(1);
  const auto call = trace->on_call(operation_, group_, "");
  std::thread([&] { call->on_wait(now(), now(), true); }).join();
  call->on_end(now());
  trace->flush();
  EXPECT_EQ(nodes_of(folder_ / "trace.1.et").size(), 1U);
}

TEST_F(ExecutionTraceTest, WhatIsNotOverIsNotWrittenAndNothingBehindIt) {
  const auto trace = open(0);
  const auto first = trace->on_call(operation_, group_, "");
  const auto second = trace->on_call(operation_, group_, "");
  second->on_end(now());
  trace->flush();
  EXPECT_TRUE(nodes_of(folder_ / "trace.0.et").empty());
  first->on_end(now());
  trace->flush();
  EXPECT_GE(nodes_of(folder_ / "trace.0.et").size(), 2U);
}

TEST_F(ExecutionTraceTest, ALaunchersRankNamesTheFile) {
  const base::Environment launched = {{"SPILLWAY_RANK", "5"}, {"SPILLWAY_WORLD_SIZE", "8"}};
  const auto trace = ExecutionTrace::open(folder_.string(), launched,
                                          {.communicator = "sub", .rank = 0, .world = 2});
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_TRUE(std::filesystem::exists(folder_ / "trace.5.et"));
  EXPECT_EQ((*trace)->group_for({.communicator = "sub", .world = 2}), "sub");
}

TEST_F(ExecutionTraceTest, AFolderThatIsMissingIsMadeForItsOwnerAlone) {
  const auto open_in = [](const std::filesystem::path& folder) {
    return ExecutionTrace::open(folder.string(), {}, {.communicator = "world", .world = 1});
  };
  const std::filesystem::path made = folder_ / "made";
  EXPECT_TRUE(open_in(made).ok());
  EXPECT_EQ(std::filesystem::status(made).permissions(), std::filesystem::perms::owner_all);
  const base::Status status = open_in(folder_ / "no" / "such").status();
  EXPECT_NE(status.message().find("SPILLWAY_EXECUTION_TRACE"), std::string::npos)
      << status.message();
}

TEST_F(ExecutionTraceTest, AnOperationCostsMicroseconds) {
  const auto trace = open(3);
  constexpr int kCalls = 100'000;
  const std::chrono::nanoseconds all = harness::reference_time([&] {
    for (int i = 0; i < kCalls; ++i) {
      const auto call = trace->on_call(operation_, group_, "");
      call->on_end(now());
      call->on_wait(now(), now(), true);
    }
  });
  const std::chrono::nanoseconds each = all / kCalls;
  RecordProperty("nanoseconds_an_operation", std::to_string(each.count()));
  EXPECT_LT(each, std::chrono::microseconds(100));
}

TEST_F(ExecutionTraceTest, AFolderThatCannotBeIsASentence) {
  const auto trace = ExecutionTrace::open("/proc/nowhere", {}, {});
  ASSERT_FALSE(trace.ok());
  EXPECT_NE(trace.status().message().find("SPILLWAY_EXECUTION_TRACE"), std::string::npos);
}

}  // namespace

}  // namespace spillway::observe

// ------------------------------------------------------------------ chakra

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
