// SPDX-License-Identifier: Apache-2.0
//
// A member's handle, which membership carries: the cards of its seats, one per channel. The format
// is a count (1 byte), then for each card its length (2 bytes) and its bytes. Any bytes give cards
// or an error. Pure.
#pragma once

#include <vector>

#include "base/status.h"
#include "comm/rendezvous/message.h"
#include "elastic/membership/view.h"

namespace spillway::runtime {

base::Result<membership::Handle> encode_handle(const std::vector<Blob>& cards);
base::Result<std::vector<Blob>> parse_handle(const membership::Handle& handle);

}  // namespace spillway::runtime
