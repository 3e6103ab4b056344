// SPDX-License-Identifier: Apache-2.0
//
// Packets on a byte stream, each behind its length (docs/wire.md): written one behind the other
// until the stream takes them, and found again in whatever pieces they arrive.
//
// Any bytes give packets, or the finding that they are none: a length of zero or above
// SPILLWAY_MAX_PACKET ends a reader for good, before anything is kept. A reader holds at most one
// frame; a writer as much as its owner lets it. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "wire/packet.h"

namespace spillway::net {

inline constexpr std::size_t kFrameLengthBytes = 4;
inline constexpr std::size_t kMaxFrameBytes = kFrameLengthBytes + SPILLWAY_MAX_PACKET;

class FrameReader {
 public:
  // The next packet of the stream, of which `bytes` arrived; what is used is taken off them.
  // Nothing: they are used up, and what is left of them is kept. A packet lies in `bytes`, or here
  // until the next call.
  std::optional<base::ByteView> next(base::ByteView& bytes);
  // These were no frames.
  bool is_broken() const { return is_broken_; }

 private:
  std::optional<std::size_t> frame_bytes(const std::uint8_t* length);
  std::optional<base::ByteView> complete(base::ByteView& bytes);
  bool fill_up_to(std::size_t size, base::ByteView& bytes);

  std::vector<std::uint8_t> begun_;  // a frame of which some bytes came
  bool is_handed_out_ = false;       // it is whole, and its reader has it
  bool is_broken_ = false;
};

class FrameWriter {
 public:
  // What waits to leave, and how much of it left.
  base::ByteView waiting() const { return {buffer_.data() + begin_, end_ - begin_}; }
  void sent(std::size_t bytes);

  // Where to write the next packet: SPILLWAY_MAX_PACKET bytes. What waits may move. It grows beyond
  // `most_bytes` only where that packet needs it.
  base::MutableByteView room(std::size_t most_bytes = SIZE_MAX);
  void commit(std::size_t packet_bytes);

 private:
  std::vector<std::uint8_t> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace spillway::net
