// SPDX-License-Identifier: Apache-2.0
//
// What a kernel switch reports of every Spillway packet, read from its ring of events from open()
// on; earlier events are skipped. If nobody reads the ring it fills up, and the switch reports
// nothing more: read() it every few milliseconds.
//
// Keeps at most `most` events and counts the others. Only one reader at a time, over all processes:
// a reader consumes the events. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "switch/dataplane/bpf/switch_maps.h"
#include "switch/kernel/kernel_switch.h"

struct ring_buffer;  // libbpf's

namespace spillway::kernel {

class SwitchEvents {
 public:
  // Fails if the switch was attached without tracing.
  static base::Result<std::unique_ptr<SwitchEvents>> open(const KernelSwitch& from,
                                                          std::size_t most);
  ~SwitchEvents();
  SwitchEvents(const SwitchEvents&) = delete;
  SwitchEvents& operator=(const SwitchEvents&) = delete;

  // Reads all waiting events. Returns true if there were any.
  bool read();

  // Hands all events so far to the caller.
  std::vector<spillway_event> take() { return std::move(events_); }
  std::uint64_t left_out() const { return left_out_; }
  // Names of the switch's ports, by port number.
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
