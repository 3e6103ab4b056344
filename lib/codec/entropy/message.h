// SPDX-License-Identifier: Apache-2.0
//
// Blocks as they travel, with a header that names their step and their table. Ends whose tables
// differ then notice it instead of decoding nonsense.
//
//   message   iteration u32, step u16, table hash u32, values u32, block bytes u32, block
//   packet    values u16, table hash u16 (the lower half), block
//
// A block begins with its mode (block_coder.h), so a message's header is 18 + 1 bytes. The hash is
// that of the block's table; 0 if the block has none (raw, zero, constant). A packet decodes alone;
// it is for carriers that lose some packets and deliver the rest.
//
// A block whose table the receiver lacks gives kMismatch: the receiver asks for an inline table.
// All other unreadable data is kMalformed.
//
// Pure functions over the caller's coders and buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/entropy/block_coder.h"

namespace spillway::codec::entropy {

struct MessageHeader {
  std::uint32_t iteration = 0;
  std::uint16_t step = 0;
  std::uint32_t table_hash = 0;
  std::uint32_t values = 0;
  std::uint32_t block_bytes = 0;
  BlockMode mode = BlockMode::kRaw;

  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};

// The header before the block; the block's first byte is the mode.
inline constexpr std::size_t kMessageHeaderBytes = 4 + 2 + 4 + 4 + 4;
inline constexpr std::size_t kPacketHeaderBytes = 2 + 2;
inline constexpr std::size_t kMaxPacketValues = 65'535;
// Room for any one value.
inline constexpr std::size_t kMinPacketBytes = kPacketHeaderBytes + max_block_bytes(1);

constexpr std::size_t max_message_bytes(std::size_t values, unsigned value_bits = 32) {
  return kMessageHeaderBytes + max_block_bytes(values, value_bits);
}

struct MessageId {
  std::uint32_t iteration;
  std::uint16_t step;
};

// Encodes a whole message into `out`, which must have max_message_bytes(); returns its length. If
// `table` is null, the message carries its own table, of `alphabet`.
base::Result<std::size_t> encode_message(BlockEncoder& encoder, const MessageId& id,
                                         std::span<const std::int32_t> values,
                                         const Alphabet& alphabet, const EncodeTable* table,
                                         base::MutableByteView out, Histogram* counted = nullptr);

// Reads only the header; checks that lengths and mode are plausible for the available bytes.
base::Result<MessageHeader> read_message_header(base::ByteView message);

// Decodes a message whose header announces values.size() values. `table` may be null.
base::Status decode_message(BlockDecoder& decoder, base::ByteView message, const DecodeTable* table,
                            std::span<std::int32_t> values, Histogram* counted = nullptr);

// Encodes as many of the first values as fit `out`, which must have kMinPacketBytes.
struct EncodedPacket {
  std::size_t values;
  std::size_t bytes;
};
base::Result<EncodedPacket> encode_packet(BlockEncoder& encoder,
                                          std::span<const std::int32_t> values,
                                          const EncodeTable& table, base::MutableByteView out,
                                          Histogram* counted = nullptr);

// The number of values that a packet announces.
base::Result<std::size_t> packet_values(base::ByteView packet);
base::Status decode_packet(BlockDecoder& decoder, base::ByteView packet, const DecodeTable& table,
                           std::span<std::int32_t> values, Histogram* counted = nullptr);

}  // namespace spillway::codec::entropy
