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
    {"clean", R"(# Four hosts under one switch with deep queues; nothing is wrong.
topology one-switch hosts=4 rate=1gbit delay=10us
switch mode=spillway queue=4m ecn=128k early-drop=3m trim=384
)"},
    {"fast", R"(# The good day: 10 Gb/s, or what this machine carries, jumbo frames, nothing wrong.
topology one-switch hosts=4 rate=10gbit delay=10us mtu=9000
switch mode=spillway queue=16m ecn=1m early-drop=12m trim=2048
)"},
    {"congested", R"(# Shallow queues, and tenants that take most of two links in bursts.
topology one-switch hosts=4 rate=1gbit delay=10us
switch mode=spillway queue=128k ecn=32k early-drop=64k trim=384
tenant from=host1 to=host0 protocol=udp rate=70% on=20ms off=20ms
tenant from=host3 to=host2 protocol=udp rate=50% on=7ms off=13ms
)"},
    {"incast", R"(# Four hosts under one switch with 64 KiB per queue: three into one overflow it.
topology one-switch hosts=4 rate=1gbit delay=10us
switch mode=spillway queue=64k ecn=0 early-drop=32k trim=384
)"},
    {"gray", R"(# The last link to host0 silently loses one frame in a hundred.
topology one-switch hosts=4 rate=1gbit delay=10us
switch mode=spillway queue=512k ecn=64k early-drop=256k trim=384
fault kind=gray link=switch0->host0 share=1%
)"},
    {"aggregate",
     R"(# Four hosts under one switch that adds what is coded for it; as incast otherwise.
topology one-switch hosts=4 rate=1gbit delay=10us
switch mode=spillway queue=64k ecn=0 early-drop=32k trim=384
aggregate slots=32768 policy=preemptive level=0
)"},
    {"oversubscribed",
     R"(# Two leaves of two hosts; their uplinks carry half of what the hosts can send.
topology leaf-spine hosts=4 leaves=2 spines=1 rate=1gbit uplink-rate=100% delay=10us
switch mode=spillway queue=128k ecn=32k early-drop=64k trim=384
)"},
    {"spray",
     R"(# Two leaves of two hosts, four spines: hosts' bits fit, but on no single path. Flows are hashed.
topology leaf-spine hosts=4 leaves=2 spines=4 rate=1gbit uplink-rate=50% delay=10us spreading=flow
switch mode=spillway queue=128k ecn=32k early-drop=64k trim=384
)"},
    {"wan", R"(# Hosts 20 ms apart over 500 Mb/s with deep queues and one frame in a thousand lost.
topology one-switch hosts=4 rate=500mbit delay=10ms
switch mode=spillway queue=4m ecn=1m early-drop=3m trim=384
fault kind=loss link=switch0->host0 share=0.1%
fault kind=loss link=switch0->host1 share=0.1%
fault kind=loss link=switch0->host2 share=0.1%
fault kind=loss link=switch0->host3 share=0.1%
)"},
}};

// Of a line's "host<number>"s; -1 where it has none.
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
