// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/rendezvous.h"

#include <fmt/format.h>

#include "runtime/rendezvous/guest.h"
#include "runtime/rendezvous/host.h"

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

}  // namespace

base::Result<std::vector<Blob>> exchange(const Launch& launch, const Blob& own,
                                         base::Duration patience) {
  const Attendance attendance{launch.rank, launch.world, launch.where.nonce, patience};
  const base::Status fit = check(attendance, own);
  if (!fit.ok()) {
    return fit;
  }
  if (launch.world == 1) {
    return std::vector<Blob>{own};
  }
  if (launch.rank != 0) {
    return attend_rendezvous(launch.where, attendance, own, "rank 0");
  }
  base::Result<Listening> listening = listen_at(launch.where);
  return listening.ok() ? host_rendezvous(std::move(listening).value(), attendance, own)
                        : listening.status();
}

base::Result<std::vector<Blob>> exchange(const UniqueId& id, Member member, const Blob& own,
                                         base::Duration patience) {
  const base::Result<UniqueIdContent> content = parse_unique_id(id);
  if (!content.ok()) {
    return content.status();
  }
  const Attendance attendance{member.rank, member.world, content->nonce, patience};
  const base::Status fit = check(attendance, own);
  if (!fit.ok()) {
    return fit;
  }
  net::UniqueFd listener = take_listener(*content);
  if (listener.valid()) {
    return host_rendezvous({std::move(listener), content->address.to_string()}, attendance, own);
  }
  return attend_rendezvous(point_of(*content), attendance, own, "the maker of the unique id");
}

}  // namespace spillway::runtime
