// SPDX-License-Identifier: Apache-2.0
//
// Messages between members of a job. The input is a list of messages: the sender (one byte), the
// length (two), the bytes. A rank, a standby and a newcomer receive all of them while time passes.
//
// No member may crash. A message that parses must re-encode to the same bytes. Decisions have
// increasing epochs, and nothing follows a dismissal.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "elastic/membership/member.h"
#include "fuzzing.h"

namespace {

using namespace spillway::membership;
using spillway::base::ByteReader;
using spillway::base::ByteView;
using spillway::base::Instant;
using spillway::base::milliseconds;
using spillway::fuzzing::require;

constexpr MemberId kPeers = 6;  // ids 1 to 6: three ranks, two standbys, a stranger

class Listener {
 public:
  Listener(MemberId self, bool is_newcomer) : self_(self) {
    MemberConfig config;
    config.size.may_shrink = self % 2 == 0;
    config.quorum_limit = milliseconds(500);
    const View view{.epoch = 3, .ranks = {1, 2, 3}, .standbys = {4, 5}};
    member_ = std::make_unique<Member>(
        config, self, is_newcomer ? std::nullopt : std::optional(view), Handle{1}, now_);
    for (MemberId peer = 1; peer <= kPeers; ++peer) {
      member_->on_connected(peer, now_);
    }
    drain();
  }

  void hear(std::uint8_t from, ByteView message) {
    // The upper bits of the sender's byte choose another event instead of the message.
    const MemberId peer = from % (kPeers + 1);
    switch (from >> 5) {
      case 1:
        member_->on_lost(peer, static_cast<LossCause>(from % 3), now_);
        break;
      case 2:
        member_->on_connected(peer, now_);
        break;
      case 3:
        member_->on_parked(member_->view().epoch, {.has_state = true, .step = from}, Handle{from},
                           now_);
        break;
      case 4:
        member_->on_step(from, milliseconds(from), now_);
        break;
      case 5:
        static_cast<void>(member_->ask(
            {.kind = RequestKind(from % 4), .ranks = {from % 4U}, .places = from % 3U}, now_));
        break;
      default:
        member_->on_message(peer, message, now_);
        break;
    }
    drain();
    now_ = now_ + milliseconds(20);
    member_->on_timeout(now_);
    drain();
  }

 private:
  void drain() {
    while (const auto out = member_->poll_transmit()) {
      require(out->to != self_ && parse_message(out->message).has_value());
    }
    while (const auto event = member_->poll_event()) {
      require(!is_over_);
      is_over_ = std::holds_alternative<Dismissed>(*event);
      if (const auto* decided = std::get_if<Decided>(&*event)) {
        require(decided->decision.view.epoch > epoch_);
        epoch_ = decided->decision.view.epoch;
      }
    }
    static_cast<void>(member_->waits_for(now_));
  }

  MemberId self_;
  Instant now_{milliseconds(1)};
  std::unique_ptr<Member> member_;
  std::uint32_t epoch_ = 0;
  bool is_over_ = false;
};

void read_message(ByteView bytes) {
  const auto message = parse_message(bytes);
  if (message) {
    const std::vector<std::uint8_t> again = encode(*message);
    require(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteView bytes(data, size);
  read_message(bytes);
  std::array<Listener, 3> listeners = {Listener(2, false), Listener(4, false), Listener(6, true)};
  ByteReader reader(bytes);
  while (reader.remaining() >= 3) {
    const auto from = reader.read<std::uint8_t>();
    const std::size_t length =
        std::min<std::size_t>(reader.read<std::uint16_t>(), reader.remaining());
    const ByteView message = reader.take(length);
    read_message(message);
    for (Listener& listener : listeners) {
      listener.hear(from, message);
    }
  }
  return 0;
}
