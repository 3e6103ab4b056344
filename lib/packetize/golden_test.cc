// SPDX-License-Identifier: Apache-2.0
//
// Golden packets: tests/golden/*.hex holds the bytes of a few packets, made from fixed inputs.
// Every machine and every kernel table must produce them, and read them back. Set
// SPILLWAY_UPDATE_GOLDEN=1 to write them anew after a deliberate change of the wire format (which
// also changes its version).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "base/random.h"
#include "packetize/depacketizer.h"
#include "packetize/packetizer.h"

namespace spillway::packetize {
namespace {

struct GoldenCase {
  const char* name;
  std::size_t length;
  Encoding encoding;
  std::size_t packet;  // which of the message's packets is kept
  wire::Protection protection = wire::Protection::kTags;
  enum class Content { kUniform, kZero, kNonFinite, kSpike } content = Content::kUniform;
};

const std::vector<GoldenCase>& golden_cases() {
  using Content = GoldenCase::Content;
  static const std::vector<GoldenCase> cases = {
      {"planes16", 10'000, {.precision = 16}, 3},
      {"planes16_encrypted", 10'000, {.precision = 16}, 3, wire::Protection::kEncryption},
      {"planes8", 10'000, {.precision = 8}, 0},
      {"planes12_last_packet", 10'000, {.precision = 12}, 11},
      {"planes32", 4'096, {.precision = 32, .row_log2 = 12}, 5},
      {"zero_row", 300, {.precision = 8}, 0, wire::Protection::kTags, Content::kZero},
      {"non_finite_row", 300, {.precision = 8}, 0, wire::Protection::kTags, Content::kNonFinite},
      {"spike_row", 300, {.precision = 8}, 0, wire::Protection::kTags, Content::kSpike},
  };
  return cases;
}

std::vector<float> content_of(const GoldenCase& golden) {
  std::vector<float> tensor(golden.length, 0.0F);
  if (golden.content == GoldenCase::Content::kSpike) {
    tensor[100] = -2.5F;
  } else if (golden.content != GoldenCase::Content::kZero) {
    base::RandomSequence random(0x60D);
    for (float& value : tensor) {  // dyadic fractions: no libm in a golden file
      value = base::uniform_float(random.next_word()) - 0.5F;
    }
  }
  if (golden.content == GoldenCase::Content::kNonFinite) {
    tensor[7] = std::numeric_limits<float>::infinity();
  }
  return tensor;
}

constexpr Job kGoldenJob{.id = 0x0102, .epoch = 0x0304, .seed = 0x05060708090A0B0C};
constexpr std::uint64_t kGoldenNumber = 0x6162636465666768;
constexpr wire::MessageId kGoldenMessage{.operation = 0x1112131415161718,
                                         .signature = 0x2122232425262728,
                                         .piece = 0x3132,
                                         .source = 0x4142,
                                         .phase = wire::Phase::kGather};

wire::PacketAuth auth_of(const GoldenCase& golden) {
  const std::array<std::uint8_t, 16> secret = {'g', 'o', 'l', 'd', 'e', 'n', ' ', 'j',
                                               'o', 'b', ' ', 's', 'e', 'c', 'r', 't'};
  return wire::PacketAuth::of_secret(secret, golden.protection).value();
}

std::vector<std::uint8_t> make_packet(const GoldenCase& golden, const codec::Kernels& kernels) {
  const PacketPlan plan = PacketPlan::make(golden.length, {}, golden.encoding).value();
  const wire::PacketAuth auth = auth_of(golden);
  wire::DataStamp stamp;
  stamp.message = kGoldenMessage;
  stamp.number = kGoldenNumber;
  stamp.destination = 0x7172;
  stamp.priority = 5;
  stamp.importance = 2;
  stamp.path = 9;
  stamp.timestamp_us = 0x51525354;
  const PacketBuffer packets =
      Packetizer(plan, kernels).packetize(content_of(golden), kGoldenJob, stamp, auth);
  const base::ByteView packet = packets[golden.packet];
  return {packet.begin(), packet.end()};
}

std::string path_of(const GoldenCase& golden) {
  return fmt::format("{}/{}.hex", SPILLWAY_GOLDEN, golden.name);
}

std::string to_hex(base::ByteView bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    text += fmt::format("{:02x}{}", bytes[i], i % 32 == 31 || i + 1 == bytes.size() ? "\n" : "");
  }
  return text;
}

std::string read_text(const std::string& path) {
  const std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class GoldenPacket : public testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenPacket, IsProducedByEveryKernelTable) {
  if (std::getenv("SPILLWAY_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path_of(GetParam())) << to_hex(make_packet(GetParam(), codec::scalar_kernels()));
  }
  const std::string expected = read_text(path_of(GetParam()));
  ASSERT_FALSE(expected.empty()) << path_of(GetParam());
  for (const codec::Kernels* kernels : codec::available_kernels()) {
    EXPECT_EQ(to_hex(make_packet(GetParam(), *kernels)), expected) << kernels->name;
  }
}

TEST_P(GoldenPacket, IsReadBackToTheSameCoordinates) {
  const GoldenCase& golden = GetParam();
  const std::string text = read_text(path_of(golden));
  std::vector<std::uint8_t> packet;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
      packet.push_back(static_cast<std::uint8_t>(std::stoi(line.substr(i, 2), nullptr, 16)));
    }
  }
  const PacketPlan plan = PacketPlan::make(golden.length, {}, golden.encoding).value();
  const wire::PacketAuth auth = auth_of(golden);
  std::vector<float> tensor(golden.length);
  Depacketizer receiver(plan, kGoldenJob, kGoldenMessage, tensor);
  EXPECT_EQ(receiver.add(packet, auth, kGoldenNumber), PacketOutcome::kWhole);
  EXPECT_EQ(receiver.finish().whole, 1U);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenPacket, testing::ValuesIn(golden_cases()),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace spillway::packetize
