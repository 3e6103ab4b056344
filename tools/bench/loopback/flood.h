// SPDX-License-Identifier: Apache-2.0
//
// Sends unwanted datagrams at a steady rate from a process of its own: random bytes, packets of
// another job, and packets with correct fields but forged checks. A receiver must ignore them.
#pragma once

#include <sys/types.h>

#include "base/units.h"
#include "net/address.h"

namespace spillway::bench {

class Flood {
 public:
  // Starts sending to `target` at once. Call from a process with one thread.
  Flood(const net::SocketAddress& target, base::BitRate rate);
  ~Flood();  // ends the process
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

 private:
  pid_t pid_ = -1;
};

}  // namespace spillway::bench
