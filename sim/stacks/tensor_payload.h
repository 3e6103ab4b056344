// SPDX-License-Identifier: Apache-2.0
//
// Real bytes for simulated messages: a tensor passes through the real packetizer on one host and
// the real depacketizer on another, so that a simulation can compare both ends value by value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/tolerant/coded_payload.h"
#include "packetize/depacketizer.h"
#include "transport/message.h"

namespace spillway::sim {

// A tensor drawn from (job seed, message): both ends of a simulation can compute it.
std::vector<float> sample_tensor(std::size_t length, const packetize::Job& job,
                                 const wire::MessageId& message);

class TensorSource final : public transport::PayloadSource {
 public:
  TensorSource(const packetize::PacketPlan& plan, const packetize::Job& job,
               const wire::MessageId& message)
      : coded_(plan) {
    coded_.encode(sample_tensor(plan.layout().tensor_length(), job, message), job, message);
  }

  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override {
    return coded_.write(stamp, auth, out);
  }

 private:
  collective::CodedSource coded_;
};

class TensorSink final : public transport::PayloadSink {
 public:
  TensorSink(const packetize::PacketPlan& plan, const packetize::Job& job,
             const wire::MessageId& message);

  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override;

  // Relative squared error of the received tensor; call once, at the end of the message.
  double finish();
  std::span<const float> tensor() const;
  // True if nothing was written beside the tensor.
  bool guards_intact() const;

 private:
  static constexpr std::size_t kGuardValues = 64;  // before the tensor and after it

  std::vector<float> sent_;
  std::vector<float> guarded_;
  packetize::Depacketizer depacketizer_;
};

}  // namespace spillway::sim
