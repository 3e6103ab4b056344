// SPDX-License-Identifier: Apache-2.0
#include "wire/control_packet.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "wire/data_packet.h"

namespace spillway::wire {
namespace {

constexpr std::size_t kControlHeaderSize = sizeof(spillway_control_header);

template <typename Body>
void append_body(base::ByteWriter& writer, const Body& body) {
  const base::MutableByteView room = writer.reserve(sizeof body);
  SPILLWAY_CHECK(room.size() == sizeof body);
  std::memcpy(room.data(), &body, sizeof body);
}

template <typename Body>
bool read_body(base::ByteReader& reader, Body& body) {
  const base::ByteView bytes = reader.take(sizeof body);
  if (bytes.empty()) {
    return false;
  }
  std::memcpy(&body, bytes.data(), sizeof body);
  return true;
}

std::size_t bitmap_bytes(std::uint32_t count) {
  return (count + 7) / 8;
}

std::size_t leave_size(const ControlPacket& packet) {
  if (packet.leave.cause != FailureCause::kMismatch) {
    return sizeof(spillway_leave_body);
  }
  return sizeof(spillway_leave_body) + sizeof(spillway_mismatch_body) +
         packet.mismatch.calls[0].bytes + packet.mismatch.calls[1].bytes;
}

// Bytes between the header and the check.
std::size_t body_size(const ControlPacket& packet) {
  switch (packet.type) {
    case ControlType::kProbe:
      return sizeof(spillway_probe_body);
    case ControlType::kStop:
      return sizeof(spillway_stop_body);
    case ControlType::kBitmap:
      return sizeof(spillway_bitmap_body) + bitmap_bytes(packet.bitmap.range.count);
    case ControlType::kCredit:
      return sizeof(spillway_credit_body) + packet.credit.path_count * sizeof(spillway_path_report);
    case ControlType::kWait:
      return 0;
    case ControlType::kLeave:
      return leave_size(packet);
  }
  return 0;
}

bool is_valid(const ControlPacket::Probe& probe) {
  return probe.packets >= 1 && probe.packets <= SPILLWAY_MAX_PACKETS &&
         probe.important <= probe.packets;
}

bool is_valid(const ControlPacket::Bitmap& bitmap) {
  return bitmap.range.count >= 1 && bitmap.range.count <= SPILLWAY_MAX_BITMAP_BYTES * 8 &&
         bitmap.range.first < SPILLWAY_MAX_PACKETS &&
         bitmap.range.count <= SPILLWAY_MAX_PACKETS - bitmap.range.first &&
         bitmap.missing <= SPILLWAY_MAX_PACKETS && bitmap.allowed <= SPILLWAY_MAX_PACKETS;
}

bool is_valid(const Mismatch& mismatch) {
  return std::all_of(mismatch.calls.begin(), mismatch.calls.end(),
                     [](const CallText& call) { return call.bytes <= SPILLWAY_MAX_CALL_TEXT; });
}

bool is_valid(const ControlPacket& packet) {
  switch (packet.type) {
    case ControlType::kProbe:
      return is_valid(packet.probe);
    case ControlType::kStop:
      return packet.stop.outcome < Outcome::kPeerDead &&
             packet.stop.delivered <= SPILLWAY_MAX_PACKETS;
    case ControlType::kBitmap:
      return is_valid(packet.bitmap);
    case ControlType::kCredit:
      return packet.credit.path_count <= SPILLWAY_MAX_PATH_REPORTS;
    case ControlType::kLeave:
      return packet.leave.cause != FailureCause::kMismatch || is_valid(packet.mismatch);
    case ControlType::kWait:
      return true;
  }
  return false;
}

void write_header(const ControlPacket& packet, base::MutableByteView out) {
  spillway_control_header raw{};
  raw.common.version_type =
      static_cast<__u8>(SPILLWAY_WIRE_VERSION << 4 | static_cast<unsigned>(packet.type));
  raw.common.job = packet.job;
  raw.common.epoch = static_cast<__u8>(packet.epoch);
  raw.common.source = packet.source;
  raw.common.destination = packet.destination;
  raw.common.operation = low_counter(packet.message.operation);
  raw.common.piece = packet.message.piece;
  raw.common.service = static_cast<__u8>(static_cast<unsigned>(packet.message.phase) << 6);
  raw.common.path = packet.path;
  raw.common.number = low_counter(packet.sequence);
  raw.common.timestamp_us = low_counter(packet.timestamp_us);
  raw.signature = packet.message.signature;
  raw.message_source = packet.message.source;
  raw.generation = packet.generation;
  std::memcpy(out.data(), &raw, sizeof raw);
}

void write_mismatch(const Mismatch& mismatch, base::ByteWriter& writer) {
  const CallText& first = mismatch.calls[0];
  const CallText& second = mismatch.calls[1];
  const unsigned flags = (mismatch.is_point_to_point ? SPILLWAY_MISMATCH_POINT_TO_POINT : 0U) |
                         (first.is_whole ? SPILLWAY_MISMATCH_FIRST_WHOLE : 0U) |
                         (second.is_whole ? SPILLWAY_MISMATCH_SECOND_WHOLE : 0U);
  append_body(writer, spillway_mismatch_body{.operation = mismatch.operation,
                                             .ranks = {first.rank, second.rank},
                                             .bytes = {first.bytes, second.bytes},
                                             .flags = static_cast<__u8>(flags),
                                             .reserved = 0});
  for (const CallText& call : mismatch.calls) {
    const base::MutableByteView room = writer.reserve(call.bytes);
    SPILLWAY_CHECK(room.size() == call.bytes);
    std::copy_n(call.text.begin(), call.bytes, room.begin());
  }
}

void write_body(const ControlPacket& packet, base::ByteWriter& writer) {
  switch (packet.type) {
    case ControlType::kProbe:
      append_body(writer, spillway_probe_body{.packets = packet.probe.packets,
                                              .important = packet.probe.important,
                                              .transmitted = packet.probe.transmitted,
                                              .settled = packet.probe.settled,
                                              .all_sent = packet.probe.all_sent,
                                              .reserved = {}});
      return;
    case ControlType::kStop:
      append_body(writer, spillway_stop_body{.delivered = packet.stop.delivered,
                                             .outcome = static_cast<__u8>(packet.stop.outcome),
                                             .reserved = {}});
      return;
    case ControlType::kBitmap: {
      const BitmapRange& range = packet.bitmap.range;
      append_body(writer, spillway_bitmap_body{.first = range.first,
                                               .count = range.count,
                                               .missing = packet.bitmap.missing,
                                               .allowed = packet.bitmap.allowed});
      writer.append(base::ByteView(range.bits).first(bitmap_bytes(range.count)));
      return;
    }
    case ControlType::kCredit:
      append_body(writer, spillway_credit_body{.granted = packet.credit.granted,
                                               .path_count = packet.credit.path_count,
                                               .answer = packet.credit.answer,
                                               .reserved = 0});
      for (std::size_t i = 0; i < packet.credit.path_count; ++i) {
        append_body(writer, packet.credit.paths[i]);
      }
      return;
    case ControlType::kWait:
      return;
    case ControlType::kLeave:
      append_body(writer, spillway_leave_body{.culprit = packet.leave.culprit,
                                              .cause = static_cast<__u8>(packet.leave.cause),
                                              .reserved = 0});
      if (packet.leave.cause == FailureCause::kMismatch) {
        write_mismatch(packet.mismatch, writer);
      }
      return;
  }
}

bool read_probe(base::ByteReader& reader, ControlPacket::Probe& probe) {
  spillway_probe_body raw;
  if (!read_body(reader, raw) || raw.all_sent > 1) {
    return false;
  }
  probe = {.packets = raw.packets,
           .important = raw.important,
           .transmitted = raw.transmitted,
           .settled = raw.settled,
           .all_sent = raw.all_sent == 1};
  return true;
}

bool read_stop(base::ByteReader& reader, ControlPacket::Stop& stop) {
  spillway_stop_body raw;
  if (!read_body(reader, raw) || raw.outcome >= kOutcomes) {
    return false;
  }
  stop = {.outcome = static_cast<Outcome>(raw.outcome), .delivered = raw.delivered};
  return true;
}

bool read_bitmap(base::ByteReader& reader, ControlPacket::Bitmap& bitmap) {
  spillway_bitmap_body raw;
  if (!read_body(reader, raw) || raw.count > SPILLWAY_MAX_BITMAP_BYTES * 8) {
    return false;
  }
  bitmap.range.first = raw.first;
  bitmap.range.count = raw.count;
  bitmap.missing = raw.missing;
  bitmap.allowed = raw.allowed;
  const base::ByteView bits = reader.take(bitmap_bytes(raw.count));
  base::copy_bytes(bits.data(), bits.size(), bitmap.range.bits.data());
  return reader.ok();
}

bool read_credit(base::ByteReader& reader, ControlPacket::Credit& credit) {
  spillway_credit_body raw;
  if (!read_body(reader, raw) || raw.path_count > SPILLWAY_MAX_PATH_REPORTS || raw.answer > 1) {
    return false;
  }
  credit.granted = raw.granted;
  credit.answer = raw.answer == 1;
  credit.path_count = raw.path_count;
  for (std::size_t i = 0; i < raw.path_count; ++i) {
    if (!read_body(reader, credit.paths[i])) {
      return false;
    }
  }
  return true;
}

bool read_mismatch(base::ByteReader& reader, Mismatch& mismatch) {
  spillway_mismatch_body raw;
  if (!read_body(reader, raw) || (raw.flags & ~SPILLWAY_MISMATCH_FLAGS_KNOWN) != 0) {
    return false;
  }
  mismatch.operation = raw.operation;
  mismatch.is_point_to_point = (raw.flags & SPILLWAY_MISMATCH_POINT_TO_POINT) != 0;
  for (std::size_t i = 0; i < mismatch.calls.size(); ++i) {
    CallText& call = mismatch.calls[i];
    call.rank = raw.ranks[i];
    call.is_whole = (raw.flags >> (1 + i) & 1) != 0;
    call.bytes = raw.bytes[i];
    const base::ByteView text = reader.take(raw.bytes[i]);
    if (!reader.ok() || call.bytes > SPILLWAY_MAX_CALL_TEXT) {
      return false;
    }
    std::copy(text.begin(), text.end(), call.text.begin());
  }
  return true;
}

bool read_leave(base::ByteReader& reader, ControlPacket& packet) {
  spillway_leave_body raw;
  if (!read_body(reader, raw) || raw.cause >= kFailureCauses) {
    return false;
  }
  packet.leave = {.culprit = raw.culprit, .cause = static_cast<FailureCause>(raw.cause)};
  return packet.leave.cause != FailureCause::kMismatch ||
         read_mismatch(reader, *::new (&packet.mismatch) Mismatch);
}

// The body must fill all bytes up to the check.
bool read_whole_body(base::ByteView body, ControlPacket& packet) {
  base::ByteReader reader(body);
  const auto read = [&] {
    switch (packet.type) {
      case ControlType::kProbe:
        return read_probe(reader, packet.probe);
      case ControlType::kStop:
        return read_stop(reader, packet.stop);
      case ControlType::kBitmap:
        return read_bitmap(reader, packet.bitmap);
      case ControlType::kCredit:
        return read_credit(reader, packet.credit);
      case ControlType::kWait:
        return true;
      case ControlType::kLeave:
        return read_leave(reader, packet);
    }
    return false;
  };
  return read() && reader.ok() && reader.remaining() == 0;
}

void take_header(const spillway_control_header& raw, ControlPacket& packet) {
  packet.type = static_cast<ControlType>(spillway_type_of(raw.common.version_type));
  packet.job = raw.common.job;
  packet.epoch = raw.common.epoch;
  packet.source = raw.common.source;
  packet.destination = raw.common.destination;
  packet.message = {.operation = raw.common.operation,
                    .signature = raw.signature,
                    .piece = raw.common.piece,
                    .source = raw.message_source,
                    .phase = static_cast<Phase>(spillway_phase_of(raw.common.service))};
  packet.path = raw.common.path;
  packet.timestamp_us = raw.common.timestamp_us;
  packet.sequence = raw.common.number;
  packet.generation = raw.generation;
}

PacketFault check_header(const spillway_control_header& raw) {
  if (spillway_version_of(raw.common.version_type) != SPILLWAY_WIRE_VERSION) {
    return PacketFault::kVersion;
  }
  const unsigned type = spillway_type_of(raw.common.version_type);
  if (type < SPILLWAY_TYPE_PROBE || type > SPILLWAY_TYPE_LEAVE) {
    return PacketFault::kType;
  }
  const bool is_plain = raw.common.flags == 0 && raw.common.packet == 0 && raw.reserved == 0 &&
                        (raw.common.service & 0x3F) == 0;
  return is_plain ? PacketFault::kNone : PacketFault::kField;
}

}  // namespace

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kEverything:
      return "everything";
    case Outcome::kWithinBudget:
      return "within-budget";
    case Outcome::kDeadline:
      return "deadline";
    case Outcome::kCancelled:
      return "cancelled";
    case Outcome::kPeerDead:
      return "peer-dead";
  }
  return "unknown";
}

