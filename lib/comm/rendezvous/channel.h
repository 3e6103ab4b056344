// SPDX-License-Identifier: Apache-2.0
//
// One end of a connection after its handshake: frames to bytes and back, plain or sealed.
//
// A sealed frame is AES-256-GCM under its direction's key, with the frame's number as nonce and its
// header as associated data. A frame that was changed, dropped, repeated, reordered or reflected to
// its sender does not open. Frame types and lengths stay visible. After an error the connection is
// unusable. A plain value whose keys are wiped with it; one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "comm/rendezvous/crypto.h"
#include "comm/rendezvous/message.h"

namespace spillway::runtime {

class Channel {
 public:
  Channel() = default;  // plain
  Channel(const SealKey& sending, const SealKey& receiving)
      : sending_(Direction{sending, 0}), receiving_(Direction{receiving, 0}) {}

  bool is_sealed() const { return sending_.has_value(); }
  // Bytes for the stream. Frames must be sent in the order in which they were packed.
  base::Result<Blob> pack(const Frame& frame);
  // Opens the next frame from the stream.
  base::Result<Frame> unpack(Frame frame);

 private:
  struct Direction {
    SealKey key;
    std::uint64_t frames = 0;  // number of frames so far
  };

  std::optional<Direction> sending_{};
  std::optional<Direction> receiving_{};
};

}  // namespace spillway::runtime
