// SPDX-License-Identifier: Apache-2.0
//
// The memory of ranks on this machine, read by the kernel's own means (process_vm_readv): no
// segment to share, nothing to set up, one copy. Ranks can read each other where they run under one
// kernel, one user, one view of processes and one network (ranks in namespaces of their own are
// meant to use the network between them); SPILLWAY_LOCAL_COPY=0 turns it off.
//
// A rank that takes part lets others of its user read its memory where the system is strict about
// that (Yama). One thread, the communicator's.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "collective/byte_payload.h"

namespace spillway::runtime {

// Ranks with the same, and not empty, can read each other. Empty where the kernel does not let us.
std::string memory_domain();

class LocalMemory final : public collective::PeerMemory {
 public:
  // By rank: the process to read, or none.
  explicit LocalMemory(std::vector<std::optional<pid_t>> processes)
      : processes_(std::move(processes)) {}

  bool reaches(std::uint16_t peer) const override { return processes_[peer].has_value(); }
  bool read(std::uint16_t peer, std::uint64_t address, std::size_t bytes,
            std::uint8_t* to) override;
  const std::optional<collective::MemoryFailure>& failure() const override { return failure_; }

 private:
  std::vector<std::optional<pid_t>> processes_;
  std::optional<collective::MemoryFailure> failure_;
};

}  // namespace spillway::runtime
