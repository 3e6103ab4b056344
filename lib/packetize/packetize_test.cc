// SPDX-License-Identifier: Apache-2.0
//
// Tensors through packets and back, with everything a network may do in between.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "codec/sample_data.h"
#include "packetize/depacketizer.h"
#include "packetize/packetizer.h"

namespace spillway::packetize {
namespace {

using codec::energy;
using codec::gaussian_values;
using codec::nmse;

constexpr Job kJob{.id = 11, .epoch = 3, .seed = 0x5EED};
constexpr wire::MessageId kMessage{.operation = 1, .signature = 2, .piece = 3, .source = 4};

// A Depacketizer with the checks that all packets of these tests have.
class Receiver {
 public:
  Receiver(const PacketPlan& plan, const Job& job, const wire::MessageId& message,
           const wire::PacketAuth& auth, std::span<float> out,
           codec::Estimate estimate = codec::Estimate::kUnbiased)
      : auth_(auth), depacketizer_(plan, job, message, out, estimate) {}

  PacketOutcome add(base::ByteView packet) { return depacketizer_.add(packet, auth_); }
  DeliveryReport finish() { return depacketizer_.finish(); }

 private:
  const wire::PacketAuth& auth_;
  Depacketizer depacketizer_;
};

// A tensor, its plan and its packets; makes receivers on demand.
class Transfer {
 public:
  Transfer(std::vector<float> tensor, const PacketLimits& limits, const Encoding& encoding,
           wire::Protection protection = wire::Protection::kTags)
      : tensor_(std::move(tensor)),
        plan_(PacketPlan::make(tensor_.size(), limits, encoding).value()),
        auth_(seeded_auth(kJob, protection)),
        packets_(Packetizer(plan_).packetize(tensor_, kJob, {.message = kMessage}, auth_)) {}

  std::span<const float> tensor() const { return tensor_; }
  const PacketPlan& plan() const { return plan_; }
  std::size_t size() const { return packets_.size(); }
  base::ByteView packet(std::size_t index) const { return packets_[index]; }
  // The packet after a switch trimmed its frame to `frame_bytes`.
  base::ByteView cut(std::size_t index, std::size_t frame_bytes) const {
    return packets_[index].first(std::min(packets_[index].size(), frame_bytes - 42));
  }
  Receiver receiver(std::span<float> out,
                    codec::Estimate estimate = codec::Estimate::kUnbiased) const {
    return Receiver(plan_, kJob, kMessage, auth_, out, estimate);
  }

