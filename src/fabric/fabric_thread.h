// SPDX-License-Identifier: Apache-2.0
//
// A fabric at work on a thread of its own. make() belongs on a thread in the fabric's network
// namespace; the new thread inherits it. stop_fd() has something to read when the fabric ended by
// itself.
#pragma once

#include <memory>
#include <span>
#include <thread>

#include "base/status.h"
#include "fabric/emulator.h"
#include "net/system_call.h"

namespace spillway::fabric {

class FabricThread {
 public:
  static base::Result<std::unique_ptr<FabricThread>> make(const scenario::Scenario& scenario,
                                                          std::span<const PortAttachment> ports);
  ~FabricThread();
  FabricThread(const FabricThread&) = delete;
  FabricThread& operator=(const FabricThread&) = delete;

  int stop_fd() const { return ended_.get(); }

  // Stops it. How it fared; an error where it broke.
  base::Status finish();
  FabricSnapshot snapshot() const { return emulator_->snapshot(); }

 private:
  FabricThread(std::unique_ptr<Emulator> emulator, net::UniqueFd ended);
  void work();

  std::unique_ptr<Emulator> emulator_;
  net::UniqueFd ended_;
  base::Status status_;  // of the thread; read once it is joined
  std::thread thread_;
};

}  // namespace spillway::fabric
