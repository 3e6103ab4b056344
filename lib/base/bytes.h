// SPDX-License-Identifier: Apache-2.0
//
// Cursors over byte spans, and fixed-size little-endian loads and stores (Spillway's wire order).
//
// A cursor never reads or writes outside its span. The first access that would do so makes the
// cursor bad. Every later access then does nothing and yields zero, so a parser may read all its
// fields and check ok() once. Cursors do not own the bytes and must not be shared.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace spillway::base {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian and packet structs are read in place");

using ByteView = std::span<const std::uint8_t>;
using MutableByteView = std::span<std::uint8_t>;

template <typename T>
concept WireScalar = std::integral<T> || std::floating_point<T>;

template <WireScalar T>
T load_le(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <WireScalar T>
void store_le(void* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

// For messages whose size is unknown until they are written; packets are written in place.
template <WireScalar T>
void append_le(std::vector<std::uint8_t>& to, T value) {
  const std::size_t at = to.size();
  to.resize(at + sizeof(T));
  store_le(to.data() + at, value);
}

// Copies non-overlapping bytes of packets, up to a few hundred. At that size the call to memcpy and
// its dispatch cost more than the copy (on some VMs twice as much).
inline void copy_bytes(const std::uint8_t* from, std::size_t count, std::uint8_t* to) {
  std::size_t i = 0;
  for (; i + 64 <= count; i += 64) {
    std::memcpy(to + i, from + i, 64);  // constant size: four vector moves, no call
  }
  for (; i + 16 <= count; i += 16) {
    std::memcpy(to + i, from + i, 16);
  }
  for (; i < count; ++i) {
    to[i] = from[i];
  }
}

class ByteReader {
 public:
  explicit ByteReader(ByteView bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  std::size_t position() const { return position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }

  template <WireScalar T>
  T read() {
    const ByteView field = take(sizeof(T));
    return field.empty() ? T{} : load_le<T>(field.data());
  }

  // The next `count` bytes, or an empty view if fewer are left.
  ByteView take(std::size_t count) {
    if (!ok_ || count > remaining()) {
      ok_ = false;
      return {};
    }
    const ByteView taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

 private:
  ByteView bytes_;
  std::size_t position_ = 0;
  bool ok_ = true;
};

class ByteWriter {
 public:
  explicit ByteWriter(MutableByteView bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  std::size_t position() const { return position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }

  template <WireScalar T>
  void write(T value) {
    const MutableByteView field = reserve(sizeof(T));
    if (!field.empty()) {
      store_le(field.data(), value);
    }
  }

  void append(ByteView from) {
    const MutableByteView room = reserve(from.size());
    if (!room.empty()) {
      copy_bytes(from.data(), from.size(), room.data());
    }
  }

  // Room for `count` bytes that the caller fills in, or an empty view if there is too little.
  MutableByteView reserve(std::size_t count) {
    if (!ok_ || count > remaining()) {
      ok_ = false;
      return {};
    }
    const MutableByteView reserved = bytes_.subspan(position_, count);
    position_ += count;
    return reserved;
  }

 private:
  MutableByteView bytes_;
  std::size_t position_ = 0;
  bool ok_ = true;
};

}  // namespace spillway::base
