// SPDX-License-Identifier: Apache-2.0
//
// Three ranks form a sum over a network under the input's control, which delivers, drops,
// duplicates, cuts, damages and forges sum packets and lets time pass. Each byte of the input is
// one such act; its upper half says which datagram.
//
// Nothing may crash and memory stays bounded. Tags reject damage, so once the network works again
// every rank has the sum of all parts in every chunk.
#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "fuzzing.h"
#include "transport/datagram_port.h"

using namespace spillway;
using spillway::fuzzing::require;

namespace {

constexpr std::uint16_t kRanks = 3;
constexpr std::uint32_t kChunks = 12;
constexpr std::size_t kMaxInFlight = 512;
constexpr int kFinalSteps = 20'000;
constexpr std::size_t kMemoryBound = 2 * 1024 * 1024;

struct Datagram {
  std::uint16_t to;
  std::vector<std::uint8_t> bytes;
};

class World {
 public:
  World() {
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      transport::EndpointConfig config;
      config.rank = rank;
      ports_.push_back(
          std::make_unique<transport::DatagramPort>(config, transport::SessionConfig()));
      words_.emplace_back(std::size_t{kChunks} * SPILLWAY_SUM_WORDS, rank + 1U);
      ranks_.emplace_back(kChunks);
    }
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      for (std::uint16_t other = 0; other < kRanks; ++other) {
        require(rank == other || ports_[rank]->add_peer(other, now_).ok());
      }
      ports_[rank]->endpoint().retire_before(0);
    }
  }

  void begin(std::uint16_t rank) {
    if (has_begun_[rank]) {
      return;
    }
    has_begun_[rank] = true;
    wire::RankSet others = wire::RankSet::below(kRanks);
    others.erase(0);
    const transport::SumOptions options{.id = {.operation = 1, .signature = 2, .owner = 0},
                                        .contributors = others,
                                        .recipients = others,
                                        .need = {2, 0},
                                        .words = words_[rank],
                                        .ranks = ranks_[rank]};
    require(ports_[rank]->endpoint().begin_sum(options, now_).ok());
    collect();
  }

  void act(std::uint8_t byte) {
    if (byte % 16 == 0) {
      pass(base::milliseconds(byte / 16));
      return;
    }
    if (byte % 16 == 1) {
      begin((byte / 16) % kRanks);
      return;
    }
    if (in_flight_.empty()) {
      return;
    }
    const std::size_t which = byte / 16 % in_flight_.size();
    Datagram datagram = in_flight_[which];
    const bool is_kept = byte % 16 == 3;
    if (!is_kept) {
      in_flight_.erase(in_flight_.begin() + static_cast<long>(which));
    }
    if (byte % 16 == 4) {
      datagram.bytes.resize(datagram.bytes.size() / 2);
    } else if (byte % 16 == 5) {
      datagram.bytes[(byte * 37U + damaged_++) % datagram.bytes.size()] ^= 0x10;
    }
    if (byte % 16 != 2) {
      arrive(datagram);
    }
  }

  // Delivers arbitrary bytes as a sum packet.
  void make_up(const std::uint8_t* data, std::size_t size) {
    Datagram datagram{static_cast<std::uint16_t>(size % kRanks), {data, data + size}};
    if (!datagram.bytes.empty()) {
      datagram.bytes[0] = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_SUM;
    }
    arrive(datagram);
  }

  void finish() {
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      begin(rank);
    }
    for (int step = 0; step < kFinalSteps && over_ < kRanks; ++step) {
      if (in_flight_.empty()) {
        pass(base::milliseconds(5));
        continue;
      }
      const Datagram datagram = std::move(in_flight_.front());
      in_flight_.pop_front();
      arrive(datagram);
    }
    require(over_ == kRanks);
    for (const std::vector<std::uint64_t>& words : words_) {
      require(
          std::all_of(words.begin(), words.end(), [](std::uint64_t word) { return word == 6; }));
    }
  }

 private:
  void arrive(const Datagram& datagram) {
    ports_[datagram.to]->on_datagram(datagram.bytes, false, now_);
    collect();
  }

  void pass(base::Duration time) {
    now_ = now_ + time;
    for (const auto& port : ports_) {
      port->endpoint().on_timeout(now_);
    }
    collect();
  }

  void collect() {
    std::vector<std::uint8_t> buffer(SPILLWAY_MAX_PACKET);
    for (const auto& port : ports_) {
      transport::Route route;
      while (const std::size_t size = port->poll_datagram(now_, buffer, route)) {
        if (in_flight_.size() < kMaxInFlight) {
          in_flight_.push_back(
              {route.peer, {buffer.begin(), buffer.begin() + static_cast<long>(size)}});
        }
      }
      transport::Event event;
      while (port->endpoint().poll_event(event)) {
        const auto* report = std::get_if<transport::SumReport>(&event);
        over_ += report != nullptr && report->stage == transport::SumStage::kOver ? 1 : 0;
        require(!std::holds_alternative<transport::UnexpectedMessage>(event));
      }
      require(port->endpoint().memory_bytes() < kMemoryBound);
    }
  }

  base::Instant now_;
  std::size_t damaged_ = 0;
  int over_ = 0;
  std::vector<std::unique_ptr<transport::DatagramPort>> ports_;
  std::vector<std::vector<std::uint64_t>> words_;
  std::vector<std::vector<wire::RankSet>> ranks_;
  std::array<bool, kRanks> has_begun_{};
  std::deque<Datagram> in_flight_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  World world;
  const std::size_t acts = std::min<std::size_t>(size, 300);
  for (std::size_t i = 0; i < acts; ++i) {
    world.act(data[i]);
  }
  world.make_up(data + acts, size - acts);
  world.finish();
  return 0;
}
