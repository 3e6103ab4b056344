// SPDX-License-Identifier: Apache-2.0
#include "comm/local_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "observe/log.h"

namespace spillway::runtime {
namespace {

std::string network_namespace() {
  std::error_code error;
  const std::filesystem::path link = std::filesystem::read_symlink("/proc/self/ns/net", error);
  return error ? "" : link.string();
}

// One log line for all neighbours: not sharing only costs speed.
void tell(const HandoverResult& result) {
  std::string troubles;
  for (const Neighbour& neighbour : result.neighbours) {
    if (!neighbour.trouble.empty()) {
      troubles +=
          fmt::format("{}{} ({})", troubles.empty() ? "" : ", ", neighbour.rank, neighbour.trouble);
    }
  }
  if (!troubles.empty()) {
    log_warn("memory is not shared with rank {}: sockets are used instead, which is slower",
             troubles);
  }
  if (result.turned_away > 0) {
    log_info(LogSubsystem::kInit, "{} that are no rank of this job asked for its memory",
             result.turned_away);
  }
}

}  // namespace

std::string memory_domain() {
  const std::string network = network_namespace();
  return network.empty() ? "" : fmt::format("{}/{}/{}", machine_name(), network, ::geteuid());
}

base::Result<MemoryOffer> MemoryOffer::make() {
  std::string domain = memory_domain();
  if (domain.empty()) {
    return base::Status(base::StatusCode::kUnavailable,
                        "/proc does not tell which network is used");
  }
  base::Result<OwnSegment> segment = OwnSegment::make();
  if (!segment.ok()) {
    return segment.status();
  }
  base::Result<MemoryDoor> door = MemoryDoor::open();
  if (!door.ok()) {
    return door.status();
  }
  return MemoryOffer{std::move(domain), std::move(segment).value(), std::move(door).value()};
}

LocalMemory LocalMemory::share(MemoryOffer offer, std::span<const RankCard> cards,
                               std::uint16_t rank, base::Duration patience) {
  LocalMemory memory(std::move(offer.segment), cards.size());
  HandoverResult result = hand_over(std::move(offer.door), memory.own_, cards, rank, patience);
  tell(result);
  for (Neighbour& neighbour : result.neighbours) {
    memory.neighbours_[neighbour.rank] = std::move(neighbour);
  }
  return memory;
}

bool LocalMemory::read(std::uint16_t peer, const collective::MemoryPlace& place,
                       base::MutableByteView to) {
  const bool is_there = peer < neighbours_.size() && neighbours_[peer] &&
                        neighbours_[peer]->segment && place.bytes == to.size() &&
                        neighbours_[peer]->segment->read(place.offset, to);
  if (is_there) {
    return true;
  }
  ++refused_;
  if (!failure_) {
    failure_ = {peer,
                {base::StatusCode::kPeerFailed,
                 fmt::format("rank {} says that {} bytes lie at offset {} of its segment, where "
                             "{} are due and {} end: refused. Where all ranks run one version, set "
                             "SPILLWAY_LOCAL_COPY=0 at every rank",
                             peer, place.bytes, place.offset, to.size(), kSegmentBytes)}};
  }
  return false;
}

}  // namespace spillway::runtime
