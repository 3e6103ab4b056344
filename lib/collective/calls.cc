// SPDX-License-Identifier: Apache-2.0
#include "collective/calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace spillway::collective {

namespace {

// Point-to-point numbers mean nothing to other pairs.
bool are_about_one(const wire::Mismatch& a, const wire::Mismatch& b) {
  if (a.operation != b.operation || a.is_point_to_point != b.is_point_to_point) {
    return false;
  }
  return !a.is_point_to_point ||
         std::is_permutation(a.calls.begin(), a.calls.end(), b.calls.begin(),
                             [](auto& one, auto& other) { return one.rank == other.rank; });
}

}  // namespace

wire::CallText call_text(std::uint16_t rank, std::string_view text, bool is_whole) {
  const std::string kept = base::printable_prefix(text, SPILLWAY_MAX_CALL_TEXT);
  wire::CallText call{.rank = rank,
                      .is_whole = is_whole,
                      .bytes = static_cast<std::uint8_t>(kept.size()),
                      .text = {}};
  std::copy(kept.begin(), kept.end(), call.text.begin());
  return call;
}

wire::CallText call_text(std::uint16_t rank, const Operation& operation) {
  return call_text(rank, describe_call(operation), /*is_whole=*/true);
}

bool has_texts(const wire::Mismatch& mismatch) {
  return mismatch.calls[0].bytes > 0 && mismatch.calls[1].bytes > 0;
}

bool is_whole(const wire::Mismatch& mismatch) {
  return mismatch.calls[0].is_whole && mismatch.calls[1].is_whole;
}

void fill_in(wire::Mismatch& mismatch, const wire::Mismatch& from) {
  if (!are_about_one(mismatch, from)) {
    return;
  }
  for (wire::CallText& call : mismatch.calls) {
    for (const wire::CallText& other : from.calls) {
      if (!call.is_whole && other.is_whole && other.rank == call.rank) {
        call = other;
      }
    }
  }
}

std::string mismatch_sentence(const wire::Mismatch& mismatch, const Group& group) {
  const wire::CallText& first = mismatch.calls[0];
  const wire::CallText& second = mismatch.calls[1];
  const bool are_alike = first.view() == second.view();
  return fmt::format(
      "operation {} is {} at {}, but at {} it is {}; all ranks must call the same operations with "
      "the same arguments in the same order",
      mismatch.operation, base::printable(first.view()), rank_name(group, first.rank),
      rank_name(group, second.rank),
      are_alike ? "the same with other arguments or packet sizes" : base::printable(second.view()));
}

namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::uint8_t kTolerant = 1;
constexpr std::uint8_t kFeedback = 4;
constexpr std::uint8_t kPredictsScale = 8;
constexpr unsigned kCodecShift = 4;
constexpr std::uint8_t kCodecMask = 3 << kCodecShift;
constexpr unsigned kServedCodecs = static_cast<unsigned>(Codec::kBlocks) + 1;
constexpr std::uint8_t kKnownFlags = kTolerant | kFeedback | kPredictsScale | kCodecMask;
constexpr std::size_t kToleranceAt = 16;

std::uint8_t flags_of(const Tolerance& tolerance) {
  unsigned flags = kTolerant | static_cast<unsigned>(tolerance.codec) << kCodecShift;
  flags |= tolerance.feedback_tensor != 0 ? kFeedback : 0U;
  flags |= tolerance.predicts_scale ? kPredictsScale : 0U;
  return static_cast<std::uint8_t>(flags);
}

bool are_known(std::uint8_t flags) {
  return (flags & ~kKnownFlags) == 0 && (flags & kTolerant) != 0 &&
         (flags & kCodecMask) >> kCodecShift < static_cast<int>(kServedCodecs);
}

void write_tolerance(const Tolerance& tolerance, base::ByteWriter& writer) {
  writer.write(tolerance.precision);
  writer.write(tolerance.gather_precision);
  writer.write(tolerance.min_planes);
  writer.write(flags_of(tolerance));
  writer.write(tolerance.loss_bound_ppm);
  writer.write(tolerance.least_contributors);
}

