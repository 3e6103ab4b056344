// SPDX-License-Identifier: Apache-2.0
#include "elastic/mesh_message.h"

#include <algorithm>

#include "base/printable.h"

namespace spillway::runtime {
namespace {

void put_bytes(Blob& out, base::ByteView bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void put_text(Blob& out, std::string_view text) {
  const std::string cut = base::printable_prefix(text, kMaxMeshText);
  base::append_le(out, static_cast<std::uint16_t>(cut.size()));
  out.insert(out.end(), cut.begin(), cut.end());
}

void put_card(Blob& out, const MemberCard& card) {
  base::append_le(out, card.id);
  put_text(out, card.address.to_string());
  put_text(out, card.name);
}

void put_cards(Blob& out, const std::vector<MemberCard>& cards) {
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

Frame encode(const MemberHello& hello) {
  Blob body;
  put_bytes(body, hello.job);
  base::append_le(body, static_cast<std::uint8_t>(hello.standing));
  put_bytes(body, hello.key);
  put_text(body, hello.version);
  put_card(body, hello.card);
  return {FrameType::kMember, std::move(body)};
}

Frame encode_member_proof() {
  return {FrameType::kProof, {}};
}

Frame encode(const MemberWelcome& welcome) {
  Blob body;
  put_bytes(body, welcome.key.bytes);
  put_cards(body, welcome.cards);
  return {FrameType::kWelcomeMember, std::move(body)};
}

Frame encode_roster(const std::vector<MemberCard>& cards) {
  Blob body;
  put_cards(body, cards);
  return {FrameType::kRoster, std::move(body)};
}

Frame encode_text(FrameType type, std::string_view text) {
  const std::string_view cut = text.substr(0, kMaxReplyBytes);
  return {type, Blob(cut.begin(), cut.end())};
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

}  // namespace spillway::runtime
