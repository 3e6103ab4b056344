// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/handshake.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace spillway::runtime {
namespace {

using wire::KeyLabel;

constexpr std::string_view kHostRole = "host";
constexpr std::string_view kGuestRole = "guest";

struct Randoms {
  const Random& guest;
  const Random& host;

  Blob joined(std::string_view before = {}) const {
    Blob bytes(before.begin(), before.end());
    bytes.insert(bytes.end(), guest.begin(), guest.end());
    bytes.insert(bytes.end(), host.begin(), host.end());
    return bytes;
  }
};

base::Result<Proof> prove(const SealKey& key, std::string_view role, const Randoms& randoms) {
  SealKey proof_key;
  const base::Status status =
      wire::derive(key.bytes, {}, KeyLabel::kRendezvousProof, proof_key.bytes);
  return status.ok() ? hmac_sha256(proof_key, randoms.joined(role)) : status;
}

struct DirectionKeys {
  SealKey to_host;
  SealKey to_guest;
};

base::Result<DirectionKeys> keys_of(const SealKey& key, const Randoms& randoms) {
  const Blob salt = randoms.joined();
  DirectionKeys keys;
  base::Status status =
      wire::derive(key.bytes, salt, KeyLabel::kRendezvousToHost, keys.to_host.bytes);
  if (status.ok()) {
    status = wire::derive(key.bytes, salt, KeyLabel::kRendezvousToGuest, keys.to_guest.bytes);
  }
  return status.ok() ? base::Result<DirectionKeys>(keys) : status;
}

// Sent to a rejected peer, so it reveals only whether the host has a secret.
base::Status other_keying(Keying host, Keying guest) {
  std::string_view what = "another job meets here: its ranks share a unique id, or this one's do";
  if (host == Keying::kSecret) {
    what =
        "the host has a secret and this rank has none: give SPILLWAY_SECRET_FILE to all ranks or "
        "to none";
  } else if (guest == Keying::kSecret) {
    what =
        "this rank has a secret and the host has none: give SPILLWAY_SECRET_FILE to all ranks or "
        "to none";
  }
  return {base::StatusCode::kForeign, std::string(what)};
}

std::string_view what_is_proved(Keying keying) {
  return keying == Keying::kSecret ? "the job's secret" : "the ranks' unique id";
}

}  // namespace

base::Result<Credential> Credential::of_secret(base::ByteView secret) {
  Credential credential;
  credential.keying_ = Keying::kSecret;
  const base::Status status =
      wire::derive(secret, {}, KeyLabel::kRendezvousSecret, credential.key_.bytes);
  return status.ok() ? base::Result<Credential>(credential) : status;
}

base::Result<Credential> Credential::of_id(const Nonce& nonce) {
  Credential credential;
  credential.keying_ = Keying::kId;
  const base::Status status =
      wire::derive(nonce, {}, KeyLabel::kRendezvousId, credential.key_.bytes);
  return status.ok() ? base::Result<Credential>(credential) : status;
}

base::Result<std::optional<Frame>> GuestHandshake::take(const Frame& frame) {
  base::Result<std::optional<Frame>> said = answer(frame);
  state_ = said.ok() ? State::kDone : State::kFailed;
  return said;
}

base::Result<std::optional<Frame>> GuestHandshake::answer(const Frame& frame) {
  if (state_ == State::kChallenge && frame.type == FrameType::kRefusal) {
    const base::Result<Refusal> refusal = parse_refusal(frame.body);
    return base::Status(base::StatusCode::kForeign,
                        refusal.ok() ? refusal->reason : refusal.status().message());
  }
  if (state_ != State::kChallenge || frame.type != FrameType::kChallenge) {
    return base::Status(base::StatusCode::kMalformed, "that is no beginning of a rendezvous");
  }
  const base::Result<Challenge> challenge = parse_challenge(frame.body);
  if (!challenge.ok()) {
    return challenge.status();
  }
  if (challenge->keying != credential_.keying()) {
    return other_keying(challenge->keying, credential_.keying());
  }
  if (credential_.keying() == Keying::kNone) {
    return std::optional<Frame>();
  }
  const Randoms randoms{.guest = own_, .host = challenge->random};
  const base::Result<Proof> expected = prove(credential_.key(), kHostRole, randoms);
  const base::Result<Proof> proof = prove(credential_.key(), kGuestRole, randoms);
  const base::Result<DirectionKeys> keys = keys_of(credential_.key(), randoms);
  for (const base::Status* status : {&expected.status(), &proof.status(), &keys.status()}) {
    if (!status->ok()) {
      return *status;
    }
  }
  if (!is_same(challenge->proof, *expected)) {
    return base::Status(
        base::StatusCode::kForeign,
        fmt::format("it did not prove that it knows {}: another job, or a stranger, is there",
                    what_is_proved(credential_.keying())));
  }
  channel_ = Channel(keys->to_host, keys->to_guest);
  return std::optional<Frame>(encode(*proof));
}

base::Result<std::optional<Frame>> HostHandshake::take(const Frame& frame) {
  base::Result<std::optional<Frame>> said = answer(frame);
  if (!said.ok()) {
    state_ = State::kFailed;
  }
  return said;
}

base::Result<std::optional<Frame>> HostHandshake::answer(const Frame& frame) {
  if (state_ == State::kOpening && frame.type == FrameType::kOpening) {
    return challenge(frame);
  }
  if (state_ == State::kProof && frame.type == FrameType::kProof) {
    const base::Status proved = check_proof(frame);
    return proved.ok() ? base::Result<std::optional<Frame>>(std::optional<Frame>()) : proved;
  }
  return base::Status(base::StatusCode::kMalformed, "that is no beginning of a rendezvous");
}

base::Result<std::optional<Frame>> HostHandshake::challenge(const Frame& frame) {
  const base::Result<Opening> opening = parse_opening(frame.body);
  if (!opening.ok()) {
    return opening.status();
  }
  if (opening->keying != credential_.keying()) {
    fault_ = StrangerKind::kKeying;
    return other_keying(credential_.keying(), opening->keying);
  }
  guest_ = opening->random;
  Challenge challenge{.keying = credential_.keying(), .random = own_, .proof = {}};
  if (credential_.keying() == Keying::kNone) {
    state_ = State::kDone;
    return std::optional<Frame>(encode(challenge));
  }
  const base::Result<Proof> proof = prove(credential_.key(), kHostRole, {guest_, own_});
  if (!proof.ok()) {
    return proof.status();
  }
  challenge.proof = *proof;
  state_ = State::kProof;
  return std::optional<Frame>(encode(challenge));
}

base::Status HostHandshake::check_proof(const Frame& frame) {
  fault_ = StrangerKind::kUnproven;
  const Randoms randoms{.guest = guest_, .host = own_};
  const base::Result<Proof> given = parse_proof(frame.body);
  const base::Result<Proof> expected = prove(credential_.key(), kGuestRole, randoms);
  const base::Result<DirectionKeys> keys = keys_of(credential_.key(), randoms);
  for (const base::Status* status : {&given.status(), &expected.status(), &keys.status()}) {
    if (!status->ok()) {
      return *status;
    }
  }
  if (!is_same(*given, *expected)) {
    return {base::StatusCode::kForeign, fmt::format("this rank did not prove that it knows {}",
                                                    what_is_proved(credential_.keying()))};
  }
  channel_ = Channel(keys->to_guest, keys->to_host);
  state_ = State::kDone;
  return {};
}

}  // namespace spillway::runtime
