// SPDX-License-Identifier: Apache-2.0
#include "elastic/founding.h"

#include <algorithm>

#include "base/bytes.h"

namespace spillway::runtime {
namespace {

constexpr std::size_t kFoundingBytes = 6144;

// The card and handle, padded to kFoundingBytes.
base::Result<Blob> founding_record(const Founder& founder) {
  const Frame roster = encode_roster({founder.card});
  const membership::Handle& handle = founder.handle;
  Blob record(kFoundingBytes);
  if (4 + roster.body.size() + handle.size() > record.size()) {
    return base::Status(base::StatusCode::kLimitExceeded, "this member's addresses are too long");
  }
  base::store_le(record.data(), static_cast<std::uint16_t>(roster.body.size()));
  base::store_le(record.data() + 2, static_cast<std::uint16_t>(handle.size()));
  std::copy(handle.begin(), handle.end(),
            std::copy(roster.body.begin(), roster.body.end(), record.begin() + 4));
  return record;
}

base::Result<Founder> parse_founder(base::ByteView record) {
  base::ByteReader reader(record);
  const auto card_bytes = reader.read<std::uint16_t>();
  const auto handle_bytes = reader.read<std::uint16_t>();
  const base::Result<std::vector<MemberCard>> cards = parse_roster(reader.take(card_bytes));
  const base::ByteView handle = reader.take(handle_bytes);
  if (!reader.ok() || !cards.ok() || cards->size() != 1) {
    return base::Status(base::StatusCode::kCorrupt, "a founder's card makes no sense");
  }
  return Founder{cards->front(), {handle.begin(), handle.end()}};
}

}  // namespace

base::Result<std::vector<Founder>> gather_founders(Communicator& communicator,
                                                   const Founder& founder) {
  const base::Result<Blob> record = founding_record(founder);
  if (!record.ok()) {
    return record.status();
  }
  const Blob& own = *record;
  Blob all(own.size() * communicator.world());
  collective::Operation operation;
  operation.kind = collective::Kind::kAllGather;
  operation.type = collective::DataType::kUint8;
  operation.count = own.size();
  operation.input = own.data();
  operation.output = all.data();
  const base::Result<std::shared_ptr<Request>> request = communicator.submit(operation);
  if (!request.ok()) {
    return request.status();
  }
  if (const base::Status status = *(*request)->wait(std::nullopt); !status.ok()) {
    return status;
  }
  std::vector<Founder> founders;
  for (std::size_t rank = 0; rank < communicator.world(); ++rank) {
    const base::Result<Founder> founder =
        parse_founder(base::ByteView(all).subspan(rank * own.size(), own.size()));
    if (!founder.ok()) {
      return founder.status();
    }
    founders.push_back(*founder);
  }
  return founders;
}

membership::Decision founding_decision(const std::vector<Founder>& founders, std::size_t standbys) {
  membership::Decision decision;
  decision.why = "the job was founded";
  decision.view.epoch = 1;
  for (std::size_t i = 0; i < founders.size(); ++i) {
    if (i + standbys < founders.size()) {
      decision.sources.push_back(static_cast<std::uint32_t>(i));
      decision.view.ranks.push_back(founders[i].card.id);
      decision.handles.push_back(founders[i].handle);
    } else {
      decision.view.standbys.push_back(founders[i].card.id);
    }
  }
  return decision;
}

}  // namespace spillway::runtime
