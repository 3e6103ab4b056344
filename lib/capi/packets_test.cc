// SPDX-License-Identifier: Apache-2.0
//
// The C interface through its C++ wrapper, and its error cases.
#include <gtest/gtest.h>
#include <spillway/spillway.hpp>

#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace {

std::vector<float> ramp(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::sin(0.1F * static_cast<float>(i));
  }
  return values;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0;
  double energy = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += std::pow(a[i] - b[i], 2);
    energy += std::pow(b[i], 2);
  }
  return error / energy;
}

TEST(CApi, RoundTripWithTrimmedAndLostPackets) {
  const std::vector<float> sent = ramp(20'000);
  const spillway_packet_options options = spillway::default_options();
  const spillway::Packets packets(sent, options);
  std::vector<float> received(sent.size());
  spillway::Assembly assembly(received, options);
  for (std::size_t i = 1; i < packets.size(); ++i) {  // packet 0 is lost
    const auto packet = packets[i];
    const bool trimmed = i % 5 == 0;
    EXPECT_EQ(assembly.add(trimmed ? packet.first(164) : packet),
              trimmed ? SPILLWAY_OUTCOME_TRIMMED : SPILLWAY_OUTCOME_WHOLE);
  }
  const spillway_delivery_report report = assembly.finish();
  EXPECT_EQ(report.expected, packets.size());
  EXPECT_EQ(report.missing, 1U);
  EXPECT_EQ(report.trimmed, (packets.size() - 1) / 5);
  EXPECT_EQ(report.whole + report.trimmed + report.missing, report.expected);
  EXPECT_GT(report.lost_fraction, 0.0);
  EXPECT_LT(relative_error(received, sent), 0.25);
}

TEST(CApi, KeyedPacketsNeedTheKey) {
  const std::array<std::uint8_t, 16> key = {42};
  spillway_packet_options options = spillway::default_options();
  options.key = key.data();
  options.key_size = key.size();
  const std::vector<float> sent = ramp(1000);
  const spillway::Packets packets(sent, options);
  std::vector<float> received(sent.size());

  spillway::Assembly with_key(received, options);
  EXPECT_EQ(with_key.add(packets[0]), SPILLWAY_OUTCOME_WHOLE);
  options.key = nullptr;
  options.key_size = 0;
  spillway::Assembly without_key(received, options);
  EXPECT_EQ(without_key.add(packets[0]), SPILLWAY_OUTCOME_REFUSED);
}

TEST(CApi, BadArgumentsAreRefusedWithASentence) {
  const std::vector<float> values = ramp(10);
  spillway_packets* packets = nullptr;
  spillway_packet_options options = spillway::default_options();

  options.trim_bytes = 50;
  EXPECT_EQ(spillway_packetize(values.data(), values.size(), &options, &packets),
            SPILLWAY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(spillway_last_error()).find("smallest that works here"), std::string::npos);
  EXPECT_EQ(packets, nullptr);

  EXPECT_EQ(spillway_packetize(nullptr, 5, &options, &packets), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_packetize(values.data(), 5, nullptr, &packets), SPILLWAY_INVALID_ARGUMENT);
  options = spillway::default_options();
  options.size = 3;
  EXPECT_EQ(spillway_packetize(values.data(), 5, &options, &packets), SPILLWAY_INVALID_ARGUMENT);
  options = spillway::default_options();
  options.ip_version = 5;
  EXPECT_THROW(spillway::Packets(values, options), spillway::Error);
}

TEST(CApi, AFinishedAssemblyTakesNothingMore) {
  const spillway_packet_options options = spillway::default_options();
  std::vector<float> values(100);
  spillway::Assembly assembly(values, options);
  assembly.finish();
  EXPECT_THROW(assembly.add({}), spillway::Error);
  EXPECT_THROW(assembly.finish(), spillway::Error);
}

TEST(CApi, FreeingNothingIsFine) {
  spillway_packets_free(nullptr);
  spillway_assembly_free(nullptr);
  EXPECT_EQ(spillway_packets_count(nullptr), 0U);
}

}  // namespace
