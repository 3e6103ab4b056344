// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/sum_stack.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/check.h"
#include "sim/stacks/datagram_packet.h"
#include "switch/dataplane/sum_words.h"
#include "wire/traffic_class.h"

namespace spillway::sim {
namespace {

// A header much like one of a rank of the job.
spillway_sum_image forged_header(const SumJobPlan& job, HostId attacker,
                                 base::RandomSequence& random) {
  spillway_sum_image image = {};
  spillway_sum_header& header = image.fields;
  const std::uint64_t operation = random.next_below(job.operations);
  const std::uint64_t piece = random.next_below(job.owners.size());
  const std::uint16_t owner = job.owners[piece];
  const auto rank = static_cast<std::uint16_t>(random.next_below(job.ranks));
  header.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_SUM;
  header.common.job = job.number;
  header.common.operation = static_cast<std::uint32_t>(operation);
  header.common.signature = sum_signature(job.number, operation);
  header.common.piece = static_cast<std::uint16_t>(piece);
  header.common.packet = static_cast<std::uint16_t>(random.next_below(job.chunks));
  header.common.source = rank;
  header.kind = static_cast<std::uint8_t>(1 + random.next_below(SPILLWAY_SUM_KINDS - 1));
  // No host sends to itself.
  const bool goes_out = header.kind == SPILLWAY_SUM_FLUSH || header.kind == SPILLWAY_SUM_RESULT ||
                        attacker == job.first_host + owner;
  header.common.destination = goes_out ? rank : owner;
  header.marks = static_cast<std::uint8_t>(random.next_below(256));
  header.level = static_cast<std::uint8_t>(random.next_below(SPILLWAY_SUM_LEVELS + 1));
  header.urgency = static_cast<std::uint8_t>(random.next_below(256));
  header.owner = owner;
  header.need[0] = static_cast<std::uint8_t>(random.next_below(5));
  header.need[1] = static_cast<std::uint8_t>(random.next_below(5));
  header.ranks[0] = 1ULL << rank | random.next_below(1ULL << job.ranks);
  header.recipients[0] = random.next_below(1ULL << job.ranks);
  header.tag = {random.next_word(), random.next_word()};
  return image;
}

}  // namespace

std::uint64_t sum_signature(std::uint16_t job, std::uint64_t operation) {
  return std::uint64_t{job} << 32 | (operation + 5);
}

// ------------------------------------------------------------------ a rank

SumStack::SumStack(const Config& config, PacketPool& pool, Listener on_report)
    : config_(config),
      pool_(pool),
      on_report_(std::move(on_report)),
      port_(config.endpoint, config.session) {
  for (std::uint16_t rank = 0; rank < config.ranks; ++rank) {
    if (rank != config.endpoint.rank) {
      SPILLWAY_CHECK(port_.add_peer(rank, base::Instant()).ok());
    }
  }
  port_.endpoint().retire_before(0);
}

base::Status SumStack::begin(const transport::SumOptions& options, base::Instant now) {
  base::Status status = port_.endpoint().begin_sum(options, now);
  tell();
  return status;
}

void SumStack::on_packet(Packet& packet, base::Instant now) {
  port_.on_datagram(pool_.payload(packet), packet.ecn == SPILLWAY_ECN_CE, now);
  tell();
}

void SumStack::on_timeout(base::Instant now) {
  port_.endpoint().on_timeout(now);
  tell();
}

void SumStack::tell() {
  transport::Event event;
  while (port_.endpoint().poll_event(event)) {
    if (const auto* report = std::get_if<transport::SumReport>(&event)) {
      on_report_(*report);
    }
  }
}

bool SumStack::poll_transmit(base::Instant now, Packet& packet) {
  transport::Route route;
  const std::size_t size = port_.poll_datagram(now, buffer_, route);
  if (size == 0) {
    return false;
  }
  packet.to = config_.first_host + route.peer;
  packet.label = std::uint32_t{config_.endpoint.job} << 8 | route.path;
  packet.stack = config_.stack;
  fill_packet(route, {buffer_.data(), size}, pool_, packet);
  return true;
}

// ------------------------------------------------------------------ the forger

SumForger::SumForger(const SumWorld& world, PacketPool& pool)
    : world_(world), pool_(pool), left_(world.attack->packets), random_(world.seed) {}

bool SumForger::poll_transmit(base::Instant now, Packet& packet) {
  if (left_ == 0 || now < next_) {
    return false;
  }
  --left_;
  next_ = now + world_.attack->gap;
  const std::size_t index = random_.next_below(world_.jobs.size());
  const SumJobPlan& job = world_.jobs[index];
  const spillway_sum_image image = forged_header(job, world_.attack->host, random_);
  packet.to = job.first_host + image.fields.common.destination;
  if (packet.to == world_.attack->host) {
    return false;
  }
  std::vector<std::uint8_t> bytes(spillway_sum_packet_size(image.fields.kind));
  spillway_store_sum_header(bytes.data(), &image);
  for (std::size_t i = sizeof(spillway_sum_header); i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(random_.next_word());
  }
  packet.label = static_cast<std::uint32_t>(random_.next_below(4));
  packet.stack = static_cast<std::uint8_t>(index);
  fill_packet({.is_control = spillway_sum_has_words(image.fields.kind) == 0}, bytes, pool_, packet);
  return true;
}

}  // namespace spillway::sim
