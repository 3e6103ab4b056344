// SPDX-License-Identifier: Apache-2.0
//
// A member's handle: the cards of its seats, one per channel, as membership carries them. Count 1,
// then of each its length in 2 bytes and so many bytes. Any bytes give cards or an error. Pure.
#pragma once

#include <vector>

#include "base/status.h"
#include "membership/view.h"
#include "runtime/rendezvous/message.h"

namespace spillway::runtime {

base::Result<membership::Handle> encode_handle(const std::vector<Blob>& cards);
base::Result<std::vector<Blob>> parse_handle(const membership::Handle& handle);

}  // namespace spillway::runtime
