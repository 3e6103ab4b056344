// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/text.h"

namespace spillway::comm {
namespace {

constexpr std::uint32_t kMessageMagic = 0x56525753;  // "SWRV"
constexpr std::uint16_t kProtocol = 2;
constexpr std::int64_t kNanosecondsPerMs = 1'000'000;

base::Status malformed(std::string_view what) {
  return {base::StatusCode::kMalformed, fmt::format("these bytes are no {}", what)};
}

template <typename Bytes>
void put_bytes(Blob& to, const Bytes& bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

std::string_view cut(std::string_view text, std::size_t most) {
  return text.substr(0, most);
}

// Reads a whole array; bytes that are missing stay zero.
template <typename Array>
Array read_array(base::ByteReader& reader) {
  Array array{};
  const base::ByteView bytes = reader.take(array.size());
  std::copy(bytes.begin(), bytes.end(), array.begin());
  return array;
}

bool is_keying(std::uint8_t byte) {
  return byte <= static_cast<std::uint8_t>(Keying::kSecret);
}

std::uint32_t to_ms(base::Duration duration) {
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(duration.count() / kNanosecondsPerMs, 0, 0xffffffff));
}

// Texts come from strangers and reach terminals.
std::string text_of(base::ByteView bytes) {
  return base::printable({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::optional<Blob> read_blob(base::ByteReader& reader) {
  const auto size = reader.read<std::uint32_t>();
  const base::ByteView bytes = reader.take(std::min<std::size_t>(size, kMaxBlobBytes + 1));
  if (!reader.ok() || size > kMaxBlobBytes) {
    return std::nullopt;
  }
  return Blob(bytes.begin(), bytes.end());
}

bool known(std::uint16_t type) {
  const auto lies_between = [type](FrameType first, FrameType last) {
    return type >= static_cast<std::uint16_t>(first) && type <= static_cast<std::uint16_t>(last);
  };
  return lies_between(FrameType::kHello, FrameType::kProof) ||
         lies_between(FrameType::kMember, FrameType::kReply);
}

}  // namespace

Frame encode(const Opening& opening) {
  Blob body = {static_cast<std::uint8_t>(opening.keying)};
  put_bytes(body, opening.random);
  return {FrameType::kOpening, std::move(body)};
}

Frame encode(const Challenge& challenge) {
  Blob body = {static_cast<std::uint8_t>(challenge.keying)};
  put_bytes(body, challenge.random);
  if (challenge.keying != Keying::kNone) {
    put_bytes(body, challenge.proof);
  }
  return {FrameType::kChallenge, std::move(body)};
}

Frame encode(const Proof& proof) {
  return {FrameType::kProof, Blob(proof.begin(), proof.end())};
}

Frame encode(const Hello& hello) {
  Blob body;
  put_bytes(body, hello.nonce);
  put_bytes(body, hello.random);
  base::append_le(body, hello.instance);
  base::append_le(body, hello.world);
  base::append_le(body, hello.rank);
  base::append_le(body, to_ms(hello.patience));
  base::append_le(body, to_ms(hello.left));
  const std::string_view version = cut(hello.version, 255);
  base::append_le(body, static_cast<std::uint8_t>(version.size()));
  put_bytes(body, version);
  base::append_le(body, static_cast<std::uint32_t>(hello.blob.size()));
  put_bytes(body, hello.blob);
  return {FrameType::kHello, std::move(body)};
}

Frame encode(const Refusal& refusal) {
  Blob body = {static_cast<std::uint8_t>(refusal.final ? 1 : 0)};
  put_bytes(body, cut(refusal.reason, kMaxText));
  return {FrameType::kRefusal, std::move(body)};
}

Frame encode_welcome() {
  return {FrameType::kWelcome, {}};
}

Frame encode_failure(const std::string& reason) {
  Blob body;
  put_bytes(body, cut(reason, kMaxText));
  return {FrameType::kFailure, std::move(body)};
}

std::vector<Frame> encode(const Gather& gather) {
  Blob body;
  base::append_le(body, static_cast<std::uint32_t>(gather.blobs.size()));
  put_bytes(body, gather.drawn.bytes);
  for (std::size_t rank = 0; rank < gather.blobs.size(); ++rank) {
    put_bytes(body, gather.randoms[rank]);
    base::append_le(body, static_cast<std::uint32_t>(gather.blobs[rank].size()));
    put_bytes(body, gather.blobs[rank]);
  }
  std::vector<Frame> frames;
  for (std::size_t at = 0; at < body.size(); at += kMaxPartBytes) {
    const base::ByteView part =
        base::ByteView(body).subspan(at, std::min(kMaxPartBytes, body.size() - at));
    frames.push_back({FrameType::kGatherPart, Blob(part.begin(), part.end())});
  }
  frames.back().type = FrameType::kGather;
  return frames;
}

base::Result<Opening> parse_opening(base::ByteView body) {
  base::ByteReader reader(body);
  const auto keying = reader.read<std::uint8_t>();
  const auto random = read_array<Random>(reader);
  if (!reader.ok() || reader.remaining() != 0 || !is_keying(keying)) {
    return malformed("opening of a rendezvous");
  }
  return Opening{static_cast<Keying>(keying), random};
}

base::Result<Challenge> parse_challenge(base::ByteView body) {
  base::ByteReader reader(body);
  const auto keying = reader.read<std::uint8_t>();
  Challenge challenge{
      .keying = static_cast<Keying>(keying), .random = read_array<Random>(reader), .proof = {}};
  if (challenge.keying != Keying::kNone) {
    challenge.proof = read_array<Proof>(reader);
  }
  if (!reader.ok() || reader.remaining() != 0 || !is_keying(keying)) {
    return malformed("challenge of a rendezvous");
  }
  return challenge;
}

base::Result<Proof> parse_proof(base::ByteView body) {
  base::ByteReader reader(body);
  const auto proof = read_array<Proof>(reader);
  return reader.ok() && reader.remaining() == 0 ? base::Result<Proof>(proof) : malformed("proof");
}

base::Result<Hello> parse_hello(base::ByteView body) {
  base::ByteReader reader(body);
  Hello hello;
  hello.nonce = read_array<launch::Nonce>(reader);
  hello.random = read_array<Random>(reader);
  hello.instance = reader.read<std::uint64_t>();
  hello.world = reader.read<std::uint32_t>();
  hello.rank = reader.read<std::uint32_t>();
  hello.patience = base::milliseconds(reader.read<std::uint32_t>());
  hello.left = base::milliseconds(reader.read<std::uint32_t>());
  hello.version = text_of(reader.take(reader.read<std::uint8_t>()));
  std::optional<Blob> blob = read_blob(reader);
  if (!blob || reader.remaining() != 0) {
    return malformed("greeting of a rank");
  }
  hello.blob = std::move(*blob);
  return hello;
}

base::Result<Refusal> parse_refusal(base::ByteView body) {
  if (body.empty() || body.size() > 1 + kMaxText) {
    return malformed("refusal");
  }
  return Refusal{.final = body[0] != 0, .reason = text_of(body.subspan(1))};
}

base::Result<std::string> parse_failure(base::ByteView body) {
  if (body.size() > kMaxText) {
    return malformed("failure");
  }
  return text_of(body);
}

base::Result<Gather> parse_gather(base::ByteView body, std::uint32_t world) {
  base::ByteReader reader(body);
  if (reader.read<std::uint32_t>() != world) {
    return malformed("list of all ranks");
  }
  Gather gather;
  const base::ByteView drawn = reader.take(gather.drawn.bytes.size());
  std::copy(drawn.begin(), drawn.end(), gather.drawn.bytes.begin());
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    gather.randoms.push_back(read_array<Random>(reader));
    std::optional<Blob> blob = read_blob(reader);
    if (!blob) {
      return malformed("list of all ranks");
    }
    gather.blobs.push_back(std::move(*blob));
  }
  return reader.ok() && reader.remaining() == 0 ? base::Result<Gather>(std::move(gather))
                                                : malformed("list of all ranks");
}

std::array<std::uint8_t, kFrameHeaderBytes> header_of(FrameType type, std::size_t body_bytes) {
  std::array<std::uint8_t, kFrameHeaderBytes> header{};
  base::ByteWriter writer(header);
  writer.write(kMessageMagic);
  writer.write(kProtocol);
  writer.write(static_cast<std::uint16_t>(type));
  writer.write(static_cast<std::uint32_t>(body_bytes));
  return header;
}

Blob to_bytes(const Frame& frame) {
  Blob bytes;
  bytes.reserve(kFrameHeaderBytes + frame.body.size());
  put_bytes(bytes, header_of(frame.type, frame.body.size()));
  put_bytes(bytes, frame.body);
  return bytes;
}

base::Result<std::optional<Frame>> FrameReader::next() {
  base::ByteReader reader(bytes_);
  const auto magic = reader.read<std::uint32_t>();
  const auto protocol = reader.read<std::uint16_t>();
  const auto type = reader.read<std::uint16_t>();
  const auto length = reader.read<std::uint32_t>();
  // Reject a wrong magic from its first bytes, without waiting for a whole header.
  const std::size_t seen = std::min(bytes_.size(), sizeof(kMessageMagic));
  if (!std::equal(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(seen), "SWRV")) {
    return malformed("rendezvous of Spillway");
  }
  if (!reader.ok()) {
    return std::optional<Frame>();
  }
  if (magic != kMessageMagic || protocol != kProtocol) {
    return base::Status(base::StatusCode::kForeign,
                        fmt::format("rendezvous protocol {} instead of {}: all ranks must run the "
                                    "same version of Spillway",
                                    protocol, kProtocol));
  }
  if (!known(type) || length > most_body_bytes_) {
    return malformed("rendezvous of Spillway");
  }
  const base::ByteView body = reader.take(length);
  if (!reader.ok()) {
    return std::optional<Frame>();
  }
  Frame frame{static_cast<FrameType>(type), Blob(body.begin(), body.end())};
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(reader.position()));
  return std::optional<Frame>(std::move(frame));
}

}  // namespace spillway::comm
