// SPDX-License-Identifier: Apache-2.0
#include "emulate/group_communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "comm/rendezvous/rendezvous.h"

namespace spillway::emulate {

namespace {

constexpr std::uint32_t kIdTag = collective::kMaxTag;  // for ids; traces use lower tags
constexpr unsigned kGroupThreads = 0;                  // only the world's communicator has any

std::vector<std::uint32_t> groups_in_use(const World& world, std::uint32_t rank) {
  std::vector<bool> used(world.groups.size(), false);
  for (const GraphNode& node : world.ranks[rank].nodes) {
    if (node.kind == NodeKind::kCollective && node.is_complete()) {
      used[node.group] = true;
    }
  }
  std::vector<std::uint32_t> groups;
  for (std::uint32_t group = 0; group < used.size(); ++group) {
    if (used[group]) {
      groups.push_back(group);
    }
  }
  // By content, because the groups' numbers depend on the order of files.
  std::sort(groups.begin(), groups.end(), [&world](std::uint32_t a, std::uint32_t b) {
    return std::tie(world.groups[a].name, world.groups[a].ranks) <
           std::tie(world.groups[b].name, world.groups[b].ranks);
  });
  return groups;
}

// Sends or receives 128 bytes to or from a rank of the world.
base::Status move_id(comm::Communicator& all_ranks, collective::Kind kind, std::uint32_t peer,
                     comm::UniqueId& id, base::Duration patience) {
  collective::Operation operation;
  operation.kind = kind;
  operation.type = collective::DataType::kUint8;
  operation.count = id.bytes.size();
  operation.root = static_cast<std::uint16_t>(peer);
  operation.tag = kIdTag;
  operation.timeout = patience;
  operation.input = kind == collective::Kind::kSend ? id.bytes.data() : nullptr;
  operation.output = kind == collective::Kind::kReceive ? id.bytes.data() : nullptr;
  const base::Result<std::shared_ptr<comm::Request>> request = all_ranks.submit(operation);
  if (!request.ok()) {
    return request.status();
  }
  return (*request)->wait(std::nullopt).value_or(base::Status());
}

}  // namespace

base::Result<GroupCommunicators> GroupCommunicators::make(const World& world,
                                                          comm::Communicator& all_ranks,
                                                          base::Duration patience) {
  if (world.size() != all_ranks.world()) {
    return base::invalid_argument(fmt::format("the trace has {} ranks, the job {}: start {}",
                                              world.size(), all_ranks.world(), world.size()));
  }
  GroupCommunicators groups(all_ranks);
  for (const std::uint32_t group : groups_in_use(world, all_ranks.rank())) {
    if (base::Status status = groups.make_group(world, group, patience); !status.ok()) {
      return base::Status(
          status.code(), fmt::format("group '{}': {}", world.groups[group].name, status.message()));
    }
  }
  return groups;
}

base::Status GroupCommunicators::make_group(const World& world, std::uint32_t group,
                                            base::Duration patience) {
  const std::vector<std::uint32_t>& ranks = world.groups[group].ranks;
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), all_ranks_->rank());
  if (found == ranks.end() || *found != all_ranks_->rank()) {
    return base::invalid_argument("this rank is no member");
  }
  Membership member{all_ranks_, static_cast<std::uint16_t>(found - ranks.begin()),
                    static_cast<std::uint16_t>(ranks.size())};
  if (group == 0 || ranks.size() < 2) {
    memberships_[group] = member;
    return {};
  }
  comm::CommunicatorConfig config;
  config.member = {member.rank, member.size};
  config.name = world.groups[group].name;
  config.threads = kGroupThreads;
  config.rendezvous_patience = patience;
  comm::UniqueId id;
  if (member.rank == 0) {
    const base::Result<comm::UniqueId> made = comm::create_reachable_unique_id();
    if (!made.ok()) {
      return made.status();
    }
    id = *made;
    for (std::size_t i = 1; i < ranks.size(); ++i) {
      if (base::Status status =
              move_id(*all_ranks_, collective::Kind::kSend, ranks[i], id, patience);
          !status.ok()) {
        return status;
      }
    }
  } else if (base::Status status =
                 move_id(*all_ranks_, collective::Kind::kReceive, ranks[0], id, patience);
             !status.ok()) {
    return status;
  }
  config.id = id;
  base::Result<std::unique_ptr<comm::Communicator>> communicator =
      comm::Communicator::create(config);
  if (!communicator.ok()) {
    return communicator.status();
  }
  member.communicator = communicator.value().get();
  made_[group] = std::move(communicator).value();
  memberships_[group] = member;
  return {};
}

GroupCommunicators::Membership GroupCommunicators::membership(std::uint32_t group) const {
  const auto found = memberships_.find(group);
  return found == memberships_.end() ? Membership{} : found->second;
}

}  // namespace spillway::emulate
