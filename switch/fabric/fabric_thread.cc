// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/fabric_thread.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "net/system_call.h"

namespace spillway::fabric {

base::Result<std::unique_ptr<FabricThread>> FabricThread::make(
    const scenario::Scenario& scenario, std::span<const PortAttachment> ports) {
  base::Result<std::unique_ptr<Emulator>> emulator = Emulator::make(scenario, ports);
  if (!emulator.ok()) {
    return emulator.status();
  }
  net::UniqueFd ended(::eventfd(0, EFD_CLOEXEC));
  if (!ended.valid()) {
    return net::system_error("make an event descriptor", errno);
  }
  return std::unique_ptr<FabricThread>(
      new FabricThread(std::move(emulator).value(), std::move(ended)));
}

FabricThread::FabricThread(std::unique_ptr<Emulator> emulator, net::UniqueFd ended)
    : emulator_(std::move(emulator)), ended_(std::move(ended)), thread_([this] { work(); }) {}

FabricThread::~FabricThread() {
  (void)finish();
}

void FabricThread::work() {
  status_ = emulator_->run();
  const std::uint64_t one = 1;
  (void)!::write(ended_.get(), &one, sizeof(one));
}

base::Status FabricThread::finish() {
  if (thread_.joinable()) {
    emulator_->stop();
    thread_.join();
  }
  return status_;
}

}  // namespace spillway::fabric
