// SPDX-License-Identifier: Apache-2.0
#include "collective/exact/coded_message.h"

#include <array>
#include <cstring>
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

unsigned EitherSink::take(const wire::OpenedPacket& packet, base::ByteView bytes) {
  const Form form = packet.header.is_code ? Form::kCode : Form::kPlain;
  if (form_ != Form::kUnknown && form_ != form) {
    return 0;  // a message keeps its form
  }
  const unsigned planes =
      form == Form::kCode ? take_code(packet, bytes) : plain_.take(packet, bytes);
  if (planes > 0) {
    form_ = form;
  }
  return planes;
}

// The first packet tells where the code ends, and so does one that is not full.
unsigned EitherSink::take_code(const wire::OpenedPacket& packet, base::ByteView bytes) {
  const std::uint16_t index = packet.header.stamp.packet;
  const auto [first, room] = layout_.range_of(index, end_ != 0 ? end_ : bytes_);
  if (packet.header.codec != wire::Codec::kBytes || room == 0) {
    return 0;
  }
  std::array<std::uint8_t, SPILLWAY_MAX_PACKET> decrypted;
  const base::ByteView came = wire::trusted_bytes(bytes, packet, decrypted);
  if (came.empty()) {
    return 1;  // cut: it only shows that it was sent
  }
  if (came.size() > room || (index == 0 && came.size() < kCodeStart) ||
      (came.size() < room && !ends_at(first + came.size())) ||
      (index == 0 && !ends_at(base::load_le<std::uint64_t>(came.data())))) {
    return 0;
  }
  if (code_.data == nullptr) {
    code_ = pool_.take(bytes_);
  }
  std::memcpy(code_.data.get() + first, came.data(), came.size());
  return ByteLayout::kPlanes;
}

// False if the code cannot end there.
bool EitherSink::ends_at(std::size_t end) {
  if (end_ == 0 && end > kCodeStart && end <= bytes_) {
    end_ = end;
    packets_ = layout_.packets(end);
  }
  return end == end_;
}

}  // namespace spillway::collective
