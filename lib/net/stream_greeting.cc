// SPDX-License-Identifier: Apache-2.0
#include "net/stream_greeting.h"

#include <algorithm>

namespace spillway::net {
namespace {

constexpr std::uint32_t kMagic = 0x54535753;  // "SWST"
constexpr std::uint16_t kVersion = 1;
constexpr wire::KeyLabel kConnects = wire::KeyLabel::kStreamConnects;
constexpr wire::KeyLabel kAnswers = wire::KeyLabel::kStreamAnswers;

bool is_equal_in_constant_time(base::ByteView a, base::ByteView b) {
  unsigned differences = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    differences |= a[i] ^ b[i];
  }
  return differences == 0;
}

}  // namespace

Greeting Greeting::connecting(const StreamIdentity& own, std::uint16_t to,
                              const StreamNonce& nonce) {
  Greeting greeting(own, nonce, State::kAwaitsAnswer);
  greeting.peer_ = to;
  std::uint8_t* hello = greeting.hello_.data();
  base::store_le(hello, kMagic);
  base::store_le(hello + 4, kVersion);
  base::store_le(hello + 6, own.rank);
  base::store_le(hello + 8, to);
  base::store_le(hello + 12, own.epoch);
  std::copy(nonce.begin(), nonce.end(), hello + 20);
  greeting.say(greeting.hello_);
  return greeting;
}

Greeting Greeting::answering(const StreamIdentity& own, const StreamNonce& nonce) {
  return Greeting(own, nonce, State::kAwaitsHello);
}

std::size_t Greeting::awaited_bytes() const {
  switch (state_) {
    case State::kAwaitsHello:
      return kHelloBytes;
    case State::kAwaitsAnswer:
      return kAnswerBytes;
    case State::kAwaitsProof:
      return kProofBytes;
    case State::kDone:
    case State::kRefused:
      break;
  }
  return 0;
}

void Greeting::take(base::ByteView bytes) {
  bytes = bytes.first(std::min(wanted(), bytes.size()));
  heard_.insert(heard_.end(), bytes.begin(), bytes.end());
  if (bytes.empty() || wanted() > 0) {
    return;
  }
  switch (state_) {
    case State::kAwaitsHello:
      on_hello();
      break;
    case State::kAwaitsAnswer:
      on_answer();
      break;
    case State::kAwaitsProof:
      on_proof();
      break;
    case State::kDone:
    case State::kRefused:
      break;
  }
  heard_.clear();
}

void Greeting::on_hello() {
  std::copy(heard_.begin(), heard_.end(), hello_.begin());
  const std::uint8_t* hello = hello_.data();
  peer_ = base::load_le<std::uint16_t>(hello + 6);
  const bool is_for_us = base::load_le<std::uint32_t>(hello) == kMagic &&
                         base::load_le<std::uint16_t>(hello + 4) == kVersion &&
                         base::load_le<std::uint16_t>(hello + 8) == own_.rank &&
                         base::load_le<std::uint16_t>(hello + 10) == 0 &&
                         base::load_le<std::uint64_t>(hello + 12) == own_.epoch;
  Proof proof;
  if (!is_for_us || peer_ == own_.rank || !prove(kAnswers, nonce_, proof)) {
    state_ = State::kRefused;
    return;
  }
  say(nonce_);
  say(proof);
  state_ = State::kAwaitsProof;
}

void Greeting::on_answer() {
  StreamNonce answering;
  std::copy_n(heard_.begin(), answering.size(), answering.begin());
  Proof proof;
  if (!is_proved(kAnswers, answering, base::ByteView(heard_).subspan(answering.size())) ||
      !prove(kConnects, answering, proof)) {
    state_ = State::kRefused;
    return;
  }
  say(proof);
  state_ = State::kDone;
}

void Greeting::on_proof() {
  state_ = is_proved(kConnects, nonce_, heard_) ? State::kDone : State::kRefused;
}

bool Greeting::prove(wire::KeyLabel label, const StreamNonce& answering, Proof& proof) const {
  std::array<std::uint8_t, kHelloBytes + sizeof(StreamNonce)> salt;
  std::copy(hello_.begin(), hello_.end(), salt.begin());
  std::copy(answering.begin(), answering.end(), salt.begin() + kHelloBytes);
  return wire::derive(own_.key.bytes, salt, label, proof).ok();
}

bool Greeting::is_proved(wire::KeyLabel label, const StreamNonce& answering,
                         base::ByteView proof) const {
  Proof expected;
  return prove(label, answering, expected) && is_equal_in_constant_time(expected, proof);
}

}  // namespace spillway::net
