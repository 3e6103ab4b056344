// SPDX-License-Identifier: Apache-2.0
//
// The part of Protocol Buffers' wire format that Chakra files need (proto3; no groups).
//
// ProtoReader walks the fields of one message and never reads outside its bytes. At the first
// malformed field, next() returns false from then on, and ok() is false. Readers take the fields
// they know and skip the rest. append_*() write fields.
//
//   key = varint(number << 3 | type)   type 0 varint, 1 eight bytes, 2 length and bytes, 5 four
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace spillway::chakra {

enum class WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct ProtoField {
  std::uint32_t number = 0;
  WireType type = WireType::kVarint;
  std::uint64_t value = 0;  // for varint and fixed-size fields
  base::ByteView bytes;

  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

// Reads at most ten bytes. Returns false if the bytes end early or the value exceeds 64 bits.
bool read_varint(base::ByteView& bytes, std::uint64_t& value);

class ProtoReader {
 public:
  explicit ProtoReader(base::ByteView bytes) : bytes_(bytes) {}

  bool next(ProtoField& field);
  bool ok() const { return ok_; }

 private:
  bool fail() {
    ok_ = false;
    return false;
  }

  base::ByteView bytes_;
  bool ok_ = true;
};

constexpr std::uint64_t zigzag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
constexpr std::int64_t unzigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

void append_varint(std::string& to, std::uint64_t value);
void append_varint_field(std::string& to, std::uint32_t number, std::uint64_t value);
void append_bytes_field(std::string& to, std::uint32_t number, std::string_view bytes);

}  // namespace spillway::chakra
