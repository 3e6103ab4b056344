// SPDX-License-Identifier: Apache-2.0
//
// One side of a conversation after its handshake: frames to bytes and back, plain or sealed.
//
// Sealed, every frame is AES-256-GCM under its direction's key, with the frame's number as nonce
// and its header beside: a frame that was changed, left out, repeated, moved or sent back to its
// sender does not open. Which types are sent and how long they are can be seen. After an error the
// conversation is of no use. A plain value whose keys are wiped with it; one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "runtime/rendezvous/crypto.h"
#include "runtime/rendezvous/message.h"

namespace spillway::runtime {

class Channel {
 public:
  Channel() = default;  // plain
  Channel(const SealKey& sending, const SealKey& receiving)
      : sending_(Direction{sending, 0}), receiving_(Direction{receiving, 0}) {}

  bool is_sealed() const { return sending_.has_value(); }
  // For the stream; frames go out in the order in which they were packed.
  base::Result<Blob> pack(const Frame& frame);
  // Of the next frame from the stream what the other side packed.
  base::Result<Frame> unpack(Frame frame);

 private:
  struct Direction {
    SealKey key;
    std::uint64_t frames = 0;  // so far
  };

  std::optional<Direction> sending_{};
  std::optional<Direction> receiving_{};
};

}  // namespace spillway::runtime
