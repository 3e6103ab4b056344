// SPDX-License-Identifier: Apache-2.0
#include "doctor/probe_packet.h"

#include <algorithm>

#include "base/check.h"

namespace spillway::doctor {
namespace {

constexpr std::uint32_t kMagic = 0x52445053;  // "SPDR"
constexpr std::uint8_t kVersion = 1;

bool is_known(std::uint8_t type) {
  return type >= static_cast<std::uint8_t>(ProbeType::kEcho) &&
         type <= static_cast<std::uint8_t>(ProbeType::kSummaryAnswer);
}

std::size_t least_size(ProbeType type) {
  const bool has_summary = type == ProbeType::kSummary || type == ProbeType::kSummaryAnswer;
  return has_summary ? kSummaryBytes : kProbeBytes;
}

}  // namespace

bool is_question(ProbeType type) {
  return type == ProbeType::kEcho || type == ProbeType::kStart || type == ProbeType::kSummary;
}

ProbeType answer_to(ProbeType question) {
  SPILLWAY_CHECK(is_question(question));
  return static_cast<ProbeType>(static_cast<std::uint8_t>(question) + 1);
}

std::optional<ProbePacket> read_probe(base::ByteView bytes) {
  base::ByteReader reader(bytes);
  const auto magic = reader.read<std::uint32_t>();
  const auto version = reader.read<std::uint8_t>();
  const auto type = reader.read<std::uint8_t>();
  ProbePacket probe;
  probe.tos = reader.read<std::uint8_t>();
  probe.answer_tos = reader.read<std::uint8_t>();
  probe.session = reader.read<std::uint64_t>();
  probe.sequence = reader.read<std::uint32_t>();
  const auto size = reader.read<std::uint16_t>();
  const auto zero = reader.read<std::uint16_t>();
  probe.sent_ns = reader.read<std::int64_t>();
  probe.received_ns = reader.read<std::int64_t>();
  probe.answered_ns = reader.read<std::int64_t>();
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
  writer.write(probe.answer_tos);
  writer.write(probe.session);
  writer.write(probe.sequence);
  writer.write(static_cast<std::uint16_t>(out.size()));
  writer.write(std::uint16_t{0});
  writer.write(probe.sent_ns);
  writer.write(probe.received_ns);
  writer.write(probe.answered_ns);
  SPILLWAY_CHECK(writer.ok() && writer.position() == kProbeBytes);
  std::fill(out.begin() + kProbeBytes, out.end(), std::uint8_t{0});
}

}  // namespace spillway::doctor
