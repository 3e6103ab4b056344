// SPDX-License-Identifier: Apache-2.0
#include "collective/exact/coded_message.h"

#include <utility>

namespace spillway::collective {

std::optional<codec::entropy::FloatWidth> float_width(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return codec::entropy::FloatWidth::kFour;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return codec::entropy::FloatWidth::kTwo;
    case DataType::kFloat64:
    case DataType::kInt32:
    case DataType::kInt64:
    case DataType::kInt8:
    case DataType::kUint8:
      return std::nullopt;
  }
  return std::nullopt;
}

SpanCodes::~SpanCodes() {
  for (auto& [key, code] : codes_) {
    pool_.give_back(std::move(code.buffer));
  }
}

SpanCode& SpanCodes::take(const Span& span) {
  const auto [found, is_new] = codes_.try_emplace(key_of(span));
  SpanCode& code = found->second;
  if (is_new) {
    code.buffer = pool_.take(most_code_bytes(span.bytes));
  }
  ++code.uses;
  return code;
}

void SpanCodes::give_back(const Span& span) {
  const auto found = codes_.find(key_of(span));
  if (--found->second.uses == 0) {
    pool_.give_back(std::move(found->second.buffer));
    codes_.erase(found);
  }
}

// Code has no more packets than the plain message, and a message keeps its form and length.
bool EitherSink::begin_code(std::uint32_t packets) {
  if (form_ == Form::kUnknown && packets <= layout_.packets(bytes_)) {
    form_ = Form::kCode;
    packets_ = packets;
    code_ = pool_.take(std::size_t{packets} * layout_.bytes_per_packet);
  }
  return form_ == Form::kCode && packets == packets_;
}

unsigned EitherSink::take(const wire::OpenedPacket& packet, base::ByteView bytes) {
  const std::uint32_t packets = packet.header.row;
  if (packets == 0) {
    const unsigned planes = form_ == Form::kCode ? 0 : plain_.take(packet, bytes);
    form_ = planes > 0 ? Form::kPlain : form_;
    return planes;
  }
  const std::uint32_t index = packet.header.stamp.packet;
  const std::size_t length = packet.header.plane_bytes();
  const bool is_last = index + 1 == packets;
  if (packet.header.codec != wire::Codec::kBytes || packet.header.planes != ByteLayout::kPlanes ||
      index >= packets || length > layout_.bytes_per_packet ||
      (!is_last && length != layout_.bytes_per_packet) || !begin_code(packets)) {
    return 0;
  }
  const std::size_t first = std::size_t{index} * layout_.bytes_per_packet;
  const wire::TrustedPlanes trusted =
      wire::copy_trusted_planes(bytes, packet, {code_.data.get() + first, length});
  if (is_last) {
    code_bytes_ = first + length;
  }
  return trusted.bytes == length ? ByteLayout::kPlanes : 1;
}

}  // namespace spillway::collective
