// SPDX-License-Identifier: Apache-2.0
#include "observe/chakra/proto.h"

namespace spillway::chakra {
namespace {

constexpr std::uint64_t kMaxFieldNumber = (1U << 29) - 1;

bool take(base::ByteView& bytes, std::uint64_t count, base::ByteView& taken) {
  if (count > bytes.size()) {
    return false;
  }
  taken = bytes.first(static_cast<std::size_t>(count));
  bytes = bytes.subspan(static_cast<std::size_t>(count));
  return true;
}

}  // namespace

bool read_varint(base::ByteView& bytes, std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 70 && !bytes.empty(); shift += 7) {
    const std::uint8_t byte = bytes.front();
    bytes = bytes.subspan(1);
    if (shift == 63 && byte > 1) {
      return false;
    }
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) {
      return true;
    }
  }
  return false;
}

bool ProtoReader::next(ProtoField& field) {
  if (!ok_ || bytes_.empty()) {
    return false;
  }
  std::uint64_t key = 0;
  if (!read_varint(bytes_, key) || key >> 3 == 0 || key >> 3 > kMaxFieldNumber) {
    return fail();
  }
  field.number = static_cast<std::uint32_t>(key >> 3);
  field.type = static_cast<WireType>(key & 7);
  field.value = 0;
  field.bytes = {};
  switch (field.type) {
    case WireType::kVarint:
      return read_varint(bytes_, field.value) || fail();
    case WireType::kFixed64:
      if (!take(bytes_, 8, field.bytes)) {
        return fail();
      }
      field.value = base::load_le<std::uint64_t>(field.bytes.data());
      return true;
    case WireType::kBytes: {
      std::uint64_t size = 0;
      return (read_varint(bytes_, size) && take(bytes_, size, field.bytes)) || fail();
    }
    case WireType::kFixed32:
      if (!take(bytes_, 4, field.bytes)) {
        return fail();
      }
      field.value = base::load_le<std::uint32_t>(field.bytes.data());
      return true;
  }
  return fail();
}

void append_varint(std::string& to, std::uint64_t value) {
  while (value >= 0x80) {
    to.push_back(static_cast<char>((value & 0x7F) | 0x80));
    value >>= 7;
  }
  to.push_back(static_cast<char>(value));
}

void append_varint_field(std::string& to, std::uint32_t number, std::uint64_t value) {
  append_varint(to, std::uint64_t{number} << 3 | static_cast<std::uint64_t>(WireType::kVarint));
  append_varint(to, value);
}

void append_bytes_field(std::string& to, std::uint32_t number, std::string_view bytes) {
  append_varint(to, std::uint64_t{number} << 3 | static_cast<std::uint64_t>(WireType::kBytes));
  append_varint(to, bytes.size());
  to.append(bytes);
}

}  // namespace spillway::chakra