 private:
  std::vector<float> tensor_;
  PacketPlan plan_;
  wire::PacketAuth auth_;
  PacketBuffer packets_;
};

TEST(Packetize, RoundTripsEveryKindOfLength) {
  for (const std::size_t length :
       {1U, 2U, 31U, 32U, 255U, 256U, 257U, 8191U, 8192U, 8193U, 20000U}) {
    for (const unsigned planes : {8U, 12U, 16U, 32U}) {
      const Transfer transfer(gaussian_values(length, length), {}, {.precision = planes});
      std::vector<float> out(length, 99.0F);
      Receiver receiver = transfer.receiver(out);
      for (std::size_t i = 0; i < transfer.size(); ++i) {
        EXPECT_EQ(receiver.add(transfer.packet(i)), PacketOutcome::kWhole);
      }
      const DeliveryReport report = receiver.finish();
      EXPECT_EQ(report.whole, report.expected);
      EXPECT_EQ(report.missing + report.trimmed + report.lost_rows, 0U);
      EXPECT_LT(nmse(out, transfer.tensor()),
                3 * codec::expected_nmse(planes, codec::Estimate::kUnbiased) + 1e-12)
          << length << " at " << planes;
    }
  }
}

TEST(Packetize, AnEmptyTensorIsAnEmptyMessage) {
  const Transfer transfer({}, {}, {});
  EXPECT_EQ(transfer.size(), 0U);
  std::vector<float> out;
  const DeliveryReport report = transfer.receiver(out).finish();
  EXPECT_EQ(report.expected, 0U);
  EXPECT_EQ(report.lost_fraction(), 0.0);
}

TEST(Packetize, OrderAndDuplicatesDoNotMatter) {
  const Transfer transfer(gaussian_values(50'000, 1), {}, {});
  std::vector<float> in_order(50'000);
  std::vector<float> shuffled(50'000);
  Receiver first = transfer.receiver(in_order);
  for (std::size_t i = 0; i < transfer.size(); ++i) {
    first.add(transfer.packet(i));
  }
  first.finish();

  std::vector<std::size_t> order(transfer.size());
  std::iota(order.begin(), order.end(), 0);
  order.insert(order.end(), order.begin(), order.end());
  base::RandomSequence random(3);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.next_below(i)]);
  }
  Receiver second = transfer.receiver(shuffled);
  for (const std::size_t index : order) {
    second.add(transfer.packet(index));
  }
  const DeliveryReport report = second.finish();
  EXPECT_EQ(in_order, shuffled);
  EXPECT_EQ(report.duplicates, transfer.size());
  EXPECT_EQ(report.whole, transfer.size());
}

TEST(Packetize, ALongerCopyReplacesAShorterOne) {
  const Transfer transfer(gaussian_values(8192, 2), {}, {});
  std::vector<float> out(8192);
  Receiver receiver = transfer.receiver(out);
  for (std::size_t i = 0; i < transfer.size(); ++i) {
    EXPECT_EQ(receiver.add(transfer.cut(i, 206)), PacketOutcome::kTrimmed);
    EXPECT_EQ(receiver.add(transfer.packet(i)), PacketOutcome::kImproved);
    EXPECT_EQ(receiver.add(transfer.cut(i, 206)), PacketOutcome::kDuplicate);
  }
  const DeliveryReport report = receiver.finish();
  EXPECT_EQ(report.whole, transfer.size());
  EXPECT_EQ(report.improved, transfer.size());
  EXPECT_LT(nmse(out, transfer.tensor()), 1e-8);
}

TEST(Packetize, TrimmedToTheFabricsSizeGivesTheErrorOfThePlanesThatFit) {
  for (const wire::Protection protection :
       {wire::Protection::kTags, wire::Protection::kEncryption}) {
    for (const unsigned mtu : {1500U, 4096U, 9000U}) {
      for (const unsigned trim : {128U, 206U, 256U, 512U}) {
        const Transfer transfer(gaussian_values(65536, trim), {.mtu = mtu, .trim_bytes = trim}, {},
                                protection);
        std::vector<float> out(65536);
        Receiver receiver = transfer.receiver(out);
        for (std::size_t i = 0; i < transfer.size(); ++i) {
          const unsigned jitter = i % 9;  // real trims vary by +-4 bytes
          receiver.add(transfer.cut(i, trim - 4 + jitter));
        }
        const DeliveryReport report = receiver.finish();
        // A row's last packet may be shorter than the head and then arrives whole.
        EXPECT_EQ(report.trimmed + report.whole, report.expected) << mtu << " " << trim;
        EXPECT_LE(report.whole, transfer.plan().layout().row_count());
        const std::size_t count = transfer.plan().coordinates_per_packet();
        const auto planes = static_cast<unsigned>(transfer.plan().head_bytes(count) * 8 / count);
        const double error = nmse(out, transfer.tensor());
        EXPECT_LE(error, 1.05 * codec::expected_nmse(planes, codec::Estimate::kUnbiased));
        EXPECT_GE(error, 0.95 * codec::expected_nmse(planes + 1, codec::Estimate::kUnbiased));
      }
    }
  }
}

TEST(Packetize, HeadsAloneAreUnbiasedOnAverage) {
  const std::vector<float> tensor = gaussian_values(1000, 9);
  std::vector<double> mean(tensor.size());
  constexpr int kSteps = 400;
  for (int step = 0; step < kSteps; ++step) {
    wire::MessageId message = kMessage;
    message.operation = static_cast<std::uint32_t>(step);
    const PacketPlan plan = PacketPlan::make(tensor.size(), {}, {}).value();
    const wire::PacketAuth auth = seeded_auth(kJob);
    const PacketBuffer packets =
        Packetizer(plan).packetize(tensor, kJob, {.message = message}, auth);
    std::vector<float> out(tensor.size());
    Receiver receiver(plan, kJob, message, auth, out);
    for (std::size_t i = 0; i < packets.size(); ++i) {
      if (i != static_cast<std::size_t>(step) % packets.size()) {  // one packet is lost as well
        receiver.add(packets[i].first(164));
      }
    }
    receiver.finish();
    for (std::size_t i = 0; i < tensor.size(); ++i) {
      mean[i] += out[i] / double{kSteps};
    }
  }
  double gain = 0.0;
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    gain += mean[i] * tensor[i] / energy(tensor);
  }
  EXPECT_NEAR(gain, 1.0, 0.01);
}

TEST(Packetize, MissingPacketsCostTheirShareAndTheReportSaysWhich) {
  const Transfer transfer(gaussian_values(1 << 17, 4), {}, {});
  std::vector<float> out(1 << 17);
  Receiver receiver = transfer.receiver(out);
  for (std::size_t i = 0; i < transfer.size(); ++i) {
    if (i % 10 != 3) {
      receiver.add(transfer.packet(i));
    }
  }
  const DeliveryReport report = receiver.finish();
  EXPECT_EQ(report.missing, (transfer.size() + 6) / 10);
  EXPECT_EQ(report.whole + report.missing, report.expected);
  EXPECT_EQ(report.coordinates(), std::size_t{1} << 17);
  const double lost = report.lost_fraction();
  EXPECT_NEAR(report.mean_planes(), 16 * (1 - lost), 1e-9);
  EXPECT_NEAR(nmse(out, transfer.tensor()), lost / (1 - lost), 0.02);
}

TEST(Packetize, NonFiniteAndZeroRowsReachTheReceiver) {
  std::vector<float> tensor = gaussian_values(3 * 8192, 5);
  std::fill_n(tensor.begin(), 8192, 0.0F);
  tensor[8192 + 5] = std::numeric_limits<float>::infinity();
  const Transfer transfer(tensor, {}, {});
  std::vector<float> out(tensor.size());
  Receiver receiver = transfer.receiver(out);
  for (std::size_t i = 0; i < transfer.size(); ++i) {
    receiver.add(transfer.packet(i));
  }
  EXPECT_EQ(receiver.finish().non_finite_rows, 1U);
  EXPECT_TRUE(std::all_of(out.begin(), out.begin() + 8192, [](float v) { return v == 0.0F; }));
  EXPECT_TRUE(
      std::all_of(out.begin() + 8192, out.begin() + 16384, [](float v) { return std::isnan(v); }));
  EXPECT_LT(nmse(std::span(out).subspan(16384), std::span<const float>(tensor).subspan(16384)),
            1e-8);
}

TEST(Packetize, TheSmallestAndTheLargestFloatsAreValidInput) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float huge = std::numeric_limits<float>::max();
  for (const std::size_t length : {1U, 256U, 300U}) {
    for (const float value : {tiny, 1e-42F, 1e-38F, 1e38F, huge, -huge}) {
      const Transfer transfer(std::vector<float>(length, value), {}, {});
      std::vector<float> out(length);
      Receiver receiver = transfer.receiver(out);
      for (std::size_t i = 0; i < transfer.size(); ++i) {
        EXPECT_EQ(receiver.add(transfer.packet(i)), PacketOutcome::kWhole);
      }
      receiver.finish();
      // Scales of denormal rows have few bits; the largest float may round to infinity.
      const double share = std::fabs(value) < 1e-37F ? 0.25 : 0.01;
      const double allowed = std::max(share * std::fabs(double{value}), 2.0 * double{tiny});
      EXPECT_TRUE(std::isinf(out[0]) || std::fabs(double{out[0]} - value) <= allowed) << value;
    }
  }
}

TEST(Packetize, ForeignStaleAndMismatchedPacketsChangeNothing) {
  const Transfer transfer(gaussian_values(8192, 6), {}, {});
  std::vector<float> out(8192);
  const wire::PacketAuth auth = seeded_auth(kJob);

  wire::MessageId other_message = kMessage;
  other_message.operation = 2;
  Receiver other(transfer.plan(), kJob, other_message, auth, out);
  EXPECT_EQ(other.add(transfer.packet(0)), PacketOutcome::kForeign);
  EXPECT_EQ(other.finish().foreign, 1U);

  // Another seed would rotate differently: the check refuses instead of decoding to noise.
  Job other_job = kJob;
  other_job.seed = 1;
  const wire::PacketAuth other_auth = seeded_auth(other_job);
  Receiver mismatched(transfer.plan(), other_job, kMessage, other_auth, out);
  EXPECT_EQ(mismatched.add(transfer.packet(0)), PacketOutcome::kFault);
  const DeliveryReport report = mismatched.finish();
  EXPECT_EQ(report.faults[static_cast<unsigned>(wire::PacketFault::kHeadCheck)], 1U);
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float v) { return v == 0.0F; }));

  // A sender with another packet size.
  const Transfer smaller(gaussian_values(8192, 6), {.mtu = 1000}, {});
  Receiver receiver = transfer.receiver(out);
  EXPECT_EQ(receiver.add(smaller.packet(0)), PacketOutcome::kInconsistent);
  EXPECT_EQ(receiver.finish().inconsistent, 1U);
}

