// SPDX-License-Identifier: Apache-2.0
//
// What to do about a rank from which nothing came for too long. It may have died; it may also live
// and have been given no processor, or never have been within reach. Whoever reads the error cannot
// tell these apart without the address and the variables that matter. Pure.
#pragma once

#include <string>

#include "base/status.h"
#include "net/address.h"

namespace spillway::runtime {

struct SilentPeer {
  net::SocketAddress address{};
  // Some operation has ended well, so packets do go from rank to rank.
  bool has_worked = false;
};

// `failure` with a sentence added.
base::Status with_advice(const base::Status& failure, const SilentPeer& peer);

}  // namespace spillway::runtime
