// SPDX-License-Identifier: Apache-2.0
#include "elastic/member_key.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "base/bytes.h"
#include "net/system_call.h"

namespace spillway::runtime {
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

OpenSslKey private_half(const SealKey& key) {
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
  Blob message(kIdLabel.begin(), kIdLabel.end());
  message.insert(message.end(), key.begin(), key.end());
  const base::Result<Digest> digest = sha256(message);
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

base::Result<Channel> channel_between(const MemberKey& own, const MemberStream& stream) {
  const SealKey& credential = stream.credential.key();
  wire::Key<2 * SealKey::kBytes> secret;
  const base::MutableByteView bytes(secret.bytes);
  if (!agree(own, stream.peer, bytes.first(SealKey::kBytes))) {
    return base::Status(base::StatusCode::kForeign, "its public key cannot be used");
  }
  std::ranges::copy(credential.bytes, bytes.subspan(SealKey::kBytes).begin());
  Blob salt;
  const auto add = [&salt](const auto& part) { salt.insert(salt.end(), part.begin(), part.end()); };
  add(stream.is_dialler ? stream.own : stream.peers);
  add(stream.is_dialler ? stream.peers : stream.own);
  add(stream.is_dialler ? own.public_key() : stream.peer);
  add(stream.is_dialler ? stream.peer : own.public_key());
  for (const base::ByteView hello : {stream.is_dialler ? stream.own_hello : stream.peers_hello,
                                     stream.is_dialler ? stream.peers_hello : stream.own_hello}) {
    const base::Result<Digest> digest = sha256(hello);
    if (!digest.ok()) {
      return digest.status();
    }
    add(*digest);
  }
  SealKey from_dialler;
  SealKey to_dialler;
  base::Status status =
      wire::derive(secret.bytes, salt, wire::KeyLabel::kMemberFromDialler, from_dialler.bytes);
  if (status.ok()) {
    status = wire::derive(secret.bytes, salt, wire::KeyLabel::kMemberToDialler, to_dialler.bytes);
  }
  if (!status.ok()) {
    return status;
  }
  return stream.is_dialler ? Channel(from_dialler, to_dialler) : Channel(to_dialler, from_dialler);
}

}  // namespace spillway::runtime
