// SPDX-License-Identifier: Apache-2.0
//
// Packets on a byte stream, each preceded by its length (docs/wire.md). The writer queues them
// until the stream takes them; the reader finds them again, however the stream was cut.
//
// The reader accepts any bytes. A length of zero or above SPILLWAY_MAX_PACKET ends it for good,
// before it stores anything. A reader holds at most one frame; the writer's owner bounds the
// writer. Pure; one thread.
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
  // Returns the next packet and removes the bytes it used from `bytes`. Empty: all bytes are used
  // up, and a partial frame is kept. The packet lies in `bytes`, or in the reader until next().
  std::optional<base::ByteView> next(base::ByteView& bytes);
  // True if the stream held an invalid frame.
  bool is_broken() const { return is_broken_; }

 private:
  std::optional<std::size_t> frame_bytes(const std::uint8_t* length);
  std::optional<base::ByteView> complete(base::ByteView& bytes);
  bool fill_up_to(std::size_t size, base::ByteView& bytes);

  std::vector<std::uint8_t> begun_;  // a partial frame
  bool is_handed_out_ = false;       // begun_ is complete and was returned
  bool is_broken_ = false;
};

class FrameWriter {
 public:
  // The bytes that wait to leave; sent() says how many left.
  base::ByteView waiting() const { return {buffer_.data() + begin_, end_ - begin_}; }
  void sent(std::size_t bytes);

  // Where to write the next packet: SPILLWAY_MAX_PACKET bytes. May move the waiting bytes. The
  // buffer grows beyond `most_bytes` only if this packet needs it.
  base::MutableByteView room(std::size_t most_bytes = SIZE_MAX);
  void commit(std::size_t packet_bytes);

 private:
  std::vector<std::uint8_t> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace spillway::net
