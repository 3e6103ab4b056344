// SPDX-License-Identifier: Apache-2.0
#include "sim/stacks/tensor_payload.h"

#include <algorithm>

#include "base/random.h"
#include "codec/sample_data.h"
#include "collective/tolerant/coded_payload.h"

namespace spillway::sim {
namespace {

constexpr float kGuard = 1234.5F;
constexpr std::size_t kBlocks = 16;  // random blocks drawn at a time

}  // namespace

std::vector<float> sample_tensor(std::size_t length, const packetize::Job& job,
                                 const wire::MessageId& message) {
  const std::uint64_t key = base::derive_key(
      job.seed,
      {static_cast<std::uint32_t>(message.operation),
       (static_cast<std::uint32_t>(message.signature) << 16) | message.piece,
       (std::uint32_t{message.source} << 8) | static_cast<std::uint32_t>(message.phase), job.id});
  std::vector<float> tensor(length);
  for (std::size_t first = 0; first < length; first += 4 * kBlocks) {
    base::RandomBlocks<kBlocks> blocks{};
    for (std::size_t i = 0; i < kBlocks; ++i) {
      blocks.word[0][i] = static_cast<std::uint32_t>(first / 4 + i);
    }
    base::random_blocks(key, blocks);
    for (std::size_t i = 0; i < std::min(4 * kBlocks, length - first); ++i) {
      tensor[first + i] = base::uniform_float(blocks.word[i / kBlocks][i % kBlocks]) - 0.5F;
    }
  }
  return tensor;
}

TensorSink::TensorSink(const packetize::PacketPlan& plan, const packetize::Job& job,
                       const wire::MessageId& message)
    : sent_(sample_tensor(plan.layout().tensor_length(), job, message)),
      guarded_(sent_.size() + 2 * kGuardValues, kGuard),
      depacketizer_(plan, job, message, std::span(guarded_).subspan(kGuardValues, sent_.size())) {}

std::span<const float> TensorSink::tensor() const {
  return std::span(guarded_).subspan(kGuardValues, sent_.size());
}

bool TensorSink::guards_intact() const {
  const auto is_guard = [](float value) { return value == kGuard; };
  const std::span<const float> all(guarded_);
  return std::ranges::all_of(all.first(kGuardValues), is_guard) &&
         std::ranges::all_of(all.last(kGuardValues), is_guard);
}

unsigned TensorSink::take(const wire::OpenedPacket& packet, base::ByteView bytes) {
  return collective::take_packet(depacketizer_, packet, bytes);
}

double TensorSink::finish() {
  depacketizer_.finish();
  return codec::nmse(tensor(), sent_);
}

}  // namespace spillway::sim
