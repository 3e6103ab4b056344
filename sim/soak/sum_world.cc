// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/sum_soak.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"
#include "sim/packet.h"
#include "sim/soak/world.h"
#include "switch/dataplane/sum_words.h"
#include "wire/packet.h"

namespace spillway::sim {

// ------------------------------------------------------------------ worlds

namespace {

constexpr base::Duration kSumPatience = base::seconds(60);
constexpr std::uint64_t kMaxRestarts = 3;

class SumWorldBuilder {
 public:
  explicit SumWorldBuilder(std::uint64_t seed) : draw_(seed) { world_.seed = seed; }

  SumWorld build() {
    world_.text = OrderedText{"seed {}\n{}{}{}", world_.seed, draw_topology(),
                              draw_small_switch(draw_), draw_adders()}
                      .text;
    take();
    const std::uint64_t jobs = draw_.between(1, 3);
    for (std::uint64_t job = 0; job < jobs; ++job) {
      world_.jobs.push_back(draw_job(static_cast<std::uint16_t>(job + 1)));
    }
    draw_faults();
    take();
    draw_attack();
    return world_;
  }

 private:
  void take() {
    base::Result<scenario::Scenario> parsed = scenario::parse_scenario(world_.text);
    SPILLWAY_CHECK(parsed.ok());
    world_.scenario = std::move(parsed).value();
  }

  std::string draw_topology() {
    hosts_ = static_cast<std::uint32_t>(draw_.between(3, 10));
    is_one_switch_ = draw_.chance(0.5);
    return draw_small_topology(draw_, hosts_, is_one_switch_);
  }

  std::string draw_adder(std::string_view switches, std::uint32_t level) {
    const std::uint64_t slots = draw_.magnitude(1, 256);
    const auto policy =
        draw_.pick<std::string_view>({"static", "first-come", "preemptive", "preemptive"});
    std::string line =
        OrderedText{"aggregate switch={} level={} slots={} policy={} lease={}",
                    switches,
                    level,
                    slots,
                    policy,
                    as_text(draw_.time(base::microseconds(20), base::milliseconds(100)))}
            .text;
    if (policy == "static") {
      line += OrderedText{" pools={}", draw_.between(1, std::min<std::uint64_t>(slots, 3))}.text;
    }
    if (draw_.chance(0.2)) {
      line += OrderedText{" limits={}:{}", draw_.between(1, 3), draw_.between(1, slots)}.text;
    }
    return line + "\n";
  }

  std::string draw_adders() {
    if (is_one_switch_) {
      return draw_adder("switch0", draw_.chance(0.1) ? 1 : 0);
    }
    std::string lines;
    if (draw_.chance(0.85)) {
      lines += draw_adder("leaf*", draw_.chance(0.1) ? 1 : 0);
    }
    if (draw_.chance(0.7)) {
      lines += draw_adder("spine*", draw_.chance(0.15) ? 0 : 1);
    }
    return lines;
  }

  SumJobPlan draw_job(std::uint16_t number) {
    SumJobPlan job;
    job.number = number;
    job.ranks = static_cast<std::uint16_t>(draw_.between(2, hosts_));
    job.first_host = static_cast<HostId>(draw_.between(0, hosts_ - job.ranks));
    job.operations = static_cast<std::uint32_t>(draw_.between(1, 3));
    const std::uint64_t pieces = draw_.between(1, 3);
    for (std::uint64_t piece = 0; piece < pieces; ++piece) {
      job.owners.push_back(static_cast<std::uint16_t>(draw_.between(0, job.ranks - 1U)));
    }
    job.chunks = static_cast<std::uint32_t>(draw_.magnitude(1, 40));
    job.loss_bound_ppm = draw_.pick<std::uint32_t>({0, 0, 10'000, 100'000});
    job.urgency = static_cast<std::uint8_t>(draw_.between(0, 255));
    job.is_wrong_about_need = draw_.chance(0.15);
    job.owners_contribute = draw_.chance(0.8);
    job.gap = draw_.time(base::microseconds(1), base::milliseconds(2));
    job.jitter = draw_.time(base::nanoseconds(100), base::milliseconds(2));
    return job;
  }

  void draw_faults() {
    const base::Result<scenario::Topology> topology = scenario::build_topology(world_.scenario);
    SPILLWAY_CHECK(topology.ok());
    const base::Duration duration = base::milliseconds(5);
    SoakFaults faults(draw_, *topology, duration, base::milliseconds(10));
    world_.text += survivable_faults(faults.draw());
    for (std::uint64_t left = draw_.between(0, kMaxRestarts); left > 0; --left) {
      const std::uint64_t which = draw_.between(0, topology->switch_names.size() - 1);
      world_.text +=
          OrderedText{"fault kind=restart switch={} from={}", topology->switch_names[which],
                      as_text(draw_.time(base::microseconds(1), duration))}
              .text +
          "\n";
    }
    world_.limit = faults.over() + kSumPatience;
  }

  void draw_attack() {
    if (draw_.chance(0.4)) {
      world_.attack = SumAttack{.host = static_cast<HostId>(draw_.between(0, hosts_ - 1)),
                                .packets = static_cast<std::uint32_t>(draw_.between(5, 100)),
                                .gap = draw_.time(base::nanoseconds(500), base::microseconds(200))};
    }
  }

  SoakDraw draw_;
  SumWorld world_;
  std::uint32_t hosts_ = 0;
  bool is_one_switch_ = true;
};

}  // namespace

SumWorld draw_sum_world(std::uint64_t seed) {
  return SumWorldBuilder(seed).build();
}

std::string describe(const SumWorld& world) {
  std::string text = fmt::format("# world of sums {}\n{}", world.seed, world.text);
  for (const SumJobPlan& job : world.jobs) {
    text += fmt::format(
        "# job {}: {} ranks from host {}, {} operations of {} pieces (owners {}) of {} chunks, "
        "bound {} ppm, urgency {}{}{}, {} apart, ranks up to {} later\n",
        job.number, job.ranks, job.first_host, job.operations, job.owners.size(),
        fmt::join(job.owners, " "), job.chunks, job.loss_bound_ppm, job.urgency,
        job.is_wrong_about_need ? ", wrong about need" : "",
        job.owners_contribute ? "" : ", owners contribute nothing", as_text(job.gap),
        as_text(job.jitter));
  }
  if (world.attack) {
    text += fmt::format("# attacker on host {}: {} packets, {} apart\n", world.attack->host,
                        world.attack->packets, as_text(world.attack->gap));
  }
  return text;
}

// ------------------------------------------------------------------ stacks

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
  header.common.operation = wire::low_counter(operation);
  header.signature = sum_signature(job.number, operation);
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