TEST(Packetize, PacketsThatDisagreeAboutTheirRowAreNotMixed) {
  const Transfer one(gaussian_values(8192, 7), {}, {});
  const Transfer two(gaussian_values(8192, 8), {}, {});  // the same message, other content
  std::vector<float> out(8192);
  Receiver receiver = one.receiver(out);
  EXPECT_EQ(receiver.add(one.packet(0)), PacketOutcome::kWhole);
  EXPECT_EQ(receiver.add(two.packet(1)), PacketOutcome::kInconsistent);
}

TEST(Packetize, DamageOfEveryKindIsRefusedOrDecodesToABoundedEstimate) {
  const Transfer transfer(gaussian_values(30'000, 10), {}, {});
  base::RandomSequence random(77);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<float> out(30'000);
    Receiver receiver = transfer.receiver(out);
    for (std::size_t i = 0; i < transfer.size(); ++i) {
      const base::ByteView whole = transfer.packet(i);
      std::vector<std::uint8_t> packet(whole.begin(), whole.end());
      if (random.next_below(2) == 0) {
        packet.resize(random.next_below(packet.size() + 1));
      }
      for (std::uint64_t flips = random.next_below(3); flips > 0 && !packet.empty(); --flips) {
        packet[random.next_below(packet.size())] ^=
            static_cast<std::uint8_t>(1U << random.next_below(8));
      }
      receiver.add(packet);
    }
    const DeliveryReport report = receiver.finish();
    EXPECT_EQ(report.whole + report.trimmed + report.missing, report.expected);
    // Rescaling for lost packets can at most multiply a row by its number of packets.
    EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float v) { return std::fabs(v) < 1e3F; }));
  }
}

TEST(Packetize, WireBytesAreWhatIsSent) {
  const Transfer transfer(gaussian_values(30'000, 1), {}, {.precision = 12});
  std::size_t sent = 0;
  for (std::size_t i = 0; i < transfer.size(); ++i) {
    sent += transfer.packet(i).size();
  }
  EXPECT_EQ(sent, transfer.plan().wire_bytes());
}

}  // namespace
}  // namespace spillway::packetize
