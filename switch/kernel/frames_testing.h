// SPDX-License-Identifier: Apache-2.0
//
// Frames for tests of the switch's programs: those of probe_frames.h, and broken ones.
#pragma once

#include <random>

#include "switch/kernel/measure/probe_frames.h"

namespace spillway::kernel {

// Any frame: data, control and foreign packets, often damaged. Its first six bytes are always
// kProbeReceiver, and its outermost VLAN, if any, is kProbeVlan of 802.1Q or 802.1ad.
Frame random_frame(std::mt19937& random);

}  // namespace spillway::kernel
