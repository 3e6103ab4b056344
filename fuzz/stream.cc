// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary bytes on a TCP connection between ranks: a handshake, then frames. The first byte
// chooses which side listens and how the rest is cut. A handshake never succeeds without the key.
// The frames do not depend on the cuts.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fuzzing.h"
#include "net/stream_connection.h"

namespace {

using namespace spillway::net;
using spillway::base::ByteView;
using spillway::fuzzing::require;

using Packets = std::vector<std::vector<std::uint8_t>>;

Packets read(ByteView stream, std::size_t piece, bool& broken) {
  FrameReader reader;
  Packets packets;
  while (!stream.empty()) {
    ByteView bytes = stream.first(std::min(piece, stream.size()));
    stream = stream.subspan(bytes.size());
    while (const auto packet = reader.next(bytes)) {
      require(!packet->empty() && packet->size() <= SPILLWAY_MAX_PACKET);
      packets.emplace_back(packet->begin(), packet->end());
    }
    require(bytes.empty() || reader.is_broken());
  }
  broken = reader.is_broken();
  return packets;
}

void read_frames(ByteView stream, std::size_t piece) {
  bool is_broken = false;
  bool is_broken_whole = false;
  const Packets packets = read(stream, piece, is_broken);
  require(packets == read(stream, std::max<std::size_t>(stream.size(), 1), is_broken_whole));
  require(is_broken == is_broken_whole);
  FrameWriter writer;
  for (const std::vector<std::uint8_t>& packet : packets) {
    std::copy(packet.begin(), packet.end(), writer.room().begin());
    writer.commit(packet.size());
  }
  require(std::equal(writer.waiting().begin(), writer.waiting().end(), stream.begin()));
}

void greet(StreamHandshake handshake, ByteView stream, std::size_t piece) {
  while (!stream.empty() && handshake.wanted() > 0) {
    const std::size_t size = std::min({piece, stream.size(), handshake.wanted()});
    handshake.take(stream.first(size));
    stream = stream.subspan(size);
    handshake.sent(handshake.reply().size());
  }
  require(handshake.state() != StreamHandshake::State::kDone);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const ByteView stream(data + 1, size - 1);
  const std::size_t piece = std::size_t{1} << (data[0] >> 4);
  StreamIdentity own{.rank = 1, .epoch = 1};
  own.key.bytes = {7, 7, 7};
  greet((data[0] & 1) == 0 ? StreamHandshake::answering(own, {1})
                           : StreamHandshake::connecting(own, 0, {2}),
        stream, piece);
  read_frames(stream, piece);
  return 0;
}
