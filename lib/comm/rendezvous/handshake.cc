// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string_view>

#include "net/system_call.h"

namespace spillway::comm {

namespace {

using wire::KeyLabel;

constexpr std::string_view kHostRole = "host";
constexpr std::string_view kJoinerRole = "guest";

struct Randoms {
  const Random& joiner;
  const Random& host;

  Blob joined(std::string_view before = {}) const {
    Blob bytes(before.begin(), before.end());
    bytes.insert(bytes.end(), joiner.begin(), joiner.end());
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
  SealKey to_joiner;
};

base::Result<DirectionKeys> keys_of(const SealKey& key, const Randoms& randoms) {
  const Blob salt = randoms.joined();
  DirectionKeys keys;
  base::Status status =
      wire::derive(key.bytes, salt, KeyLabel::kRendezvousToHost, keys.to_host.bytes);
  if (status.ok()) {
    status = wire::derive(key.bytes, salt, KeyLabel::kRendezvousToJoiner, keys.to_joiner.bytes);
  }
  return status.ok() ? base::Result<DirectionKeys>(keys) : status;
}

// Sent to a rejected peer, so it reveals only whether the host has a secret.
base::Status other_keying(Keying host, Keying joiner) {
  std::string_view what = "another job meets here: its ranks share a unique id, or this one's do";
  if (host == Keying::kSecret) {
    what =
        "the host has a secret and this rank has none: give SPILLWAY_SECRET_FILE to all ranks or "
        "to none";
  } else if (joiner == Keying::kSecret) {
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

base::Result<Credential> Credential::of_id(const launch::Nonce& nonce) {
  Credential credential;
  credential.keying_ = Keying::kId;
  const base::Status status =
      wire::derive(nonce, {}, KeyLabel::kRendezvousId, credential.key_.bytes);
  return status.ok() ? base::Result<Credential>(credential) : status;
}

base::Result<std::optional<Frame>> JoinerHandshake::take(const Frame& frame) {
  base::Result<std::optional<Frame>> said = answer(frame);
  state_ = said.ok() ? State::kDone : State::kFailed;
  return said;
}

base::Result<std::optional<Frame>> JoinerHandshake::answer(const Frame& frame) {
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
  const Randoms randoms{.joiner = own_, .host = challenge->random};
  const base::Result<Proof> expected = prove(credential_.key(), kHostRole, randoms);
  const base::Result<Proof> proof = prove(credential_.key(), kJoinerRole, randoms);
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
  channel_ = Channel(keys->to_host, keys->to_joiner);
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
  joiner_ = opening->random;
  Challenge challenge{.keying = credential_.keying(), .random = own_, .proof = {}};
  if (credential_.keying() == Keying::kNone) {
    state_ = State::kDone;
    return std::optional<Frame>(encode(challenge));
  }
  const base::Result<Proof> proof = prove(credential_.key(), kHostRole, {joiner_, own_});
  if (!proof.ok()) {
    return proof.status();
  }
  challenge.proof = *proof;
  state_ = State::kProof;
  return std::optional<Frame>(encode(challenge));
}

base::Status HostHandshake::check_proof(const Frame& frame) {
  fault_ = StrangerKind::kUnproven;
  const Randoms randoms{.joiner = joiner_, .host = own_};
  const base::Result<Proof> given = parse_proof(frame.body);
  const base::Result<Proof> expected = prove(credential_.key(), kJoinerRole, randoms);
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
  channel_ = Channel(keys->to_joiner, keys->to_host);
  state_ = State::kDone;
  return {};
}

namespace {

constexpr std::size_t kSealNonceBytes = 12;

struct FreeCipher {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using CipherContext = std::unique_ptr<EVP_CIPHER_CTX, FreeCipher>;

base::Status no_crypto(const char* what) {
  return {base::StatusCode::kUnavailable,
          std::string("OpenSSL has no ") + what + "; Spillway needs OpenSSL 3 with it"};
}

std::array<std::uint8_t, kSealNonceBytes> nonce_of_message(std::uint64_t number) {
  std::array<std::uint8_t, kSealNonceBytes> nonce{};
  base::store_le(nonce.data(), number);
  return nonce;
}

}  // namespace

base::Result<Random> draw_random() {
  Random random{};
  const base::Status status = net::fill_random(random);
  return status.ok() ? base::Result<Random>(random) : status;
}

base::Result<wire::RunKey> draw_key() {
  wire::RunKey key;
  const base::Status status = net::fill_random(key.bytes);
  return status.ok() ? base::Result<wire::RunKey>(key) : status;
}

base::Result<Proof> hmac_sha256(const SealKey& key, base::ByteView message) {
  Proof proof{};
  unsigned size = 0;
  const bool done = ::HMAC(EVP_sha256(), key.bytes.data(), static_cast<int>(key.bytes.size()),
                           message.data(), message.size(), proof.data(), &size) != nullptr;
  return done && size == proof.size() ? base::Result<Proof>(proof) : no_crypto("HMAC-SHA256");
}

base::Result<Digest> sha256(base::ByteView message) {
  Digest digest{};
  unsigned size = 0;
  const bool done =
      EVP_Digest(message.data(), message.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1;
  return done && size == digest.size() ? base::Result<Digest>(digest) : no_crypto("SHA-256");
}

bool is_same(const Proof& one, const Proof& other) {
  return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

base::Result<Blob> seal(const SealedMessage& message, base::ByteView plain) {
  const auto nonce = nonce_of_message(message.number);
  const CipherContext context(EVP_CIPHER_CTX_new());
  Blob sealed(plain.size() + kSealBytes);
  int beside = 0;
  int written = 0;
  int rest = 0;
  const bool done =
      context &&
      EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, message.key.bytes.data(),
                         nonce.data()) == 1 &&
      EVP_EncryptUpdate(context.get(), nullptr, &beside, message.beside.data(),
                        static_cast<int>(message.beside.size())) == 1 &&
      (plain.empty() || EVP_EncryptUpdate(context.get(), sealed.data(), &written, plain.data(),
                                          static_cast<int>(plain.size())) == 1) &&
      EVP_EncryptFinal_ex(context.get(), sealed.data() + written, &rest) == 1 &&
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, kSealBytes,
                          sealed.data() + plain.size()) == 1;
  return done ? base::Result<Blob>(std::move(sealed)) : no_crypto("AES-256-GCM");
}

base::Result<Blob> unseal(const SealedMessage& message, base::ByteView sealed) {
  const base::Status wrong(base::StatusCode::kCorrupt,
                           "what came is not what was sealed: it was changed on its way");
  if (sealed.size() < kSealBytes) {
    return wrong;
  }
  const auto nonce = nonce_of_message(message.number);
  const std::size_t size = sealed.size() - kSealBytes;
  Blob tag(sealed.begin() + static_cast<std::ptrdiff_t>(size), sealed.end());
  const CipherContext context(EVP_CIPHER_CTX_new());
  Blob plain(size);
  int beside = 0;
  int written = 0;
  int rest = 0;
  std::array<std::uint8_t, kSealBytes> nothing{};
  const bool ready =
      context &&
      EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, message.key.bytes.data(),
                         nonce.data()) == 1 &&
      EVP_DecryptUpdate(context.get(), nullptr, &beside, message.beside.data(),
                        static_cast<int>(message.beside.size())) == 1 &&
      (size == 0 || EVP_DecryptUpdate(context.get(), plain.data(), &written, sealed.data(),
                                      static_cast<int>(size)) == 1) &&
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, kSealBytes, tag.data()) == 1;
  if (!ready) {
    return no_crypto("AES-256-GCM");
  }
  if (EVP_DecryptFinal_ex(context.get(), nothing.data(), &rest) != 1) {
    wire::wipe(plain);
    return wrong;
  }
  return plain;
}

base::Result<Blob> Channel::pack(const Frame& frame) {
  if (!sending_) {
    return to_bytes(frame);
  }
  const auto header = header_of(frame.type, frame.body.size() + kSealBytes);
  base::Result<Blob> body = seal({sending_->key, sending_->frames++, header}, frame.body);
  if (!body.ok()) {
    return body.status();
  }
  return to_bytes({frame.type, std::move(body).value()});
}

base::Result<Frame> Channel::unpack(Frame frame) {
  if (!receiving_) {
    return frame;
  }
  const auto header = header_of(frame.type, frame.body.size());
  base::Result<Blob> body = unseal({receiving_->key, receiving_->frames++, header}, frame.body);
  if (!body.ok()) {
    return body.status();
  }
  return Frame{frame.type, std::move(body).value()};
}

}  // namespace spillway::comm
