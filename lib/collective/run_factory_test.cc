// SPDX-License-Identifier: Apache-2.0
//
// Runs of several ranks, with the data of each on the carrier that it was made for. Packets have
// real bytes, and arrive at once.
#include "collective/run_factory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "codec/sample_data.h"
#include "transport/datagram_port.h"

namespace spillway::collective {
namespace {

using transport::Carrier;

constexpr std::uint16_t kCarriedRanks = 3;
constexpr packetize::Job kCarriedJob{.id = 7, .epoch = 1, .seed = 42};

// The data packets that travelled over one carrier.
struct CarrierUse {
  std::uint64_t packets = 0;
  std::size_t longest = 0;
};

class RunOfOneRank final : private ComputePool {
 public:
  RunOfOneRank(std::uint16_t rank, Carrier carrier, const Operation& operation)
      : port_(endpoint_config(rank), {}), factory_(engine_config(rank), layout()) {
    for (std::uint16_t peer = 0; peer < kCarriedRanks; ++peer) {
      if (peer != rank) {
        EXPECT_TRUE(port_.add_peer(peer, {}).ok());
        port_.endpoint().set_stream(peer, transport::StreamState::kReady);
      }
    }
    EXPECT_TRUE(factory_.admit(operation).ok());
    run_ = factory_.make(operation, 0, {.way = {.carrier = carrier}}, /*is_residual_free=*/true)
               .value();
  }

  transport::DatagramPort& port() { return port_; }
  const OperationRun& run() const { return *run_; }
  OperationReport& report() { return run_->report(); }

  void start(base::Instant now) {
    RunContext context = context_at(now);
    EXPECT_TRUE(run_->start(context).ok());
  }
  // Takes events and runs jobs until there are none.
  void settle(base::Instant now) {
    port_.endpoint().on_timeout(now);
    RunContext context = context_at(now);
    transport::Event event;
    while (true) {
      if (!jobs_.empty()) {
        ComputeJob& job = *jobs_.front();
        jobs_.pop_front();
        job.run();
        EXPECT_TRUE(run_->on_computed(job.tag, context).ok());
      } else if (port_.endpoint().poll_event(event)) {
        take(event, context);
      } else {
        return;
      }
    }
  }

 private:
  static ByteLayout layout() { return ByteLayout::make(engine_config(0).packet_limits).value(); }
  static EngineConfig engine_config(std::uint16_t rank) {
    EngineConfig config;
    config.group = {.rank = rank, .world = kCarriedRanks};
    config.job = kCarriedJob;
    config.packet_limits = {.mtu = 1500, .trim_bytes = 206};
    config.plan = {.piece_bytes = 64 * 1024};
    return config;
  }
  static transport::EndpointConfig endpoint_config(std::uint16_t rank) {
    transport::EndpointConfig config;
    config.job = kCarriedJob.id;
    config.epoch = kCarriedJob.epoch;
    config.rank = rank;
    config.limits.early_bytes = 1 << 20;
    return config;
  }

  RunContext context_at(base::Instant now) { return {port_.endpoint(), *this, now}; }
  void submit(ComputeJob& job) override { jobs_.push_back(&job); }
  void take(const transport::Event& event, RunContext& context) {
    if (const auto* received = std::get_if<transport::ReceiveReport>(&event)) {
      EXPECT_TRUE(run_->on_received(*received, context).ok());
    } else if (const auto* sent = std::get_if<transport::SendReport>(&event)) {
      EXPECT_TRUE(run_->on_sent(*sent, context).ok());
    } else if (const auto* summed = std::get_if<transport::SumReport>(&event)) {
      EXPECT_TRUE(run_->on_summed(*summed, context).ok());
    } else {
      ADD_FAILURE() << "event " << event.index();
    }
  }

  transport::DatagramPort port_;
  RunFactory factory_;
  std::deque<ComputeJob*> jobs_;
  std::unique_ptr<OperationRun> run_;
};

// An all-reduce of the ranks' own numbers, carried out by runs for one carrier.
class CarriedAllReduce {
 public:
  static constexpr std::size_t kCount = 200'000;

  CarriedAllReduce(Carrier carrier, const std::optional<Tolerance>& tolerance) {
    for (std::uint16_t rank = 0; rank < kCarriedRanks; ++rank) {
      inputs_.push_back(codec::gaussian_values(kCount, rank + 1));
      outputs_.emplace_back(kCount);
    }
    for (std::uint16_t rank = 0; rank < kCarriedRanks; ++rank) {
      Operation operation;
      operation.count = kCount;
      operation.input = inputs_[rank].data();
      operation.output = outputs_[rank].data();
      operation.tolerance = tolerance;
      ranks_.push_back(std::make_unique<RunOfOneRank>(rank, carrier, operation));
    }
    for (const auto& rank : ranks_) {
      rank->start(now_);
    }
    for (int rounds = 0; rounds < 100'000 && !is_over(); ++rounds) {
      now_ = now_ + base::microseconds(20);
      for (const auto& rank : ranks_) {
        transmit(*rank);
        rank->settle(now_);
      }
    }
    EXPECT_TRUE(is_over());
  }

