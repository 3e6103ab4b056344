// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/reference_codec.h"

#include <string>
#include <utility>

#include "codec/reference/eden.h"
#include "codec/reference/half_precision.h"
#include "codec/reference/int8_blocks.h"
#include "codec/reference/top_k.h"

namespace spillway::codec::reference {
namespace {

base::Status wrong_length(std::string_view codec, std::size_t count, std::size_t expected,
                          std::size_t actual) {
  return {base::StatusCode::kMalformed, std::string(codec) + " encodes " + std::to_string(count) +
                                            " coordinates in " + std::to_string(expected) +
                                            " bytes, not in " + std::to_string(actual)};
}

std::string known_names() {
  std::string names = "drive";
  for (const auto& codec : all_reference_codecs()) {
    names += ", ";
    names += codec->name();
  }
  return names;
}

}  // namespace

double ReferenceCodec::bits_per_coordinate(std::size_t count) const {
  if (count == 0) {
    return 0.0;
  }
  return 8.0 * static_cast<double>(encoded_bytes(count)) / static_cast<double>(count);
}

std::vector<std::uint8_t> ReferenceCodec::encode(std::span<const float> tensor,
                                                 std::uint64_t seed) const {
  SPILLWAY_CHECK(tensor.size() <= kMaxTensorLength);
  std::vector<std::uint8_t> bytes(encoded_bytes(tensor.size()));
  encode_into(tensor, seed, bytes);
  return bytes;
}

base::Status ReferenceCodec::decode(base::ByteView bytes, std::size_t count, std::uint64_t seed,
                                    std::span<float> out) const {
  if (out.size() != count) {
    return base::invalid_argument("the output has room for " + std::to_string(out.size()) +
                                  " coordinates, not for " + std::to_string(count));
  }
  if (count > kMaxTensorLength) {
    return {base::StatusCode::kLimitExceeded,
            "a tensor has at most " + std::to_string(kMaxTensorLength) + " coordinates"};
  }
  if (bytes.size() != encoded_bytes(count)) {
    return wrong_length(name(), count, encoded_bytes(count), bytes.size());
  }
  return decode_from(bytes, seed, out);
}

std::vector<std::unique_ptr<ReferenceCodec>> all_reference_codecs() {
  std::vector<std::unique_ptr<ReferenceCodec>> codecs;
  for (unsigned bits = 1; bits <= kMaxQuantiserBits; ++bits) {
    codecs.push_back(std::make_unique<EdenCodec>(bits));
  }
  codecs.push_back(std::make_unique<Bf16Codec>());
  codecs.push_back(std::make_unique<Fp16Codec>());
  codecs.push_back(std::make_unique<Int8BlockCodec>());
  codecs.push_back(std::make_unique<TopKCodec>());
  return codecs;
}

base::Result<std::unique_ptr<ReferenceCodec>> make_reference_codec(std::string_view name) {
  const std::string_view wanted = name == "drive" ? "eden-1" : name;
  for (auto& codec : all_reference_codecs()) {
    if (codec->name() == wanted) {
      return std::move(codec);
    }
  }
  return base::invalid_argument("no reference codec is called \"" + std::string(name) +
                                "\"; there are " + known_names());
}

}  // namespace spillway::codec::reference
