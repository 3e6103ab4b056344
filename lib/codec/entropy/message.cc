// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy/message.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::codec::entropy {
namespace {

base::Status bad_message(const char* what) {
  return {base::StatusCode::kMalformed, fmt::format("a coded message {}: request it again", what)};
}

base::Status wrong_table(std::uint32_t theirs, std::uint32_t ours) {
  return {base::StatusCode::kMismatch,
          fmt::format("a message was coded with table {:08x}, but this rank has table {:08x}: "
                      "request a message with an inline table",
                      theirs, ours)};
}

base::Status wrong_count(std::size_t said, std::size_t room) {
  return base::invalid_argument(
      fmt::format("a message has {} values, but the output has room for {}", said, room));
}

}  // namespace

base::Result<std::size_t> encode_message(BlockEncoder& encoder, const MessageId& id,
                                         std::span<const std::int32_t> values,
                                         const Alphabet& alphabet, const EncodeTable* table,
                                         base::MutableByteView out, Histogram* counted) {
  if (out.size() < max_message_bytes(values.size())) {
    return base::invalid_argument(
        fmt::format("a message of {} values may take {} bytes, but the buffer has {}",
                    values.size(), max_message_bytes(values.size()), out.size()));
  }
  const base::MutableByteView body = out.subspan(kMessageHeaderBytes);
  const base::Result<EncodedBlock> block =
      table != nullptr ? encoder.encode(values, *table, body, counted)
                       : encoder.encode_inline(values, alphabet, body, counted);
  if (!block.ok()) {
    return block.status();
  }
  base::ByteWriter writer(out);
  writer.write(id.iteration);
  writer.write(id.step);
  writer.write(block->table_hash);
  writer.write(static_cast<std::uint32_t>(values.size()));
  writer.write(static_cast<std::uint32_t>(block->bytes));
  return kMessageHeaderBytes + block->bytes;
}

base::Result<MessageHeader> read_message_header(base::ByteView message) {
  base::ByteReader reader(message);
  MessageHeader header;
  header.iteration = reader.read<std::uint32_t>();
  header.step = reader.read<std::uint16_t>();
  header.table_hash = reader.read<std::uint32_t>();
  header.values = reader.read<std::uint32_t>();
  header.block_bytes = reader.read<std::uint32_t>();
  if (!reader.ok() || header.block_bytes == 0 || header.block_bytes != reader.remaining()) {
    return bad_message("is not as long as its header says");
  }
  const auto mode = reader.read<std::uint8_t>();
  if (mode > static_cast<std::uint8_t>(BlockMode::kConstant) || header.values > kMaxBlockValues) {
    return bad_message("has an unknown mode or too many values");
  }
  header.mode = static_cast<BlockMode>(mode);
  return header;
}

base::Status decode_message(BlockDecoder& decoder, base::ByteView message, const DecodeTable* table,
                            std::span<std::int32_t> values, Histogram* counted) {
  const base::Result<MessageHeader> header = read_message_header(message);
  if (!header.ok()) {
    return header.status();
  }
  if (header->values != values.size()) {
    return wrong_count(header->values, values.size());
  }
  const std::uint32_t ours = table != nullptr ? table->probabilities().hash() : 0;
  if (header->mode == BlockMode::kKnownTable && header->table_hash != ours) {
    return wrong_table(header->table_hash, ours);
  }
  return decoder.decode(message.subspan(kMessageHeaderBytes), table, values, counted);
}

base::Result<EncodedPacket> encode_packet(BlockEncoder& encoder,
                                          std::span<const std::int32_t> values,
                                          const EncodeTable& table, base::MutableByteView out,
                                          Histogram* counted) {
  if (out.size() < kMinPacketBytes) {
    return base::invalid_argument(fmt::format(
        "a packet needs a buffer of at least {} bytes, not {}", kMinPacketBytes, out.size()));
  }
  const base::Result<EncodedBlock> block = encoder.encode_prefix(
      values, kMaxPacketValues, table, out.subspan(kPacketHeaderBytes), counted);
  if (!block.ok()) {
    return block.status();
  }
  base::ByteWriter writer(out);
  writer.write(static_cast<std::uint16_t>(block->values));
  writer.write(static_cast<std::uint16_t>(block->table_hash));
  return EncodedPacket{block->values, kPacketHeaderBytes + block->bytes};
}

base::Result<std::size_t> packet_values(base::ByteView packet) {
  if (packet.size() <= kPacketHeaderBytes) {
    return bad_message("is shorter than its header");
  }
  return std::size_t{base::load_le<std::uint16_t>(packet.data())};
}

base::Status decode_packet(BlockDecoder& decoder, base::ByteView packet, const DecodeTable& table,
                           std::span<std::int32_t> values, Histogram* counted) {
  const base::Result<std::size_t> count = packet_values(packet);
  if (!count.ok()) {
    return count.status();
  }
  if (*count != values.size()) {
    return wrong_count(*count, values.size());
  }
  const auto theirs = base::load_le<std::uint16_t>(packet.data() + 2);
  const auto ours = static_cast<std::uint16_t>(table.probabilities().hash());
  const base::ByteView block = packet.subspan(kPacketHeaderBytes);
  if (block[0] == static_cast<std::uint8_t>(BlockMode::kKnownTable) && theirs != ours) {
    return wrong_table(theirs, ours);
  }
  return decoder.decode(block, &table, values, counted);
}

}  // namespace spillway::codec::entropy
