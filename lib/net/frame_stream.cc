// SPDX-License-Identifier: Apache-2.0
#include "net/frame_stream.h"

#include <algorithm>
#include <cstring>

namespace spillway::net {

// Size of a whole frame, from its length field. Empty if no frame has such a length.
std::optional<std::size_t> FrameReader::frame_bytes(const std::uint8_t* length) {
  const auto packet = base::load_le<std::uint32_t>(length);
  if (packet == 0 || packet > SPILLWAY_MAX_PACKET) {
    is_broken_ = true;
    return std::nullopt;
  }
  return kFrameLengthBytes + packet;
}

std::optional<base::ByteView> FrameReader::next(base::ByteView& bytes) {
  if (is_handed_out_) {
    is_handed_out_ = false;
    begun_.clear();
  }
  if (is_broken_ || bytes.empty()) {
    return std::nullopt;
  }
  if (begun_.empty() && bytes.size() >= kFrameLengthBytes) {
    const std::optional<std::size_t> size = frame_bytes(bytes.data());
    if (!size) {
      return std::nullopt;
    }
    if (*size <= bytes.size()) {
      const base::ByteView packet = bytes.first(*size).subspan(kFrameLengthBytes);
      bytes = bytes.subspan(*size);
      return packet;
    }
  }
  return complete(bytes);
}

std::optional<base::ByteView> FrameReader::complete(base::ByteView& bytes) {
  begun_.reserve(kMaxFrameBytes);
  if (!fill_up_to(kFrameLengthBytes, bytes)) {
    return std::nullopt;
  }
  const std::optional<std::size_t> size = frame_bytes(begun_.data());
  if (!size || !fill_up_to(*size, bytes)) {
    return std::nullopt;
  }
  is_handed_out_ = true;
  return base::ByteView(begun_).subspan(kFrameLengthBytes);
}

bool FrameReader::fill_up_to(std::size_t size, base::ByteView& bytes) {
  const std::size_t wanted = size - std::min(size, begun_.size());
  const base::ByteView taken = bytes.first(std::min(wanted, bytes.size()));
  begun_.insert(begun_.end(), taken.begin(), taken.end());
  bytes = bytes.subspan(taken.size());
  return begun_.size() >= size;
}

void FrameWriter::sent(std::size_t bytes) {
  begin_ += bytes;
  if (begin_ == end_) {
    begin_ = end_ = 0;
  }
}

base::MutableByteView FrameWriter::room(std::size_t most_bytes) {
  if (end_ + kMaxFrameBytes > buffer_.size() && begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ + kMaxFrameBytes > buffer_.size()) {
    const std::size_t size =
        std::max(std::min(buffer_.size() * 2, most_bytes), end_ + kMaxFrameBytes);
    buffer_.reserve(size);  // without this, resize() would double the capacity
    buffer_.resize(size);
  }
  return {buffer_.data() + end_ + kFrameLengthBytes, SPILLWAY_MAX_PACKET};
}

void FrameWriter::commit(std::size_t packet_bytes) {
  base::store_le(buffer_.data() + end_, static_cast<std::uint32_t>(packet_bytes));
  end_ += kFrameLengthBytes + packet_bytes;
}

}  // namespace spillway::net
