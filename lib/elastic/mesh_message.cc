// SPDX-License-Identifier: Apache-2.0
#include "elastic/mesh_message.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "base/bytes.h"
#include "base/text.h"
#include "net/system_call.h"

namespace spillway::elastic {

namespace {

void put_bytes(comm::Blob& out, base::ByteView bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void put_text(comm::Blob& out, std::string_view text) {
  const std::string cut = base::printable_prefix(text, kMaxMeshText);
  base::append_le(out, static_cast<std::uint16_t>(cut.size()));
  out.insert(out.end(), cut.begin(), cut.end());
}

void put_card(comm::Blob& out, const MemberCard& card) {
  base::append_le(out, card.id);
  put_text(out, card.address.to_string());
  put_text(out, card.name);
}

void put_cards(comm::Blob& out, const std::vector<MemberCard>& cards) {
  const std::size_t count = std::min(cards.size(), kMaxRoster);
  base::append_le(out, static_cast<std::uint16_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    put_card(out, cards[i]);
  }
}

template <std::size_t Size>
void take_bytes(base::ByteReader& reader, std::array<std::uint8_t, Size>& out) {
  const base::ByteView bytes = reader.take(Size);
  std::copy(bytes.begin(), bytes.end(), out.begin());
}

// Made printable: the text reaches terminals, logs and JSON.
std::string take_text(base::ByteReader& reader) {
  const base::ByteView bytes = reader.take(reader.read<std::uint16_t>());
  return base::printable(std::string(bytes.begin(), bytes.end()));
}

base::Status no_mesh_message() {
  return {base::StatusCode::kCorrupt, "that is no message of a job's members"};
}

base::Result<MemberCard> take_card(base::ByteReader& reader) {
  MemberCard card;
  card.id = reader.read<std::uint64_t>();
  const base::Result<net::SocketAddress> address = net::SocketAddress::parse(take_text(reader));
  card.name = take_text(reader);
  if (!reader.ok() || !address.ok() || card.id == 0) {
    return no_mesh_message();
  }
  card.address = *address;
  return card;
}

base::Result<std::vector<MemberCard>> take_cards(base::ByteReader& reader) {
  const std::size_t count = reader.read<std::uint16_t>();
  if (!reader.ok() || count > kMaxRoster) {
    return no_mesh_message();
  }
  std::vector<MemberCard> cards;
  for (std::size_t i = 0; i < count; ++i) {
    const base::Result<MemberCard> card = take_card(reader);
    if (!card.ok()) {
      return card.status();
    }
    cards.push_back(*card);
  }
  return reader.remaining() == 0 ? base::Result<std::vector<MemberCard>>(cards) : no_mesh_message();
}

}  // namespace

comm::Frame encode(const MemberHello& hello) {
  comm::Blob body;
  put_bytes(body, hello.job);
  base::append_le(body, static_cast<std::uint8_t>(hello.standing));
  put_bytes(body, hello.key);
  put_text(body, hello.version);
  put_card(body, hello.card);
  return {comm::FrameType::kMember, std::move(body)};
}

comm::Frame encode_member_proof() {
  return {comm::FrameType::kProof, {}};
}

comm::Frame encode(const MemberWelcome& welcome) {
  comm::Blob body;
  put_bytes(body, welcome.key.bytes);
  put_cards(body, welcome.cards);
  return {comm::FrameType::kWelcomeMember, std::move(body)};
}

comm::Frame encode_roster(const std::vector<MemberCard>& cards) {
  comm::Blob body;
  put_cards(body, cards);
  return {comm::FrameType::kRoster, std::move(body)};
}

comm::Frame encode_text(comm::FrameType type, std::string_view text) {
  const std::string_view cut = text.substr(0, kMaxReplyBytes);
  return {type, comm::Blob(cut.begin(), cut.end())};
}

base::Result<MemberHello> parse_member_hello(base::ByteView body) {
  base::ByteReader reader(body);
  MemberHello hello;
  take_bytes(reader, hello.job);
  const auto standing = reader.read<std::uint8_t>();
  take_bytes(reader, hello.key);
  hello.version = take_text(reader);
  const base::Result<MemberCard> card = take_card(reader);
  if (!card.ok() || standing > static_cast<std::uint8_t>(Standing::kNewcomer) ||
      reader.remaining() != 0) {
    return no_mesh_message();
  }
  hello.standing = static_cast<Standing>(standing);
  hello.card = *card;
  return hello;
}

base::Result<MemberWelcome> parse_member_welcome(base::ByteView body) {
  base::ByteReader reader(body);
  MemberWelcome welcome;
  take_bytes(reader, welcome.key.bytes);
  base::Result<std::vector<MemberCard>> cards = take_cards(reader);
  if (!cards.ok()) {
    return cards.status();
  }
  welcome.cards = std::move(cards).value();
  return welcome;
}

base::Result<std::vector<MemberCard>> parse_roster(base::ByteView body) {
  base::ByteReader reader(body);
  return take_cards(reader);
}

base::Result<membership::Handle> encode_handle(const std::vector<comm::Blob>& cards) {
  membership::Handle handle = {static_cast<std::uint8_t>(cards.size())};
  for (const comm::Blob& card : cards) {
    const std::size_t at = handle.size();
    handle.resize(at + 2);
    base::store_le(handle.data() + at, static_cast<std::uint16_t>(card.size()));
    handle.insert(handle.end(), card.begin(), card.end());
  }
  if (handle.size() > membership::kMaxHandleBytes) {
    return base::Status(base::StatusCode::kLimitExceeded,
                        fmt::format("{} channels take {} bytes of addresses, and {} are the most: "
                                    "use fewer channels",
                                    cards.size(), handle.size(), membership::kMaxHandleBytes));
  }
  return handle;
}

base::Result<std::vector<comm::Blob>> parse_handle(const membership::Handle& handle) {
  base::ByteReader reader(handle);
  std::vector<comm::Blob> cards(reader.read<std::uint8_t>());
  for (comm::Blob& card : cards) {
    const base::ByteView bytes = reader.take(reader.read<std::uint16_t>());
    card.assign(bytes.begin(), bytes.end());
  }
  if (!reader.ok() || reader.remaining() != 0) {
    return base::Status(base::StatusCode::kCorrupt, "a member's handle makes no sense");
  }
  return cards;
}

// ------------------------------------------------------------------ the key of a member

namespace {

constexpr std::string_view kIdLabel = "spillway member v1 id";

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeContext {
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
};
using OpenSslKey = std::unique_ptr<EVP_PKEY, FreeKey>;
using OpenSslContext = std::unique_ptr<EVP_PKEY_CTX, FreeContext>;

OpenSslKey private_half(const comm::SealKey& key) {
  return OpenSslKey(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, key.bytes.data(), key.bytes.size()));
}

base::Status no_x25519() {
  return {base::StatusCode::kUnavailable,
          "OpenSSL has no X25519; Spillway needs OpenSSL 3 with it"};
}

// Fills `shared`. False for a peer's key of small order: OpenSSL refuses its constant result.
bool agree(const MemberKey& own, const MemberPublicKey& peer, base::MutableByteView shared) {
  const OpenSslKey ours = private_half(own.private_key());
  const OpenSslKey theirs(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, peer.data(), peer.size()));
  const OpenSslContext context(ours ? EVP_PKEY_CTX_new(ours.get(), nullptr) : nullptr);
  std::size_t size = shared.size();
  return theirs && context && EVP_PKEY_derive_init(context.get()) == 1 &&
         EVP_PKEY_derive_set_peer(context.get(), theirs.get()) == 1 &&
         EVP_PKEY_derive(context.get(), shared.data(), &size) == 1 && size == shared.size();
}

}  // namespace

