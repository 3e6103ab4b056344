// SPDX-License-Identifier: Apache-2.0
#include "elastic/handle.h"

#include <fmt/format.h>

#include "base/bytes.h"

namespace spillway::runtime {

base::Result<membership::Handle> encode_handle(const std::vector<Blob>& cards) {
  membership::Handle handle = {static_cast<std::uint8_t>(cards.size())};
  for (const Blob& card : cards) {
    const std::size_t at = handle.size();
    handle.resize(at + 2);
    base::store_le(handle.data() + at, static_cast<std::uint16_t>(card.size()));
    handle.insert(handle.end(), card.begin(), card.end());
  }
  if (handle.size() > membership::kMaxHandleBytes) {
    return base::Status(base::StatusCode::kLimitExceeded,
                        fmt::format("{} channels take {} bytes of addresses, and {} are the most: "
                                    "use fewer channels",
                                    cards.size(), handle.size(), membership::kMaxHandleBytes));
  }
  return handle;
}

base::Result<std::vector<Blob>> parse_handle(const membership::Handle& handle) {
  base::ByteReader reader(handle);
  std::vector<Blob> cards(reader.read<std::uint8_t>());
  for (Blob& card : cards) {
    const base::ByteView bytes = reader.take(reader.read<std::uint16_t>());
    card.assign(bytes.begin(), bytes.end());
  }
  if (!reader.ok() || reader.remaining() != 0) {
    return base::Status(base::StatusCode::kCorrupt, "a member's handle makes no sense");
  }
  return cards;
}

}  // namespace spillway::runtime
