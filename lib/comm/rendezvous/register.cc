// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/register.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/version.h"

namespace spillway::comm {

Register::Register(const Participant& host, const Blob& own, base::Instant now)
    : host_(host), slots_(host.world) {
  slots_[host.rank] = {.here = true,
                       .served = true,
                       .instance = 0,
                       .deadline = now + host.patience,
                       .patience = host.patience,
                       .random = host.random,
                       .blob = own};
  sealed_ = host.world == 1;
}

std::optional<Refusal> Register::objection(const Hello& hello) const {
  if (hello.version != base::kVersion) {
    return Refusal{true, fmt::format("rank {} runs Spillway {} and rank {} runs {}: install the "
                                     "same version everywhere",
                                     hello.rank, hello.version, host_.rank, base::kVersion)};
  }
  if (hello.nonce != host_.nonce) {
    // Not final: this host may be the stale one, and the right one may start soon.
    return Refusal{false,
                   "another job meets here, or the same one before its restart: end the old "
                   "one, or set SPILLWAY_COMM_ID to another port"};
  }
  if (hello.world != host_.world) {
    return Refusal{true, fmt::format("rank {} was told of {} ranks and rank {} of {}: start all "
                                     "with the same WORLD_SIZE",
                                     hello.rank, hello.world, host_.rank, host_.world)};
  }
  if (hello.rank >= host_.world) {
    return Refusal{true, fmt::format("there is no rank {} among {}: ranks are numbered from 0",
                                     hello.rank, host_.world)};
  }
  const Slot& slot = slots_[hello.rank];
  if ((slot.here || sealed_) && slot.instance != hello.instance) {
    return Refusal{
        true,
        fmt::format("rank {} is here already: give every process a RANK of its own, and a second "
                    "job another MASTER_PORT or SPILLWAY_COMM_ID",
                    hello.rank)};
  }
  return std::nullopt;
}

void Register::enter(const Hello& hello, base::Instant now) {
  slots_[hello.rank] = {.here = true,
                        .served = false,
                        .instance = hello.instance,
                        .deadline = now + hello.left,
                        .patience = hello.patience,
                        .random = hello.random,
                        .blob = hello.blob};
  sealed_ = sealed_ ||
            std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.here; });
}

void Register::leave(std::uint32_t rank) {
  slots_[rank].here = false;
}

void Register::mark_served(std::uint32_t rank) {
  slots_[rank].served = true;
}

bool Register::all_served() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.served; });
}

Gather Register::gather() const {
  Gather gather;
  for (const Slot& slot : slots_) {
    gather.randoms.push_back(slot.random);
    gather.blobs.push_back(slot.blob);
  }
  return gather;
}

const Register::Slot& Register::first_to_go() const {
  const Slot* first = &slots_[host_.rank];
  for (const Slot& slot : slots_) {
    first = slot.here && !slot.served && slot.deadline < first->deadline ? &slot : first;
  }
  return *first;
}

std::vector<std::uint32_t> Register::missing() const {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < slots_.size(); ++rank) {
    if (!slots_[rank].here && !slots_[rank].served) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

std::string Register::failure_text(const std::string& where) const {
  const std::vector<std::uint32_t> absent = missing();
  const std::string patience = name_duration(first_to_go().patience);
  if (absent.empty()) {
    return fmt::format(
        "all ranks came to {}, but not all could be told of the others within {}; "
        "see that the network carries more than the first packets",
        where, patience);
  }
  const std::string who = name_ranks(absent, host_.world);
  return sealed_ ? fmt::format(
                       "{} went away from {} before hearing of the others; see why "
                       "they ended",
                       who, where)
                 : fmt::format(
                       "{} did not come to {} within {}; see that they were started, and "
                       "that their hosts can reach this address, or wait longer "
                       "(SPILLWAY_RENDEZVOUS_TIMEOUT)",
                       who, where, patience);
}

std::string Register::waiting_text(const std::string& where, base::Duration waited) const {
  return fmt::format("rank {} is still waiting at {} for {}, after {} s of {}", host_.rank, where,
                     name_ranks(missing(), host_.world), waited.count() / 1'000'000'000,
                     name_duration(first_to_go().patience));
}

namespace {

constexpr std::size_t kMaxRunsNamed = 12;

std::string name_run(std::uint32_t first, std::uint32_t last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

// "a", "a and b", "a, b and c"
std::string joined(const std::vector<std::string>& parts) {
  if (parts.size() == 1) {
    return parts.front();
  }
  return fmt::format("{} and {}", fmt::join(parts.begin(), parts.end() - 1, ", "), parts.back());
}

}  // namespace

std::string name_ranks(std::span<const std::uint32_t> ranks, std::uint32_t world) {
  std::vector<std::string> runs;
  std::size_t at = 0;
  while (at < ranks.size() && runs.size() < kMaxRunsNamed) {
    std::size_t end = at + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
      ++end;
    }
    // Two in a row are listed as two: "3 and 4".
    end = end - at == 2 ? at + 1 : end;
    runs.push_back(name_run(ranks[at], ranks[end - 1]));
    at = end;
  }
  if (at < ranks.size()) {
    runs.push_back(fmt::format("{} others", ranks.size() - at));
  }
  return fmt::format("{} {} of {}", ranks.size() == 1 ? "rank" : "ranks", joined(runs), world);
}

std::string name_duration(base::Duration duration) {
  const std::int64_t ms = duration.count() / 1'000'000;
  return ms % 1000 == 0 ? fmt::format("{} s", ms / 1000) : fmt::format("{} ms", ms);
}

}  // namespace spillway::comm
