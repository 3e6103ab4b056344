// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/rendezvous.h"

#include <fmt/format.h>

#include "comm/rendezvous/guest.h"
#include "comm/rendezvous/host.h"

namespace spillway::runtime {
namespace {

base::Status check(const Attendance& attendance, const Blob& own) {
  if (attendance.world == 0 || attendance.world > kMaxRanks ||
      attendance.rank >= attendance.world) {
    return base::invalid_argument(
        fmt::format("there is no rank {} of {}: there may be 1 to {} ranks, numbered from 0",
                    attendance.rank, attendance.world, kMaxRanks));
  }
  if (own.size() > kMaxBlobBytes) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("a rank may bring {} bytes to a rendezvous, not {}", kMaxBlobBytes,
                        own.size())};
  }
  return {};
}

// What all ranks share before they meet: the secret, else the id's nonce, else nothing.
base::Result<Credential> credential_of(base::ByteView secret, const Nonce* id) {
  if (!secret.empty()) {
    return Credential::of_secret(secret);
  }
  return id != nullptr ? Credential::of_id(*id) : Credential();
}

// A checked attendance, with its random, and the credential.
struct Invitation {
  Attendance attendance{};
  Credential credential{};
};

base::Result<Invitation> invite(Attendance attendance, base::Result<Credential> credential,
                                const Blob& own) {
  if (base::Status fit = check(attendance, own); !fit.ok()) {
    return fit;
  }
  const base::Result<Random> random = draw_random();
  if (!random.ok() || !credential.ok()) {
    return random.ok() ? credential.status() : random.status();
  }
  attendance.random = *random;
  return Invitation{attendance, std::move(credential).value()};
}

}  // namespace

base::Result<Meeting> exchange(const Launch& launch, base::ByteView secret, const Blob& own,
                               base::Duration patience) {
  // A launch's nonce is made of public words, so it proves nothing.
  const base::Result<Invitation> invitation =
      invite({launch.rank, launch.world, launch.where.nonce, patience, {}},
             credential_of(secret, nullptr), own);
  if (!invitation.ok()) {
    return invitation.status();
  }
  if (launch.world == 1) {
    return meet_nobody(own);
  }
  const auto& [attendance, credential] = *invitation;
  if (launch.rank != 0) {
    return attend_rendezvous(launch.where, attendance, credential, own, "rank 0");
  }
  base::Result<Listening> listening = listen_at(launch.where);
  return listening.ok() ? host_rendezvous(std::move(listening).value(), attendance, credential, own)
                        : listening.status();
}

base::Result<Meeting> exchange(const UniqueId& id, Member member, base::ByteView secret,
                               const Blob& own, base::Duration patience) {
  const base::Result<UniqueIdContent> content = parse_unique_id(id);
  if (!content.ok()) {
    return content.status();
  }
  const base::Result<Invitation> invitation =
      invite({member.rank, member.world, content->nonce, patience, {}},
             credential_of(secret, &content->nonce), own);
  if (!invitation.ok()) {
    return invitation.status();
  }
  if (member.world == 1) {
    discard_unique_id(id);  // no other rank will join
    return meet_nobody(own);
  }
  const auto& [attendance, credential] = *invitation;
  net::UniqueFd listener = take_listener(*content);
  if (listener.valid()) {
    return host_rendezvous({std::move(listener), content->address.to_string()}, attendance,
                           credential, own);
  }
  return attend_rendezvous(point_of(*content), attendance, credential, own,
                           "the maker of the unique id");
}

base::Result<Meeting> meet_nobody(const Blob& own) {
  const base::Result<wire::RunKey> key = draw_key();
  if (!key.ok()) {
    return key.status();
  }
  return Meeting{.blobs = {own}, .key = *key, .strangers = {}};
}

}  // namespace spillway::runtime