std::size_t ControlPacket::size() const {
  return kControlHeaderSize + body_size(*this) + SPILLWAY_CHECK_SIZE;
}

std::size_t write_control_packet(const ControlPacket& packet, const PacketAuth& auth,
                                 base::MutableByteView out) {
  SPILLWAY_CHECK(is_valid(packet) && out.size() >= packet.size());
  base::ByteWriter writer(out);
  write_header(packet, writer.reserve(kControlHeaderSize));
  write_body(packet, writer);
  const Check check = auth.check(packet.name(), base::ByteView(out).first(writer.position()));
  writer.append(check.bytes);
  SPILLWAY_CHECK(writer.ok());
  return writer.position();
}

PacketFault read_control_header(base::ByteView bytes, ControlPacket& packet) {
  spillway_control_header raw;
  if (bytes.size() < sizeof raw + SPILLWAY_CHECK_SIZE) {
    return PacketFault::kTooShort;
  }
  if (bytes.size() > kMaxControlPacket) {
    return PacketFault::kTooLong;
  }
  std::memcpy(&raw, bytes.data(), sizeof raw);
  const PacketFault fault = check_header(raw);
  if (fault == PacketFault::kNone) {
    take_header(raw, packet);
  }
  return fault;
}

PacketFault verify_control_packet(base::ByteView bytes, const PacketAuth& auth,
                                  ControlPacket& packet) {
  const base::ByteView checked = bytes.first(bytes.size() - SPILLWAY_CHECK_SIZE);
  if (!PacketAuth::matches(auth.check(packet.name(), checked), bytes.last(SPILLWAY_CHECK_SIZE))) {
    return PacketFault::kHeadCheck;
  }
  return read_whole_body(checked.subspan(kControlHeaderSize), packet) && is_valid(packet)
             ? PacketFault::kNone
             : PacketFault::kField;
}

PacketFault open_control_packet(base::ByteView bytes, const PacketAuth& auth, ControlPacket& packet,
                                std::uint64_t near) {
  const PacketFault fault = read_control_header(bytes, packet);
  if (fault != PacketFault::kNone) {
    return fault;
  }
  packet.sequence = widen_counter(packet.sequence, near);
  return verify_control_packet(bytes, auth, packet);
}

}  // namespace spillway::wire
