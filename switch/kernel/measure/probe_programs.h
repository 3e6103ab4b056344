// SPDX-License-Identifier: Apache-2.0
//
// Programs to measure the switch with (switch/dataplane/bpf/probe.bpf.c), loaded but not attached:
// two no-ops, one that feeds an interface, and a sink that counts what arrives. They end with the
// object. One thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"

struct probe_bpf;  // the skeleton that bpftool writes

namespace spillway::kernel {

enum class Probe : std::uint8_t { kPassXdp, kPassTc, kFeed, kSink };

class ProbePrograms {
 public:
  // `feeds`: the index of the interface that kFeed sends to.
  static base::Result<ProbePrograms> load(std::uint32_t feeds = 0);
  ~ProbePrograms();
  ProbePrograms(ProbePrograms&&) noexcept;
  ProbePrograms& operator=(ProbePrograms&&) noexcept;

  int fd(Probe probe) const;
  // Frames that the sink has seen, on all CPUs.
  std::uint64_t arrived() const;

 private:
  struct Close {
    void operator()(probe_bpf* skeleton) const;
  };
  explicit ProbePrograms(probe_bpf* skeleton);

  std::unique_ptr<probe_bpf, Close> skeleton_;
};

}  // namespace spillway::kernel