  const std::vector<float>& output(std::uint16_t rank) const { return outputs_[rank]; }
  const CarrierUse& use(Carrier carrier) const { return uses_[static_cast<std::size_t>(carrier)]; }
  double largest_error() const {
    double largest = 0.0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double sum = double{inputs_[0][i]} + inputs_[1][i] + inputs_[2][i];
      largest = std::max(largest, std::abs(sum - outputs_[0][i]));
    }
    return largest;
  }

 private:
  bool is_over() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
      return rank->run().is_done() && rank->run().is_idle();
    });
  }
  void transmit(RunOfOneRank& rank) {
    transport::Route route;
    while (const std::size_t size = rank.port().poll_datagram(now_, buffer_, route)) {
      if (!route.is_control) {
        CarrierUse& use = uses_[static_cast<std::size_t>(route.carrier)];
        ++use.packets;
        use.longest = std::max(use.longest, size);
      }
      ranks_[route.peer]->port().on_datagram(base::ByteView(buffer_).first(size), false, now_);
    }
  }

  std::vector<std::vector<float>> inputs_;
  std::vector<std::vector<float>> outputs_;
  std::vector<std::unique_ptr<RunOfOneRank>> ranks_;
  std::array<CarrierUse, transport::kCarriers> uses_{};
  std::array<std::uint8_t, SPILLWAY_MAX_PACKET> buffer_;
  base::Instant now_ = base::Instant(base::milliseconds(1));
};

constexpr std::size_t kLongestDatagram = 1500 - 28;
// All that travels once, in packets of a stream.
constexpr std::size_t kFewPackets =
    CarriedAllReduce::kCount * sizeof(float) * 2 * (kCarriedRanks - 1) / 8000 + 200;

void expect_same_output(const CarriedAllReduce& one, const CarriedAllReduce& other) {
  for (std::uint16_t rank = 0; rank < kCarriedRanks; ++rank) {
    EXPECT_EQ(one.output(rank), other.output(0)) << rank;
  }
}

TEST(RunFactory, ExactDataTakesTheCarrierThatItIsMadeFor) {
  const CarriedAllReduce datagrams(Carrier::kDatagrams, std::nullopt);
  EXPECT_EQ(datagrams.use(Carrier::kStream).packets, 0U);
  EXPECT_LE(datagrams.use(Carrier::kDatagrams).longest, kLongestDatagram);
  const CarriedAllReduce stream(Carrier::kStream, std::nullopt);
  EXPECT_EQ(stream.use(Carrier::kDatagrams).packets, 0U);
  EXPECT_GT(stream.use(Carrier::kStream).longest, 8000U);
  EXPECT_LE(stream.use(Carrier::kStream).packets, kFewPackets);
  EXPECT_LT(stream.largest_error(), 1e-5);
  expect_same_output(stream, datagrams);
}

TEST(RunFactory, TolerantDataTakesTheStreamInLongPackets) {
  const Tolerance tolerance{.precision = 12, .gather_precision = 12, .loss_bound_ppm = 100'000};
  const CarriedAllReduce stream(Carrier::kStream, tolerance);
  EXPECT_GT(stream.use(Carrier::kStream).longest, 4000U);
  EXPECT_LE(stream.use(Carrier::kStream).packets, kFewPackets);
  EXPECT_EQ(stream.use(Carrier::kDatagrams).packets, 0U);
  EXPECT_LT(stream.largest_error(), 0.05);
  expect_same_output(stream, stream);
}

TEST(RunFactory, EntropyCodedPiecesTakeTheStreamAndHellosDoNot) {
  const Tolerance tolerance{.codec = Codec::kEntropy, .precision = 8, .loss_bound_ppm = 0};
  const CarriedAllReduce datagrams(Carrier::kDatagrams, tolerance);
  const CarriedAllReduce stream(Carrier::kStream, tolerance);
  EXPECT_GT(stream.use(Carrier::kStream).longest, 8000U);
  EXPECT_EQ(stream.use(Carrier::kDatagrams).packets,
            std::uint64_t{kCarriedRanks} * (kCarriedRanks - 1));
  expect_same_output(stream, datagrams);
}

TEST(RunFactory, SumsThatSwitchesMayAddStayWithDatagrams) {
  const Tolerance tolerance{.codec = Codec::kLevels, .precision = 8, .loss_bound_ppm = 0};
  const CarriedAllReduce sums(Carrier::kStream, tolerance);
  EXPECT_EQ(sums.use(Carrier::kStream).packets, 0U);
  EXPECT_LE(sums.use(Carrier::kDatagrams).longest, kLongestDatagram);
  expect_same_output(sums, sums);
}

}  // namespace
}  // namespace spillway::collective