base::Result<Tolerance> read_tolerance(base::ByteReader& reader) {
  Tolerance tolerance;
  tolerance.precision = reader.read<std::uint8_t>();
  tolerance.gather_precision = reader.read<std::uint8_t>();
  tolerance.min_planes = reader.read<std::uint8_t>();
  const auto flags = reader.read<std::uint8_t>();
  if (!are_known(flags)) {
    return base::invalid_argument(
        "a call has flags that this version does not know; do all ranks run one version?");
  }
  tolerance.codec = static_cast<Codec>((flags & kCodecMask) >> kCodecShift);
  tolerance.predicts_scale = (flags & kPredictsScale) != 0;
  tolerance.feedback_tensor = (flags & kFeedback) != 0 ? 1 : 0;  // the name is the worker's own
  tolerance.loss_bound_ppm = reader.read<std::uint32_t>();
  tolerance.least_contributors = reader.read<double>();
  return tolerance;
}

// Reads a number of an enumeration with so many values.
template <typename Enum>
bool read_enum(base::ByteReader& reader, unsigned values, Enum& out) {
  const auto number = reader.read<std::uint8_t>();
  out = static_cast<Enum>(number);
  return number < values;
}

}  // namespace

CallBytes encode_call(const Operation& operation) {
  CallBytes bytes{};
  base::ByteWriter writer(bytes);
  writer.write(kVersion);
  writer.write(static_cast<std::uint8_t>(operation.kind));
  writer.write(static_cast<std::uint8_t>(operation.type));
  writer.write(static_cast<std::uint8_t>(operation.op));
  writer.write(static_cast<std::uint8_t>(operation.algorithm));
  writer.write(operation.priority);
  writer.write(operation.root);
  writer.write(std::uint64_t{operation.count});
  if (operation.tolerance) {
    write_tolerance(*operation.tolerance, writer);
  }
  return bytes;
}

base::Result<Operation> parse_call(base::ByteView bytes) {
  if (bytes.size() != kCallBytes) {
    return base::invalid_argument("a call has 32 bytes; do all ranks run one version?");
  }
  base::ByteReader reader(bytes);
  const bool is_known = reader.read<std::uint8_t>() == kVersion;
  Operation operation;
  const bool in_range = read_enum(reader, kKinds, operation.kind) &&
                        read_enum(reader, kDataTypes, operation.type) &&
                        read_enum(reader, kReduceOps, operation.op) &&
                        read_enum(reader, kAlgorithms, operation.algorithm);
  if (!is_known || !in_range) {
    return base::invalid_argument("a call of another version; do all ranks run one version?");
  }
  operation.priority = reader.read<std::uint8_t>();
  operation.root = reader.read<std::uint16_t>();
  operation.count = reader.read<std::uint64_t>();
  const base::ByteView rest = bytes.subspan(kToleranceAt);
  if (std::all_of(rest.begin(), rest.end(), [](std::uint8_t byte) { return byte == 0; })) {
    return operation;
  }
  const base::Result<Tolerance> tolerance = read_tolerance(reader);
  if (!tolerance.ok()) {
    return tolerance.status();
  }
  operation.tolerance = *tolerance;
  return operation;
}

bool are_alike(const Operation& a, const Operation& b) {
  Operation other = b;
  other.priority = a.priority;
  return encode_call(a) == encode_call(other);
}

wire::MessageId call_id(std::uint64_t sequence, std::uint16_t worker) {
  return {.operation = sequence,
          .signature = 0,
          .piece = 0,
          .source = worker,
          .phase = wire::Phase::kPointToPoint};
}

base::Status CallOutbox::send(const Operation& operation, std::uint64_t sequence,
                              RunContext& context) {
  Outgoing& outgoing = calls_.try_emplace(sequence, operation, config_).first->second;
  const Group& group = config_.group;
  for (std::uint16_t server = group.workers(); server < group.world; ++server) {
    transport::SendOptions options = config_.layout.send_options(
        call_id(sequence, group.rank), kCallBytes, kCallPriority, outgoing.source);
    options.to = server;
    if (base::Status status = messages_.send(options, context); !status.ok()) {
      return status;
    }
    ++outgoing.open;
  }
  return {};
}

void CallOutbox::on_sent(const transport::SendReport& report) {
  messages_.on_sent(report);
  const auto found = calls_.find(report.id.operation);
  if (found != calls_.end() && --found->second.open == 0) {
    calls_.erase(found);
  }
}

void CallOutbox::withdraw(RunContext& context) {
  messages_.withdraw_if(context, [](const transport::MessageKey&) { return true; });
  calls_.clear();
}

