// SPDX-License-Identifier: Apache-2.0
//
// Averages several buffers over all ranks, all in flight at once, and prints a report for each.
// Start it like all_reduce.c; the optional argument is the number of floats per buffer, 100,000 by
// default.
#include <cstdio>
#include <cstdlib>
#include <span>
#include <spillway/spillway.hpp>
#include <vector>

namespace {

constexpr std::size_t kBuffers = 4;

void print_report(const spillway::Communicator& comm, std::size_t buffer,
                  const spillway_operation_report& report) {
  std::printf(
      "rank %u of %u, buffer %zu: %.3f ms, %llu packets whole, %llu trimmed, %llu missing\n",
      comm.rank(), comm.world(), buffer, static_cast<double>(report.duration_ns) / 1e6,
      static_cast<unsigned long long>(report.packets_whole),
      static_cast<unsigned long long>(report.packets_trimmed),
      static_cast<unsigned long long>(report.packets_missing));
}

// Rank r contributes r everywhere, so every average is (world - 1) / 2.
bool average(spillway::Communicator& comm, std::size_t count) {
  std::vector<std::vector<float>> buffers(
      kBuffers, std::vector<float>(count, static_cast<float>(comm.rank())));
  std::vector<spillway::Request> requests;
  for (std::vector<float>& buffer : buffers) {
    requests.push_back(comm.start_all_reduce(std::span(buffer), SPILLWAY_AVERAGE));
  }
  const std::vector<float> expected(count, static_cast<float>(comm.world() - 1) / 2);
  bool works = true;
  for (std::size_t i = 0; i < kBuffers; ++i) {
    requests[i].wait();
    print_report(comm, i, requests[i].report());
    works = works && buffers[i] == expected;
  }
  return works;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100'000;
  try {
    spillway::Communicator comm;
    return average(comm, count) ? 0 : 1;
  } catch (const spillway::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
