// SPDX-License-Identifier: Apache-2.0
//
// Runs a fabric on a thread of its own. Call make() on a thread in the fabric's network namespace;
// the new thread inherits it. stop_fd() becomes readable when the fabric has ended.
#pragma once

#include <memory>
#include <span>
#include <thread>

#include "base/status.h"
#include "net/system_call.h"
#include "switch/fabric/emulator.h"

namespace spillway::fabric {

class FabricThread {
 public:
  static base::Result<std::unique_ptr<FabricThread>> make(const scenario::Scenario& scenario,
                                                          std::span<const PortAttachment> ports);
  ~FabricThread();
  FabricThread(const FabricThread&) = delete;
  FabricThread& operator=(const FabricThread&) = delete;

  int stop_fd() const { return ended_.get(); }

  // Stops the fabric and returns its status.
  base::Status finish();
  FabricSnapshot snapshot() const { return emulator_->snapshot(); }

 private:
  FabricThread(std::unique_ptr<Emulator> emulator, net::UniqueFd ended);
  void work();

  std::unique_ptr<Emulator> emulator_;
  net::UniqueFd ended_;
  base::Status status_;  // the thread's; read after it is joined
  std::thread thread_;
};

}  // namespace spillway::fabric