base::Result<membership::MemberId> id_of(const MemberPublicKey& key) {
  comm::Blob message(kIdLabel.begin(), kIdLabel.end());
  message.insert(message.end(), key.begin(), key.end());
  const base::Result<comm::Digest> digest = comm::sha256(message);
  if (!digest.ok()) {
    return digest.status();
  }
  return std::max<membership::MemberId>(base::load_le<std::uint64_t>(digest->data()), 1);
}

base::Result<MemberKey> MemberKey::draw() {
  MemberKey drawn;
  if (base::Status status = net::fill_random(drawn.private_.bytes); !status.ok()) {
    return status;
  }
  const OpenSslKey key = private_half(drawn.private_);
  std::size_t size = drawn.public_.size();
  if (!key || EVP_PKEY_get_raw_public_key(key.get(), drawn.public_.data(), &size) != 1 ||
      size != drawn.public_.size()) {
    return no_x25519();
  }
  const base::Result<membership::MemberId> id = id_of(drawn.public_);
  if (!id.ok()) {
    return id.status();
  }
  drawn.id_ = *id;
  return drawn;
}

base::Result<comm::Channel> channel_between(const MemberKey& own, const MemberStream& stream) {
  const comm::SealKey& credential = stream.credential.key();
  wire::Key<2 * comm::SealKey::kBytes> secret;
  const base::MutableByteView bytes(secret.bytes);
  if (!agree(own, stream.peer, bytes.first(comm::SealKey::kBytes))) {
    return base::Status(base::StatusCode::kForeign, "its public key cannot be used");
  }
  std::ranges::copy(credential.bytes, bytes.subspan(comm::SealKey::kBytes).begin());
  comm::Blob salt;
  const auto add = [&salt](const auto& part) { salt.insert(salt.end(), part.begin(), part.end()); };
  add(stream.is_dialler ? stream.own : stream.peers);
  add(stream.is_dialler ? stream.peers : stream.own);
  add(stream.is_dialler ? own.public_key() : stream.peer);
  add(stream.is_dialler ? stream.peer : own.public_key());
  for (const base::ByteView hello : {stream.is_dialler ? stream.own_hello : stream.peers_hello,
                                     stream.is_dialler ? stream.peers_hello : stream.own_hello}) {
    const base::Result<comm::Digest> digest = comm::sha256(hello);
    if (!digest.ok()) {
      return digest.status();
    }
    add(*digest);
  }
  comm::SealKey from_dialler;
  comm::SealKey to_dialler;
  base::Status status =
      wire::derive(secret.bytes, salt, wire::KeyLabel::kMemberFromDialler, from_dialler.bytes);
  if (status.ok()) {
    status = wire::derive(secret.bytes, salt, wire::KeyLabel::kMemberToDialler, to_dialler.bytes);
  }
  if (!status.ok()) {
    return status;
  }
  return stream.is_dialler ? comm::Channel(from_dialler, to_dialler)
                           : comm::Channel(to_dialler, from_dialler);
}

}  // namespace spillway::elastic