CallInbox::CallInbox(const RunConfig& config, std::uint64_t first)
    : config_(config), workers_(config.group.workers()), next_(first) {
  for (Worker& worker : workers_) {
    worker.next_expected = first;
  }
}

// Fewer with many workers: the endpoint's table is above all for data.
std::uint32_t CallInbox::window() const {
  constexpr std::size_t kMaxExpected = 2048;
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(kMaxExpected / workers_.size(), 2, 16));
}

std::uint64_t CallInbox::slowest() const {
  std::uint64_t slowest = UINT64_MAX;
  for (const Worker& worker : workers_) {
    slowest = worker.has_left ? slowest : std::min(slowest, worker.next());
  }
  return slowest;
}

base::Status CallInbox::start(RunContext& context) {
  return expect_more(context);
}

base::Status CallInbox::expect_more(RunContext& context) {
  const std::uint64_t most = slowest() + kMaxAhead;  // means nothing once all have left
  for (std::uint16_t rank = 0; rank < workers_.size(); ++rank) {
    Worker& worker = workers_[rank];
    while (!worker.has_left && worker.next_expected < worker.next() + window() &&
           worker.next_expected < most) {
      const std::uint64_t sequence = worker.next_expected++;
      Expected& expected = worker.expected.try_emplace(sequence, config_).first->second;
      const transport::ReceiveOptions options = config_.layout.receive_options(
          call_id(sequence, rank), kCallBytes, kCallPriority, expected.sink);
      if (base::Status status = messages_.expect(options, context); !status.ok()) {
        return status;
      }
    }
  }
  return {};
}

std::optional<CallFault> CallInbox::compare(const Operation& operation, std::uint64_t sequence,
                                            std::uint16_t caller) {
  const auto [found, is_first] = heard_.try_emplace(sequence, Heard{operation, caller});
  const Heard& first = found->second;
  if (is_first || are_alike(first.operation, operation)) {
    return std::nullopt;
  }
  const wire::Mismatch mismatch{
      .operation = sequence,
      .is_point_to_point = false,
      .calls = {call_text(first.caller, first.operation), call_text(caller, operation)}};
  return CallFault{{base::StatusCode::kMismatch, mismatch_sentence(mismatch, config_.group)},
                   caller,
                   wire::FailureCause::kMismatch,
                   mismatch};
}

std::optional<CallFault> CallInbox::on_received(const transport::ReceiveReport& report,
                                                RunContext& context) {
  messages_.on_received(report);
  const std::uint16_t caller = report.id.source;
  Worker& worker = workers_[caller];
  const auto expected = worker.expected.find(report.id.operation);
  if (expected == worker.expected.end()) {
    return std::nullopt;  // of a worker that has left
  }
  const base::Result<Operation> call = parse_call(expected->second.bytes);
  worker.expected.erase(expected);
  if (!call.ok()) {
    return CallFault{
        {call.status().code(), fmt::format("rank {}: {}", caller, call.status().message())},
        caller};
  }
  if (std::optional<CallFault> fault = compare(*call, report.id.operation, caller)) {
    return fault;
  }
  context.endpoint.retire_before(caller, worker.next());
  heard_.erase(heard_.begin(), heard_.lower_bound(std::min(slowest(), next_)));
  // If a worker is dead, the event that says so is on its way.
  if (base::Status status = expect_more(context);
      !status.ok() && status.code() != base::StatusCode::kPeerFailed) {
    return CallFault{status, config_.group.rank, wire::FailureCause::kInternal};
  }
  return std::nullopt;
}

std::optional<OpenedCall> CallInbox::next() {
  const auto found = heard_.find(next_);
  if (found == heard_.end()) {
    return std::nullopt;
  }
  return OpenedCall{found->second.operation, next_++, found->second.caller};
}

void CallInbox::leave(std::uint16_t rank, RunContext& context) {
  if (rank >= workers_.size()) {
    return;
  }
  workers_[rank].has_left = true;
  messages_.withdraw_if(context,
                        [rank](const transport::MessageKey& key) { return key.peer == rank; });
  workers_[rank].expected.clear();
}

bool CallInbox::has_everybody_left() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.has_left; });
}

void CallInbox::withdraw(RunContext& context) {
  messages_.withdraw_if(context, [](const transport::MessageKey&) { return true; });
}

}  // namespace spillway::collective
