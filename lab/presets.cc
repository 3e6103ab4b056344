// SPDX-License-Identifier: Apache-2.0
#include "lab/presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

namespace spillway::lab {
namespace {

constexpr std::array<Preset, 9> kPresets = {{
    {"clean", R"(# Four hosts under one switch, without faults or other traffic.
# Stands for: a rack at 100 Gb/s, RTT 10 us, queues of two BDPs. Time runs 400 times slower.
topology one-switch hosts=4 rate=250mbit delay=1ms
switch mode=spillway queue=256k ecn=64k early-drop=192k trim=384
)"},
    {"fast", R"(# 10 Gb/s, or as much as this machine carries, with jumbo frames and without faults.
# Stands for: itself, a 10 Gb/s rack in real time. Runs in the kernel and measures processors.
topology one-switch hosts=4 rate=10gbit delay=10us mtu=9000
switch mode=spillway queue=4m ecn=1m early-drop=3m trim=2048
)"},
    {"congested", R"(# Shallow queues, and tenants whose bursts take most of two links.
# Stands for: a rack at 100 Gb/s, RTT 10 us, queues of one BDP, bursts of 200 us and 70 us. Time runs 400 times slower.
topology one-switch hosts=4 rate=250mbit delay=1ms
switch mode=spillway queue=128k ecn=32k early-drop=64k trim=384
tenant from=host1 to=host0 protocol=udp rate=70% on=80ms off=80ms
tenant from=host3 to=host2 protocol=udp rate=50% on=28ms off=52ms
)"},
    {"incast",
     R"(# Four hosts under one switch with 128 KiB per queue: three senders to one receiver overflow it.
# Stands for: a rack at 100 Gb/s, RTT 10 us, queues of one BDP (16 MB for 128 ports). Time runs 400 times slower.
topology one-switch hosts=4 rate=250mbit delay=1ms
switch mode=spillway queue=128k ecn=0 early-drop=64k trim=384
)"},
    {"gray", R"(# The last link to host0 silently loses one frame in a hundred.
# Stands for: a rack at 100 Gb/s, RTT 10 us, queues of two BDPs, one bad cable. Time runs 400 times slower.
topology one-switch hosts=4 rate=250mbit delay=1ms
switch mode=spillway queue=256k ecn=64k early-drop=192k trim=384
fault kind=gray link=switch0->host0 share=1%
)"},
    {"aggregate",
     R"(# Like incast, with a switch that adds the packets of codec levels.
# Stands for: a rack at 100 Gb/s, RTT 10 us, queues of one BDP, a switch with slots. Time runs 400 times slower.
topology one-switch hosts=4 rate=250mbit delay=1ms
switch mode=spillway queue=128k ecn=0 early-drop=64k trim=384
aggregate slots=32768 policy=preemptive level=0
)"},
    {"oversubscribed",
     R"(# Two leaves of two hosts, whose uplinks carry half of the rate of the hosts.
# Stands for: two racks at 100 Gb/s, RTT 10 us between them, queues of one BDP. Time runs 400 times slower.
topology leaf-spine hosts=4 leaves=2 spines=1 rate=250mbit uplink-rate=100% delay=500us
switch mode=spillway queue=128k ecn=32k early-drop=64k trim=384
)"},
    {"spray",
     R"(# Two leaves of two hosts and four spines: all uplinks together carry the hosts' rate, one does not. Flows are hashed.
# Stands for: two racks at 100 Gb/s with uplinks of 50 Gb/s, RTT 10 us, queues of one BDP. Time runs 400 times slower.
topology leaf-spine hosts=4 leaves=2 spines=4 rate=250mbit uplink-rate=50% delay=500us spreading=flow
switch mode=spillway queue=128k ecn=32k early-drop=64k trim=384
)"},
    {"wan", R"(# Hosts 20 ms apart over 250 Mb/s with deep queues and one frame in a thousand lost.
# Stands for: itself, a leased line between two sites in real time, RTT 40 ms, routers that hold 67 ms.
topology one-switch hosts=4 rate=250mbit delay=10ms
switch mode=spillway queue=2m ecn=512k early-drop=1536k trim=384
fault kind=loss link=switch0->host0 share=0.1%
fault kind=loss link=switch0->host1 share=0.1%
fault kind=loss link=switch0->host2 share=0.1%
fault kind=loss link=switch0->host3 share=0.1%
)"},
}};

// The highest n of a line's "host<n>" words; -1 if it has none.
int highest_host(std::string_view line) {
  constexpr std::string_view kHost = "host";
  int highest = -1;
  for (std::size_t at = line.find(kHost); at != std::string_view::npos;
       at = line.find(kHost, at + 1)) {
    const std::string_view digits = line.substr(at + kHost.size());
    int number = -1;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    highest = std::max(highest, number);
  }
  return highest;
}

}  // namespace

std::string_view Preset::summary() const {
  return text.substr(2, text.find('\n') - 2);
}

std::string_view Preset::stands_for() const {
  constexpr std::string_view kMark = "# Stands for: ";
  const std::size_t begin = text.find(kMark) + kMark.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

double Preset::slowdown() const {
  constexpr std::string_view kMark = "Time runs ";
  const std::string_view line = stands_for();
  const std::size_t at = line.find(kMark);
  unsigned factor = 1;
  if (at != std::string_view::npos) {
    const std::string_view digits = line.substr(at + kMark.size());
    std::from_chars(digits.data(), digits.data() + digits.size(), factor);
  }
  return factor;
}

std::string Preset::text_for(std::uint32_t hosts) const {
  std::string kept;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n') + 1);
    kept += highest_host(line) < static_cast<int>(hosts) ? line : std::string_view();
    rest.remove_prefix(line.size());
  }
  return kept;
}

std::span<const Preset> presets() {
  return kPresets;
}

base::Result<Preset> find_preset(std::string_view name) {
  std::string known;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) {
      return preset;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", preset.name);
  }
  return base::invalid_argument(fmt::format("unknown preset '{}'; known are {}", name, known));
}

}  // namespace spillway::lab
