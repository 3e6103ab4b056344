// SPDX-License-Identifier: Apache-2.0
//
// Whether sockets of this host can set DSCP and ECN and read them back, over IPv4 and IPv6, and
// whether the kernel stamps what arrives: tried on loopback, so nothing but this host has a say.
#pragma once

#include <cstdint>
#include <optional>

#include "doctor/finding.h"

namespace spillway::doctor {

struct LoopbackTrial {
  bool opened = false;  // the host has this family
  unsigned sent = 0;    // values of the TOS byte
  unsigned kept = 0;    // that came back as they were
  bool stamped = false;
};

LoopbackTrial try_loopback(bool ipv6);

// "marks-ipv4" or "marks-ipv6".
Finding check_loopback_marks(const LoopbackTrial& trial, bool ipv6);
Finding check_receive_stamps(const LoopbackTrial& trial);

}  // namespace spillway::doctor
