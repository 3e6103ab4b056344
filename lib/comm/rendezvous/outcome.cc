// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/outcome.h"

#include <fmt/format.h>

#include <numeric>
#include <string_view>

namespace spillway::runtime {
namespace {

constexpr std::array<std::string_view, kStrangerKinds> kWords = {
    "spoke something else",
    "had a secret where the host has none, or none where it has one",
    "did not prove that they belong to this job",
    "did not say in time who they are",
    "came when all places of their address were taken",
};

}  // namespace

std::uint64_t StrangerCounts::total() const {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::string StrangerCounts::to_string() const {
  std::vector<std::string> parts;
  for (std::size_t kind = 0; kind < kStrangerKinds; ++kind) {
    if (counts[kind] != 0) {
      parts.push_back(fmt::format("{} {}", counts[kind], kWords[kind]));
    }
  }
  return parts.empty() ? "" : fmt::format("turned away: {}", fmt::join(parts, "; "));
}

base::Result<Meeting> meeting_of(const Credential& credential, const Gather& gather) {
  Blob randoms;
  for (const Random& random : gather.randoms) {
    randoms.insert(randoms.end(), random.begin(), random.end());
  }
  const base::Result<Digest> salt = sha256(randoms);
  if (!salt.ok()) {
    return salt.status();
  }
  wire::Key<64> secret;
  std::copy(credential.key().bytes.begin(), credential.key().bytes.end(), secret.bytes.begin());
  std::copy(gather.drawn.bytes.begin(), gather.drawn.bytes.end(), secret.bytes.begin() + 32);
  Meeting meeting{.blobs = gather.blobs, .key = {}, .strangers = {}};
  const base::Status status =
      wire::derive(secret.bytes, *salt, wire::KeyLabel::kRun, meeting.key.bytes);
  return status.ok() ? base::Result<Meeting>(std::move(meeting)) : status;
}

}  // namespace spillway::runtime
