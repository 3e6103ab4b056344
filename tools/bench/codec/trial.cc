// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/trial.h"

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "codec/sample_data.h"
#include "packetize/depacketizer.h"
#include "packetize/packetizer.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {

TrialResult run_trial(std::span<const float> tensor, const packetize::PacketLimits& fabric,
                      const packetize::Encoding& encoding, std::uint32_t step,
                      const PacketFate& fate) {
  const packetize::PacketPlan plan =
      value_or_throw(packetize::PacketPlan::make(tensor.size(), fabric, encoding));
  const packetize::Job job{.id = 1, .epoch = 0, .seed = 0x5B111};
  const wire::MessageId message{.operation = step};
  const wire::PacketAuth auth = packetize::seeded_auth(job);
  const packetize::PacketBuffer packets =
      packetize::Packetizer(plan).packetize(tensor, job, {.message = message}, auth);
  std::vector<float> received(tensor.size());
  packetize::Depacketizer receiver(plan, job, message, received);
  for (std::size_t i = 0; i < packets.size(); ++i) {
    const std::size_t arrived = std::min(fate(i, packets[i].size()), packets[i].size());
    if (arrived > 0) {
      receiver.add(packets[i].first(arrived), auth);
    }
  }
  TrialResult result;
  result.report = receiver.finish();
  result.nmse = codec::nmse(received, tensor);
  return result;
}

PacketFate cut_all(const packetize::PacketLimits& fabric, std::size_t frame_bytes) {
  const std::size_t overhead = fabric.frame_overhead();
  const std::size_t payload = frame_bytes - std::min(frame_bytes, overhead);
  return [payload](std::size_t, std::size_t size) { return std::min(size, payload); };
}

PacketFate hit_some(const packetize::PacketLimits& fabric, double share, std::size_t frame_bytes,
                    std::uint64_t seed) {
  const PacketFate cut = cut_all(fabric, frame_bytes);
  return [cut, share, seed](std::size_t index, std::size_t size) {
    const base::RandomBlock block =
        base::random_block(seed, {static_cast<std::uint32_t>(index), 0, 0, 0});
    return base::uniform_float(block[0]) < share ? cut(index, size) : size;
  };
}

}  // namespace spillway::bench
