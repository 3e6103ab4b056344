// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/probe_packet.h"

#include <algorithm>

#include "base/check.h"

namespace spillway::doctor {

namespace {

constexpr std::uint32_t kMagic = 0x52445053;  // "SPDR"
constexpr std::uint8_t kVersion = 1;

bool is_known(std::uint8_t type) {
  return type >= static_cast<std::uint8_t>(ProbeType::kEcho) &&
         type <= static_cast<std::uint8_t>(ProbeType::kSummaryReply);
}

std::size_t least_size(ProbeType type) {
  const bool has_summary = type == ProbeType::kSummary || type == ProbeType::kSummaryReply;
  return has_summary ? kSummaryBytes : kProbeBytes;
}

constexpr std::size_t kInterfaceBytes = 16;
constexpr std::size_t kHostBytes = 64;
constexpr std::uint32_t kWatches = 1;
static_assert(kProbeBytes + kSummaryBodyBytes <= kSummaryBytes);
static_assert(kSummaryBodyBytes ==
              24 + kInterfaceBytes + kHostBytes + 8 * ArrivalSummary::kMaxKinds);

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("-._:@").find(c) != std::string_view::npos;
}

void write_name(base::ByteWriter& writer, std::string_view name, std::size_t room) {
  const std::size_t size = std::min(name.size(), room);
  writer.append({reinterpret_cast<const std::uint8_t*>(name.data()), size});
  for (std::size_t i = size; i < room; ++i) {
    writer.write(std::uint8_t{0});
  }
}

// Returns false if it holds a forbidden character.
bool read_name(base::ByteReader& reader, std::size_t room, std::string& name) {
  const base::ByteView bytes = reader.take(room);
  const auto end = std::find(bytes.begin(), bytes.end(), std::uint8_t{0});
  name.assign(bytes.begin(), end);
  return std::all_of(name.begin(), name.end(), is_plain) &&
         std::all_of(end, bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

void write_kind(base::ByteWriter& writer, const ArrivalKind& kind) {
  writer.write(kind.length);
  writer.write(kind.dscp);
  writer.write(std::uint8_t{0});
  writer.write(kind.count);
}

ArrivalKind read_kind(base::ByteReader& reader) {
  ArrivalKind kind;
  kind.length = reader.read<std::uint16_t>();
  kind.dscp = reader.read<std::uint8_t>();
  reader.take(1);
  kind.count = reader.read<std::uint32_t>();
  return kind;
}

bool are_valid(std::span<const ArrivalKind> kinds) {
  return std::all_of(kinds.begin(), kinds.end(),
                     [](const ArrivalKind& kind) { return kind.dscp < 64; });
}

}  // namespace

bool is_request(ProbeType type) {
  return type == ProbeType::kEcho || type == ProbeType::kStart || type == ProbeType::kSummary;
}

ProbeType reply_to(ProbeType request) {
  SPILLWAY_CHECK(is_request(request));
  return static_cast<ProbeType>(static_cast<std::uint8_t>(request) + 1);
}

std::optional<ProbePacket> read_probe(base::ByteView bytes) {
  base::ByteReader reader(bytes);
  const auto magic = reader.read<std::uint32_t>();
  const auto version = reader.read<std::uint8_t>();
  const auto type = reader.read<std::uint8_t>();
  ProbePacket probe;
  probe.tos = reader.read<std::uint8_t>();
  probe.reply_tos = reader.read<std::uint8_t>();
  probe.session = reader.read<std::uint64_t>();
  probe.sequence = reader.read<std::uint32_t>();
  const auto size = reader.read<std::uint16_t>();
  const auto zero = reader.read<std::uint16_t>();
  probe.sent_ns = reader.read<std::int64_t>();
  probe.received_ns = reader.read<std::int64_t>();
  probe.replied_ns = reader.read<std::int64_t>();
  if (!reader.ok() || magic != kMagic || version != kVersion || !is_known(type) || zero != 0) {
    return std::nullopt;
  }
  probe.type = static_cast<ProbeType>(type);
  if (size != bytes.size() || size < least_size(probe.type) || size > kLongestProbe) {
    return std::nullopt;
  }
  return probe;
}

void write_probe(const ProbePacket& probe, base::MutableByteView out) {
  SPILLWAY_CHECK(out.size() >= least_size(probe.type) && out.size() <= kLongestProbe);
  base::ByteWriter writer(out);
  writer.write(kMagic);
  writer.write(kVersion);
  writer.write(static_cast<std::uint8_t>(probe.type));
  writer.write(probe.tos);
  writer.write(probe.reply_tos);
  writer.write(probe.session);
  writer.write(probe.sequence);
  writer.write(static_cast<std::uint16_t>(out.size()));
  writer.write(std::uint16_t{0});
  writer.write(probe.sent_ns);
  writer.write(probe.received_ns);
  writer.write(probe.replied_ns);
  SPILLWAY_CHECK(writer.ok() && writer.position() == kProbeBytes);
  std::fill(out.begin() + kProbeBytes, out.end(), std::uint8_t{0});
}

void ArrivalSummary::count(std::size_t length, std::uint8_t dscp) {
  const auto end = kinds.begin() + kind_count;
  const auto kind = std::find_if(kinds.begin(), end, [&](const ArrivalKind& one) {
    return one.length == length && one.dscp == dscp;
  });
  if (kind != end) {
    ++kind->count;
  } else if (kind_count < kMaxKinds) {
    kinds[kind_count++] = {static_cast<std::uint16_t>(length), dscp, 1};
  } else {
    ++others;
  }
}

void ArrivalSummary::count_stale(std::size_t frame_bytes, std::string_view on_interface) {
  const auto bytes = static_cast<std::uint16_t>(frame_bytes);
  stale_smallest = stale == 0 ? bytes : std::min(stale_smallest, bytes);
  stale_largest = std::max(stale_largest, bytes);
  ++stale;
  interface = plain_name(on_interface.substr(0, kInterfaceBytes));
}

void write_summary(const ArrivalSummary& summary, base::MutableByteView probe) {
  SPILLWAY_CHECK(probe.size() >= kSummaryBytes);
  base::ByteWriter writer(probe.subspan(kProbeBytes));
  writer.write(summary.watches ? kWatches : 0);
  writer.write(summary.overflowed);
  writer.write(summary.others);
  writer.write(summary.stale);
  writer.write(summary.stale_smallest);
  writer.write(summary.stale_largest);
  writer.write(std::uint32_t{summary.kind_count});
  write_name(writer, summary.interface, kInterfaceBytes);
  write_name(writer, summary.host, kHostBytes);
  for (const ArrivalKind& kind : summary.kinds) {
    write_kind(writer, kind);
  }
}

std::optional<ArrivalSummary> read_summary(base::ByteView probe) {
  if (probe.size() < kSummaryBytes) {
    return std::nullopt;
  }
  base::ByteReader reader(probe.subspan(kProbeBytes));
  ArrivalSummary summary;
  const auto flags = reader.read<std::uint32_t>();
  summary.overflowed = reader.read<std::uint32_t>();
  summary.others = reader.read<std::uint32_t>();
  summary.stale = reader.read<std::uint32_t>();
  summary.stale_smallest = reader.read<std::uint16_t>();
  summary.stale_largest = reader.read<std::uint16_t>();
  const auto kinds = reader.read<std::uint32_t>();
  if ((flags & ~kWatches) != 0 || kinds > ArrivalSummary::kMaxKinds ||
      !read_name(reader, kInterfaceBytes, summary.interface) ||
      !read_name(reader, kHostBytes, summary.host)) {
    return std::nullopt;
  }
  summary.watches = flags == kWatches;
  summary.kind_count = static_cast<std::uint8_t>(kinds);
  for (std::size_t i = 0; i < kinds; ++i) {
    summary.kinds[i] = read_kind(reader);
  }
  return are_valid(summary.seen()) ? std::optional(summary) : std::nullopt;
}

std::string plain_name(std::string_view name) {
  std::string plain(name.substr(0, kHostBytes));
  std::replace_if(
      plain.begin(), plain.end(), [](char c) { return !is_plain(c); }, '_');
  return plain;
}

}  // namespace spillway::doctor
