// SPDX-License-Identifier: Apache-2.0
//
// The first half of an entropy-coded all-reduce: what ranks measure and tell each other, and what
// follows from it: the scale, the pieces, and the tables by which each is coded.
#include <algorithm>
#include <cmath>
#include <utility>

#include "codec/lanes.h"
#include "collective/entropy/entropy_run.h"
#include "collective/entropy/sketch_content.h"
#include "packetize/packet_plan.h"

namespace spillway::collective {
namespace {

namespace entropy = codec::entropy;

// All ranks wait for hellos, and they are short.
constexpr std::uint8_t kHelloPriority = SPILLWAY_PRIORITIES - 1;

}  // namespace

void EntropyRun::measure(Slice& slice, std::uint32_t index) {
  const Extent own = own_blocks();
  const std::size_t first = own.first + index * kSliceBlocks;
  const std::size_t end = std::min(first + kSliceBlocks, own.first + own.count);
  std::vector<float> values;
  for (std::size_t block = first; block < end; ++block) {
    tensor_.own(block, values);
    const Magnitudes magnitudes = measure_magnitudes(values);
    slice.magnitudes.largest = codec::larger_scale(slice.magnitudes.largest, magnitudes.largest);
    slice.magnitudes.sum += magnitudes.sum;
    if (rounds_early_ && !std::isnan(magnitudes.largest)) {
      slice.clipped += tensor_.round(block, values);
    }
  }
}

// ------------------------------------------------------------------ hellos

base::Status EntropyRun::expect_hellos(RunContext& context) {
  for (std::uint16_t peer = 0; peer < world(); ++peer) {
    if (peer == rank()) {
      continue;
    }
    Hello& hello = hellos_[peer];
    hello.sink.emplace(hello.in.data(), hello.in.size(), config_.layout);
    const transport::ReceiveOptions options = config_.layout.receive_options(
        message_id(wire::Phase::kNote, 0, peer), kHelloBytes, kHelloPriority, *hello.sink);
    if (base::Status status = messages_.expect(options, context); !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status EntropyRun::send_hellos(RunContext& context) {
  Magnitudes all;
  for (const Slice& slice : slices_) {
    all.largest = codec::larger_scale(all.largest, slice.magnitudes.largest);
    all.sum += slice.magnitudes.sum;
  }
  const std::size_t elements =
      input_bytes(operation(), config_.group) / element_size(operation().type);
  const auto mean = static_cast<float>(all.sum / static_cast<double>(elements));
  const std::uint32_t shared = last_ ? last_->shared_hash() : 0;
  for (std::uint16_t peer = 0; peer < world(); ++peer) {
    sent_hellos_[peer] = {.largest = all.largest, .mean = mean, .shared = shared};
    if (peer == rank()) {
      received_hellos_[peer] = sent_hellos_[peer];
      continue;
    }
    if (last_) {
      sent_hellos_[peer].sent = hash_of(last_->sent, peer);
      sent_hellos_[peer].received = hash_of(last_->received, peer);
    }
    Hello& hello = hellos_[peer];
    hello.out = write_hello(sent_hellos_[peer]);
    hello.source.emplace(hello.out.data(), hello.out.size(), config_.layout);
    transport::SendOptions options = config_.layout.send_options(
        message_id(wire::Phase::kNote, 0, rank()), kHelloBytes, kHelloPriority, *hello.source);
    options.to = peer;
    if (base::Status status = messages_.send(options, context); !status.ok()) {
      return status;
    }
  }
  return agree_if_complete(context);
}

base::Status EntropyRun::on_hello(std::uint16_t from, RunContext& context) {
  hellos_[from].is_missing = false;
  received_hellos_[from] = read_hello(hellos_[from].in);
  --missing_hellos_;
  return agree_if_complete(context);
}

base::Status EntropyRun::agree_if_complete(RunContext& context) {
  if (missing_hellos_ > 0 || unmeasured_ > 0) {
    return {};
  }
  agreement_ =
      agree_on_codes(sent_hellos_, received_hellos_, last_.get(), tolerance().predicts_scale);
  tensor_.code = NumberCode(tolerance().precision, agreement_.scale);
  tensor_.is_rounded = agreement_.is_predicted;
  tensor_.is_finite = !std::isnan(agreement_.largest);
  for (const Slice& slice : slices_) {
    report_.entropy.clipped += agreement_.is_predicted ? slice.clipped : 0;
  }
  content_ = make_content();
  coder_.emplace(PieceCoder{
      .group = config_.group,
      .sequence = report_.sequence,
      .content = *content_,
      .coder_pool = coder_pool_,
      // A sketch puts its numbers into other blocks every time.
      .counts_costs = chunks_.rule == ChunkRule::kBalanced && tolerance().codec == Codec::kEntropy,
      .adds = has_contributions(operation())});
  cut();
  progress_ = EntropyProgress::kFolding;
  return begin_pieces(context);
}

std::unique_ptr<EntropyContent> EntropyRun::make_content() {
  if (tolerance().codec != Codec::kSketch) {
    return std::make_unique<PlainContent>(tensor_);
  }
  const bool all_remember = agreement_.sums == TableSource::kLast;
  const std::uint64_t seed =
      packetize::rotation_key(config_.job, message_id(wire::Phase::kGather, 0, 0));
  return std::make_unique<SketchContent>(tensor_, all_remember ? last_->sketch.code : nullptr,
                                         seed);
}

void EntropyRun::cut() {
  const bool has_costs = agreement_.sums == TableSource::kLast;
  const std::span<const std::uint32_t> none;
  for (const ChunkPiece& place :
       cut_chunks(content_->grid(), chunks_, has_costs ? std::span(last_->costs) : none)) {
    EntropyRoute route = is_half(operation())
                             ? half_route_of(operation().kind, config_.group, place.chunk)
                             : route_of(algorithm(), config_.group, place.chunk);
    PieceTables tables = tables_of(place, route);
    const bool only_receives = route.only_receives;
    Piece& piece = pieces_.emplace_back(*coder_, place, std::move(route), std::move(tables));
    piece.stage = only_receives ? EntropyStage::kGathering : EntropyStage::kReducing;
  }
}

// ------------------------------------------------------------------ tables

// For the sum of so many ranks, up to the sender: in a ring, the ranks before it.
const entropy::ProbabilityTable& EntropyRun::parametric(std::uint16_t sender, std::uint16_t ranks) {
  const auto found = parametric_.find({sender, ranks});
  if (found != parametric_.end()) {
    return found->second;
  }
  std::vector<float> means;
  for (unsigned i = 0; i < ranks; ++i) {
    means.push_back(received_hellos_[(sender + world() - i) % world()].mean);
  }
  const std::uint32_t scale_q8 = parametric_scale(means, tensor_.code.unit());
  return parametric_
      .emplace(std::pair(sender, ranks), Table::laplace(content_->alphabet(0, ranks), scale_q8))
      .first->second;
}

std::optional<entropy::ProbabilityTable> EntropyRun::table_of(TableSource source,
                                                              const LinkTables& last,
                                                              const LinkStep& link,
                                                              std::uint16_t sender,
                                                              std::uint8_t section) {
  if (source == TableSource::kInline) {
    return std::nullopt;
  }
  // All ranks that need it have it, or none does: chunks may have been cut differently.
  const auto found = source == TableSource::kLast ? last.find(link) : last.end();
  if (found != last.end()) {
    return found->second;
  }
  return content_->is_like_values(section) ? std::optional(parametric(sender, link.step))
                                           : std::nullopt;
}

PieceTables EntropyRun::tables_of(const ChunkPiece& place, const EntropyRoute& route) {
  static const TensorCodes kNothing{};
  const TensorCodes& last = last_ ? *last_ : kNothing;
  PieceTables tables;
  if (route.to) {
    tables.sent = table_of(agreement_.sent[*route.to], last.sent,
                           {*route.to, route.sent_step, place.number}, rank(), place.section);
  }
  for (const std::uint16_t from : route.sources) {
    std::optional<Table> table =
        table_of(agreement_.received[from], last.received,
                 {from, route.received_step, place.number}, from, place.section);
    if (table) {
      tables.received.emplace(from, std::move(*table));
    }
  }
  const auto last_added = coder_->adds ? static_cast<std::uint16_t>(world() - 1) : place.chunk;
  tables.sum =
      table_of(agreement_.sums, last.sums, {place.chunk, coder_->ranks_in_sum(), place.number},
               last_added, place.section);
  return tables;
}

}  // namespace spillway::collective
