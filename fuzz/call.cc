// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary bytes as a worker's call to a parameter server. Parsing gives a call or an error, and
// encoding an accepted call gives the same bytes again.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collective/calls.h"
#include "fuzzing.h"

using namespace spillway;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const base::Result<collective::Operation> call = collective::parse_call({data, size});
  if (call.ok()) {
    const collective::CallBytes again = collective::encode_call(*call);
    fuzzing::require(std::equal(again.begin(), again.end(), data, data + size));
    static_cast<void>(collective::validate(*call, {4, 5, 1}));
    static_cast<void>(collective::describe(*call));
  }
  return 0;
}
