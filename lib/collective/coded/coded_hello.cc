// SPDX-License-Identifier: Apache-2.0
#include "collective/coded/coded_hello.h"

#include <algorithm>
#include <cmath>

#include "codec/shared_scale.h"

namespace spillway::collective {
namespace {

TableSource source_of(std::uint32_t ours, std::uint32_t theirs) {
  if (ours != theirs) {
    return TableSource::kInline;
  }
  return ours == 0 ? TableSource::kParametric : TableSource::kLast;
}

}  // namespace

HelloBytes write_hello(const CodedHello& hello) {
  HelloBytes bytes{};
  base::ByteWriter writer(bytes);
  writer.write(hello.largest);
  writer.write(hello.mean);
  writer.write(hello.shared);
  writer.write(hello.sent);
  writer.write(hello.received);
  return bytes;
}

CodedHello read_hello(const HelloBytes& bytes) {
  base::ByteReader reader(bytes);
  CodedHello hello;
  hello.largest = std::fabs(reader.read<float>());
  hello.mean = reader.read<float>();
  hello.shared = reader.read<std::uint32_t>();
  hello.sent = reader.read<std::uint32_t>();
  hello.received = reader.read<std::uint32_t>();
  return hello;
}

CodedAgreement agree_on_codes(std::span<const CodedHello> to, std::span<const CodedHello> from,
                              const TensorCodes* last, bool predicts_scale) {
  CodedAgreement agreement;
  const std::uint32_t shared = from.empty() ? 0 : from[0].shared;
  bool is_shared = true;
  for (std::size_t rank = 0; rank < from.size(); ++rank) {
    agreement.largest = codec::larger_scale(agreement.largest, from[rank].largest);
    is_shared = is_shared && from[rank].shared == shared;
    agreement.sent.push_back(source_of(to[rank].sent, from[rank].received));
    agreement.received.push_back(source_of(to[rank].received, from[rank].sent));
  }
  agreement.sums = source_of(shared, is_shared ? shared : ~shared);
  const float predicted = agreement.sums == TableSource::kLast && last != nullptr && predicts_scale
                              ? codec::predict_scale(last->largest, codec::kScaleHeadroom)
                              : 0.0F;
  agreement.is_predicted = predicted > 0.0F && !std::isnan(agreement.largest);
  agreement.scale = agreement.is_predicted ? predicted : agreement.largest;
  return agreement;
}

std::uint32_t parametric_scale(std::span<const float> means, double unit) {
  double squares = 0.0;
  for (const float mean : means) {
    const double scaled = static_cast<double>(mean) / unit * 256.0;
    // Squares of whole numbers add up exactly: the same everywhere.
    const double whole = scaled >= 1.0 ? std::floor(std::min(scaled, 0x1p20)) : 1.0;
    const double square = whole * whole;
    squares += square;
  }
  return static_cast<std::uint32_t>(std::min(std::sqrt(squares), 0x1p31));
}

}  // namespace spillway::collective
