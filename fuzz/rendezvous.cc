// SPDX-License-Identifier: Apache-2.0
//
// Whatever arrives where ranks meet: frames in any pieces, hellos, gathers, ids, cards and node
// lists. Every parser gives a value or an error, and what it accepts it writes the same again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzzing.h"
#include "runtime/launch/slurm.h"
#include "runtime/rank_card.h"
#include "runtime/rendezvous/message.h"
#include "runtime/rendezvous/unique_id.h"

namespace {

using namespace spillway::runtime;
using spillway::fuzzing::require;

void read_id(const std::uint8_t* data, std::size_t size) {
  UniqueId id;
  std::copy_n(data, std::min(size, id.bytes.size()), id.bytes.begin());
  const auto content = parse_unique_id(id);
  if (content.ok()) {
    require(encode_unique_id(*content) == id);
  }
}

void read_card(const Blob& bytes) {
  const auto card = parse_rank_card(bytes);
  if (card.ok()) {
    const auto again = parse_rank_card(to_blob(*card));
    require(again.ok() && again->data == card->data && again->mtu == card->mtu);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Blob bytes(data, data + size);
  read_id(data, size);
  read_card(bytes);
  static_cast<void>(expand_node_list(std::string(bytes.begin(), bytes.end())));
  static_cast<void>(parse_hello(bytes));
  static_cast<void>(parse_gather(bytes, size == 0 ? 1 : data[0]));
  return 0;
}
