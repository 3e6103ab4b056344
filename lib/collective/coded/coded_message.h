// SPDX-License-Identifier: Apache-2.0
//
// Coded numbers in flight. Only their sender knows how long they are, so they travel as two
// messages: a lead of kLeadBytes, which begins with the header that tells the length
// (codec/entropy/message.h), and the rest, if there is any. Both are sent at once. A receiver
// expects the rest when it has the lead; packets of the rest that come earlier are kept by the
// endpoint, or retransmitted.
//
// Named by piece and phase: the lead has an even number, the rest the odd one after it. One thread;
// bytes stay where they are until both messages have ended.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "codec/entropy/message.h"
#include "collective/byte_payload.h"

namespace spillway::collective {

inline constexpr std::size_t kLeadBytes = 128;

class OutgoingCode {
 public:
  // `bytes`: a whole message. The layout outlives it.
  OutgoingCode(std::vector<std::uint8_t> bytes, const ByteLayout& layout)
      : bytes_(std::move(bytes)), length_(bytes_.size()) {
    bytes_.resize(std::max(bytes_.size(), kLeadBytes));
    lead_.emplace(bytes_.data(), kLeadBytes, layout);
    rest_.emplace(bytes_.data() + kLeadBytes, bytes_.size() - kLeadBytes, layout);
  }
  OutgoingCode(const OutgoingCode&) = delete;
  OutgoingCode& operator=(const OutgoingCode&) = delete;

  base::ByteView message() const { return base::ByteView(bytes_).first(length_); }
  std::size_t rest_bytes() const { return bytes_.size() - kLeadBytes; }
  ByteSource& lead() { return *lead_; }
  ByteSource& rest() { return *rest_; }

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t length_;
  std::optional<ByteSource> lead_;
  std::optional<ByteSource> rest_;
};

class IncomingCode {
 public:
  explicit IncomingCode(const ByteLayout& layout)
      : layout_(layout), lead_(first_.data(), first_.size(), layout) {}
  IncomingCode(const IncomingCode&) = delete;
  IncomingCode& operator=(const IncomingCode&) = delete;

  ByteSink& lead() { return lead_; }

  // Valid once the lead is there: the length of the whole message, if it is at most `most`.
  std::optional<std::size_t> length(std::size_t most) const {
    constexpr std::size_t kBlockBytesAt = codec::entropy::kMessageHeaderBytes - 4;
    const std::size_t length = codec::entropy::kMessageHeaderBytes +
                               base::load_le<std::uint32_t>(first_.data() + kBlockBytesAt);
    return length <= most ? std::optional(length) : std::nullopt;
  }
  // Makes room for so many bytes, the lead included. Returns how many are left for rest().
  std::size_t begin_rest(std::size_t length) {
    bytes_.assign(first_.begin(),
                  first_.begin() + static_cast<std::ptrdiff_t>(std::min(length, kLeadBytes)));
    bytes_.resize(length);
    const std::size_t left = length - std::min(length, kLeadBytes);
    rest_.emplace(bytes_.data() + (length - left), left, layout_);
    return left;
  }
  ByteSink& rest() { return *rest_; }

  // Valid once all of it is there.
  base::ByteView bytes() const { return bytes_; }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  const ByteLayout& layout_;
  std::array<std::uint8_t, kLeadBytes> first_{};
  std::vector<std::uint8_t> bytes_;
  ByteSink lead_;
  std::optional<ByteSink> rest_;
};

}  // namespace spillway::collective
