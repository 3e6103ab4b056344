// SPDX-License-Identifier: Apache-2.0
#include "sim/switch_node.h"

#include <span>

namespace spillway::sim {
namespace {

// A finaliser of splitmix64's kind: every input bit moves every output bit.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

// Maps 32 random bits to [0, bound) without dividing.
std::uint32_t scale(std::uint32_t word, std::uint32_t bound) {
  return static_cast<std::uint32_t>((std::uint64_t{word} * bound) >> 32);
}

}  // namespace

std::uint32_t SwitchNode::choice_by_flow(const Packet& packet, std::uint32_t ways) const {
  const std::uint64_t addresses = (std::uint64_t{packet.from} << 32) | packet.to;
  const std::uint64_t hash = mix(mix(addresses ^ salt_) ^ packet.label);
  return scale(static_cast<std::uint32_t>(hash >> 32), ways);
}

std::uint32_t SwitchNode::next_in_turn(std::uint32_t ways) {
  turn_ = turn_ + 1 < ways ? turn_ + 1 : 0;
  return turn_;
}

OutputPort& SwitchNode::choose(const Packet& packet, base::Instant now) {
  const std::span<const PortNumber> ways = routes_.ports(routes_.group_of(packet.to));
  const auto count = static_cast<std::uint32_t>(ways.size());
  const std::uint32_t first = count == 1                            ? 0
                              : spreading_ == Spreading::kPerPacket ? next_in_turn(count)
                                                                    : choice_by_flow(packet, count);
  if (watches_links_) [[unlikely]] {
    for (std::uint32_t i = 0; i < count; ++i) {
      OutputPort& port = *ports_[ways[(first + i) % count]];
      if (!port.transmitter().down(now)) {
        return port;
      }
    }
  }
  return *ports_[ways[first]];
}

void SwitchNode::on_event(std::uint64_t argument, base::Instant now) {
  const auto index = static_cast<PacketIndex>(argument);
  choose((*pool_)[index], now).accept(index, now);
}

void SwitchNode::prefetch_early(std::uint64_t argument) const {
  pool_->prefetch(static_cast<PacketIndex>(argument));
}

void SwitchNode::prefetch_late(std::uint64_t argument) const {
  const Packet& packet = (*pool_)[static_cast<PacketIndex>(argument)];
  const std::span<const PortNumber> ways = routes_.ports(routes_.group_of(packet.to));
  if (ways.size() == 1 || spreading_ == Spreading::kPerFlow) {
    ports_[ways[choice_by_flow(packet, static_cast<std::uint32_t>(ways.size()))]]
        ->prefetch_accept();
  }
}

}  // namespace spillway::sim
