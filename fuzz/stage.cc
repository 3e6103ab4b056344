// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary lines as the messages of real ranks to a stage, and arbitrary text as a table of
// measured durations. The first byte of each line chooses its connection; a line can also end the
// connection or let time pass. Refusals must say why. At the end all ranks leave and every
// timeout passes: no rank may still wait.
#include <map>
#include <string_view>

#include "emulate/stage/stage_durations.h"
#include "emulate/stage/stage_protocol.h"
#include "fuzzing.h"

using namespace spillway;
using spillway::fuzzing::require;

namespace {

class SizeIsTime final : public emulate::StageDurations {
 public:
  base::Result<base::Duration> collective(const emulate::StagedCollective& collective) override {
    return base::nanoseconds(static_cast<std::int64_t>(collective.bytes % 1'000'000'000));
  }
  base::Result<base::Duration> message(std::uint32_t, std::uint32_t, std::uint64_t bytes) override {
    return base::nanoseconds(static_cast<std::int64_t>(bytes % 1'000'000'000));
  }
};

void say_lines(std::string_view text) {
  SizeIsTime durations;
  emulate::Stage stage({.world = 6, .real = {1, 3, 4}, .slow = {{5, 1.5}}}, durations);
  emulate::StageProtocol protocol(stage, {});
  base::Instant now;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty()) {
      continue;
    }
    const std::uint64_t connection = static_cast<unsigned char>(line[0]) % 4;
    if (line.substr(1) == "end") {
      protocol.closed(connection);
    } else if (line.substr(1) == "later") {
      now = now + base::seconds(7);
      [[maybe_unused]] const auto next = stage.expire(now);
    } else if (const base::Status status = protocol.line(connection, line.substr(1));
               !status.ok()) {
      require(!status.message().empty());
      protocol.closed(connection);
    }
    for (const auto& [to, said] : protocol.take_lines()) {
      require(to < 4 && said.ends_with("\n"));
    }
  }
  for (const std::uint32_t rank : stage.config().real) {
    stage.leave(rank, "has left");
  }
  require(!stage.expire(base::Instant(base::Duration(INT64_MAX / 2))).has_value());
}

void read_table(std::string_view text) {
  const base::Result<emulate::MeasuredTable> table = emulate::parse_table(text);
  if (!table.ok()) {
    require(!table.status().message().empty());
    return;
  }
  SizeIsTime otherwise;
  emulate::MeasuredDurations durations(*table, otherwise);
  const std::vector<std::uint32_t> ranks = {0, 1};
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{1000}, std::uint64_t{1} << 49}) {
    const auto took = durations.collective({ranks, emulate::CollectiveKind::kAllReduce, bytes, 0});
    require(took.ok() && took->count() >= 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  say_lines(text);
  read_table(text);
  return 0;
}
