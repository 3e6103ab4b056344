// SPDX-License-Identifier: Apache-2.0
//
// The first bytes on a stream between two ranks, by which each proves that it belongs to the run
// and which rank it is:
//
//   connector ── hello: magic 4, version 2, from 2, to 2, zero 2, epoch 8, nonce 16 ──► acceptor
//   connector ◄── answer: nonce 16, proof 16 ────────────────────────────────────────── acceptor
//   connector ── proof 16, then frames (frame_stream.h) ──────────────────────────────► acceptor
//
// A proof is HKDF-SHA256 of the run's key over hello and both nonces, under a label that names the
// side. Nobody without the key can make one, and no proof of another stream, rank or epoch passes.
// Later packets are authenticated anyway; the greeting keeps strangers from taking a rank's place.
//
// Any bytes lead to State::kDone or State::kRefused, or wait for more. Pure; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "wire/key.h"

namespace spillway::net {

// Identity of this side.
struct StreamIdentity {
  std::uint16_t rank = 0;
  std::uint64_t epoch = 0;
  wire::RunKey key{};
};

using StreamNonce = std::array<std::uint8_t, 16>;  // random, one per stream and side

class Greeting {
 public:
  enum class State : std::uint8_t { kAwaitsHello, kAwaitsAnswer, kAwaitsProof, kDone, kRefused };

  // `nonce` is this side's.
  static Greeting connecting(const StreamIdentity& own, std::uint16_t to, const StreamNonce& nonce);
  static Greeting answering(const StreamIdentity& own, const StreamNonce& nonce);

  State state() const { return state_; }
  // The rank that the other side claims to be; proved once kDone.
  std::uint16_t peer() const { return peer_; }

  // How many more bytes it expects; take() accepts them, whole or in part.
  std::size_t wanted() const { return awaited_bytes() - heard_.size(); }
  void take(base::ByteView bytes);
  // What to send next; sent() says how much of it was sent.
  base::ByteView reply() const { return base::ByteView(reply_).subspan(replied_); }
  void sent(std::size_t bytes) { replied_ += bytes; }

 private:
  static constexpr std::size_t kHelloBytes = 36;
  static constexpr std::size_t kProofBytes = 16;
  static constexpr std::size_t kAnswerBytes = sizeof(StreamNonce) + kProofBytes;
  using Hello = std::array<std::uint8_t, kHelloBytes>;
  using Proof = std::array<std::uint8_t, kProofBytes>;

  Greeting(const StreamIdentity& own, const StreamNonce& nonce, State state)
      : own_(own), nonce_(nonce), state_(state) {}
  std::size_t awaited_bytes() const;
  void on_hello();
  void on_answer();
  void on_proof();
  bool prove(wire::KeyLabel label, const StreamNonce& answering, Proof& proof) const;
  bool is_proved(wire::KeyLabel label, const StreamNonce& answering, base::ByteView proof) const;
  void say(base::ByteView bytes) { reply_.insert(reply_.end(), bytes.begin(), bytes.end()); }

  StreamIdentity own_;
  StreamNonce nonce_;
  State state_;
  std::uint16_t peer_ = 0;
  Hello hello_{};                    // this stream's hello, whichever side sent it
  std::vector<std::uint8_t> heard_;  // part of the expected bytes
  std::vector<std::uint8_t> reply_;
  std::size_t replied_ = 0;
};

}  // namespace spillway::net
