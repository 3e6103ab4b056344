// SPDX-License-Identifier: Apache-2.0
//
// A call of one of the C interface's operations, checked and turned into what a communicator takes.
// Numbers are checked before they become enumerators or narrower: whatever a caller hands in is
// refused with a sentence. Pure functions.
#pragma once

#include <spillway/spillway.h>

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "runtime/communicator.h"

namespace spillway::capi {

struct OperationCall {
  collective::Kind kind = collective::Kind::kAllReduce;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  spillway_data_type type = SPILLWAY_FLOAT32;
  spillway_reduction op = SPILLWAY_SUM;
  std::uint32_t root = 0;  // or the other end of send and receive
};

spillway_operation_options default_operation_options();

// The caller's options over the defaults.
base::Result<spillway_operation_options> read_options(const spillway_operation_options* given);

// All but the callback.
base::Result<runtime::OperationOptions> operation_options_from(
    const OperationCall& call, const spillway_operation_options& options);

}  // namespace spillway::capi
