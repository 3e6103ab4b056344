// SPDX-License-Identifier: Apache-2.0
//
// Datagrams that nobody asked for, at a steady rate, from a process of their own: random bytes,
// packets of another job, and packets forged with the right fields but without the job's check.
// What a receiver must shrug off.
#pragma once

#include <sys/types.h>

#include "base/units.h"
#include "net/address.h"

namespace spillway::bench {

class Flood {
 public:
  // Starts at once, towards `target`. Call from a process with one thread.
  Flood(const net::SocketAddress& target, base::BitRate rate);
  ~Flood();  // ends it
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

 private:
  pid_t pid_ = -1;
};

}  // namespace spillway::bench
