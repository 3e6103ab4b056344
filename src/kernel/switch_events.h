// SPDX-License-Identifier: Apache-2.0
//
// What a switch in the kernel tells of every Spillway packet, read out of its ring of events, from
// open() on: what the ring held before is passed over. A ring that nobody reads fills up, and the
// switch then tells nothing more: read() it every few milliseconds.
//
// Limits: keeps `most` events, counts the others. One reader at a time, of all processes: what one
// has read is gone for the others. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "dataplane/bpf/switch_maps.h"
#include "kernel/kernel_switch.h"

struct ring_buffer;  // libbpf's

namespace spillway::kernel {

class SwitchEvents {
 public:
  // An error where the switch was not attached to tell anything.
  static base::Result<std::unique_ptr<SwitchEvents>> open(const KernelSwitch& from,
                                                          std::size_t most);
  ~SwitchEvents();
  SwitchEvents(const SwitchEvents&) = delete;
  SwitchEvents& operator=(const SwitchEvents&) = delete;

  // Takes what is there; true where there was something.
  bool read();

  // All so far: they are the caller's from now on.
  std::vector<spillway_event> take() { return std::move(events_); }
  std::uint64_t left_out() const { return left_out_; }
  // Names of the switch's ports, by their numbers.
  const std::vector<std::string>& ports() const { return ports_; }

 private:
  struct Close {
    void operator()(ring_buffer* ring) const;
  };

  explicit SwitchEvents(std::size_t most);
  static int on_event(void* self, void* data, std::size_t bytes);
  void keep(const spillway_event& event);

  std::unique_ptr<ring_buffer, Close> ring_;
  std::size_t most_;
  std::vector<std::string> ports_;
  std::vector<spillway_event> events_;
  std::uint64_t left_out_ = 0;
};

}  // namespace spillway::kernel
