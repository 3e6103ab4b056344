// SPDX-License-Identifier: Apache-2.0
//
// All checks of this host, in the order in which they are shown. Takes milliseconds, sends packets
// over loopback only and changes nothing.
#pragma once

#include "doctor/finding.h"

namespace spillway::doctor {

Findings check_this_host();

}  // namespace spillway::doctor
