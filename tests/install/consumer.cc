// SPDX-License-Identifier: Apache-2.0
//
// A C++ program against the installed library: the version must be the package's, and values must
// survive a round trip in which one packet is lost.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <spillway/spillway.hpp>
#include <vector>

namespace {

bool round_trip() {
  const spillway_packet_options options = spillway::default_options();
  std::vector<float> sent(20'000);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<float>(i % 17) - 8.0F;
  }
  std::vector<float> received(sent.size());

  const spillway::Packets packets(sent, options);
  spillway::Assembly assembly(received, options);
  for (std::size_t i = 1; i < packets.size(); ++i) {
    assembly.add(packets[i]);
  }
  const spillway_delivery_report report = assembly.finish();

  double error = 0;
  double energy = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    error += std::pow(received[i] - sent[i], 2);
    energy += std::pow(sent[i], 2);
  }
  std::printf("%llu of %llu packets lost, relative error %.3f\n",
              static_cast<unsigned long long>(report.missing),
              static_cast<unsigned long long>(report.expected), error / energy);
  return report.missing == 1 && error / energy < 2 * report.lost_fraction;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || std::strcmp(spillway_version(), argv[1]) != 0) {
    std::fprintf(stderr, "the library says it is version %s\n", spillway_version());
    return 1;
  }
  try {
    return round_trip() ? 0 : 1;
  } catch (const spillway::Error& error) {
    std::fprintf(stderr, "the round trip failed: %s\n", error.what());
    return 1;
  }
}
