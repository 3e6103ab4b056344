// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary bytes at the rendezvous. The first byte chooses who listens (host or joiner, with a
// secret, an id or nothing) and how the rest is cut: frames, handshakes, sealed and plain messages.
// Every parser gives a value or an error, and an accepted value re-encodes to an equal one. Ids,
// cards, node lists and messages between members are parsed from the same bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/preparation.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/message.h"
#include "comm/rendezvous/rendezvous.h"
#include "elastic/job_query.h"
#include "elastic/mesh_message.h"
#include "fuzzing.h"
#include "launch/launch.h"

namespace {

namespace elastic = spillway::elastic;
namespace launch = spillway::launch;
using namespace spillway::comm;
using spillway::base::ByteView;
using spillway::fuzzing::require;

constexpr std::uint32_t kWorld = 3;
// Fixed, so that seeds can hold valid proofs.
constexpr Random kJoinerRandom = {1};
constexpr Random kHostRandom = {2};

const Credential& credential_of(std::uint8_t choice) {
  static const std::array<Credential, 3> credentials = {
      Credential(), Credential::of_id({7}).value(), Credential::of_secret(Blob(16, 's')).value()};
  return credentials[choice % credentials.size()];
}

void read_id(ByteView bytes) {
  UniqueId id;
  std::copy_n(bytes.begin(), std::min(bytes.size(), id.bytes.size()), id.bytes.begin());
  const auto content = parse_unique_id(id);
  if (content.ok()) {
    require(encode_unique_id(*content) == id);
  }
}

void read_card(const Blob& bytes) {
  const auto card = parse_rank_card(bytes);
  if (card.ok()) {
    const auto again = parse_rank_card(to_blob(*card));
    require(again.ok() && again->data == card->data && again->mtu == card->mtu);
  }
}

void read_hello(ByteView body) {
  const auto hello = parse_hello(body);
  if (hello.ok()) {
    const auto again = parse_hello(encode(*hello).body);
    require(again.ok() && again->rank == hello->rank && again->random == hello->random &&
            again->blob == hello->blob && again->left == hello->left);
  }
}

void read_gather(ByteView body, std::uint32_t world) {
  const auto gather = parse_gather(body, world);
  if (gather.ok()) {
    require(gather->blobs.size() == world && gather->randoms.size() == world);
    require(result_of(credential_of(0), *gather).ok());
    Blob again;
    for (const Frame& part : encode(*gather)) {
      again.insert(again.end(), part.body.begin(), part.body.end());
    }
    require(std::equal(again.begin(), again.end(), body.begin(), body.end()) || world == 0);
  }
}

// Parses `body` as each message that members of a job exchange.
void read_mesh(ByteView body) {
  const auto hello = elastic::parse_member_hello(body);
  if (hello.ok()) {
    const auto again = elastic::parse_member_hello(encode(*hello).body);
    require(again.ok() && again->card == hello->card && again->job == hello->job);
  }
  const auto welcome = elastic::parse_member_welcome(body);
  if (welcome.ok()) {
    const auto again = elastic::parse_member_welcome(encode(*welcome).body);
    require(again.ok() && again->cards == welcome->cards && again->key == welcome->key);
  }
  const auto roster = elastic::parse_roster(body);
  if (roster.ok()) {
    require(elastic::parse_roster(elastic::encode_roster(*roster).body).value() == *roster);
  }
  const auto cards = elastic::parse_handle(Blob(body.begin(), body.end()));
  if (cards.ok()) {
    require(!elastic::encode_handle(*cards).ok() ||
            elastic::parse_handle(*elastic::encode_handle(*cards)).value() == *cards);
  }
  const auto ticket = elastic::parse_ticket(std::string(body.begin(), body.end()));
  if (ticket.ok()) {
    require(elastic::parse_ticket(ticket->to_string()).value().job == ticket->job);
  }
}

void read_body(ByteView body) {
  read_hello(body);
  read_mesh(body);
  read_gather(body, kWorld);
  static_cast<void>(parse_refusal(body));
  static_cast<void>(parse_failure(body));
  static_cast<void>(parse_opening(body));
  static_cast<void>(parse_challenge(body));
  static_cast<void>(parse_proof(body));
}

// One side of a connection receives `stream` in pieces and handles each frame as a host or joiner
// would.
template <typename Handshake>
void listen(Handshake handshake, ByteView stream, std::size_t piece) {
  FrameReader reader(kMaxHandshakeBytes);
  Channel channel;
  while (!stream.empty()) {
    const std::size_t size = std::min(piece, stream.size());
    reader.append(stream.first(size));
    stream = stream.subspan(size);
    auto frame = reader.next();
    for (; frame.ok() && frame->has_value(); frame = reader.next()) {
      if (!handshake.is_done()) {
        if (!handshake.take(**frame).ok()) {
          require(!handshake.is_done());
          return;
        }
        channel = handshake.channel();
        reader.set_most_body_bytes(handshake.is_done() ? kMaxAnswerBytes : kMaxHandshakeBytes);
        continue;
      }
      const auto opened = channel.unpack(**frame);
      if (!opened.ok()) {
        return;
      }
      read_body(opened->body);
    }
    if (!frame.ok()) {
      return;
    }
  }
}

// One side opens what the other sealed, but not a damaged copy.
void seal_and_open(const Blob& bytes) {
  JoinerHandshake joiner(credential_of(2), kJoinerRandom);
  HostHandshake host(credential_of(2), kHostRandom);
  const auto challenge = host.take(joiner.opening()).value();
  require(!host.take(*joiner.take(*challenge).value()).value().has_value() && host.is_done());
  Channel from = joiner.channel();
  Channel to = host.channel();
  FrameReader reader(bytes.size() + kSealBytes);
  reader.append(from.pack({FrameType::kHello, bytes}).value());
  Frame frame = reader.next().value().value();
  Channel other = to;
  require(to.unpack(frame)->body == bytes);
  frame.body[bytes.empty() ? 0 : bytes[0] % frame.body.size()] ^= 1;
  require(!other.unpack(frame).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Blob bytes(data, data + size);
  read_id(bytes);
  read_card(bytes);
  static_cast<void>(launch::expand_node_list(std::string(bytes.begin(), bytes.end())));
  read_body(bytes);
  seal_and_open(bytes);
  if (size > 0) {
    const std::size_t piece = std::size_t{1} << (data[0] >> 4);
    const ByteView stream = ByteView(bytes).subspan(1);
    if ((data[0] & 8) == 0) {
      listen(HostHandshake(credential_of(data[0] & 3), kHostRandom), stream, piece);
    } else {
      listen(JoinerHandshake(credential_of(data[0] & 3), kJoinerRandom), stream, piece);
    }
  }
  return 0;
}
