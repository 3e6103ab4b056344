-- SPDX-License-Identifier: Apache-2.0
--
-- Shows Spillway packets in Wireshark and tshark: every field of docs/wire.md, how much of a packet
-- is left, and which of its checks are present.
--
--   tshark -X lua_script:spillway.lua -r FILE -Y "spillway.trimmed == 1"
--
-- or put the file into Wireshark's personal Lua plugin folder (Help > About > Folders). Packets are
-- recognised by their UDP port (a preference, 7077), by "Decode As", and otherwise by their
-- contents: the same bounds that lib/wire checks in a header.
--
-- The dissector distinguishes two lengths: what the wire carried (tvb:reported_len(); IP and UDP
-- lengths may be stale after a trim and are ignored) and what the capture kept of it
-- (tvb:captured_len()). Only the first can make a packet trimmed.
--
-- Checks are tags under keys that follow from the run's key, so they are shown and not verified. Only
-- the cleartext of an encrypted packet is shown: its header without the scale.
--
-- Packets may contain any bytes: nothing is read before it is known to be captured. This is one
-- file, because plugins are copied as single files. Tested with Wireshark 4.0.

local spillway = Proto("spillway", "Spillway")

-- ------------------------------------------------------------------ the format (lib/wire/packet.h)

local VERSION = 4
local TYPE = {PLANES = 1, PROBE = 2, STOP = 3, BITMAP = 4, CREDIT = 5, WAIT = 6, LEAVE = 7, BYTES = 9}
local TYPE_NAMES = {"PLANES", "PROBE", "STOP", "BITMAP", "CREDIT", "WAIT", "LEAVE", [9] = "BYTES"}
local PHASE_NAMES = {[0] = "reduce", "gather", "note", "point-to-point"}
local OUTCOME_NAMES = {[0] = "everything", "within budget", "deadline", "cancelled"}
local CAUSE_NAMES = {[0] = "done", "silent", "runs another operation", "aborted", "too slow", "broke"}
-- lib/collective/operation.h: part of the format, since signatures carry them in clear
local KIND_NAMES = {[0] = "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
                    "scatter", "all_to_all", "barrier", "send", "receive"}
local ELEMENT_NAMES = {[0] = "float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8"}
local REDUCTION_NAMES = {[0] = "sum", "average", "min", "max", "product", "bit_and", "bit_or", "bit_xor"}
local KIND_SEND = 9
local FLAG_ENCRYPTED, FLAGS_KNOWN, FLAG_CODE = 0x01, 0x1F, 0x20
local COMMON_HEADER, SIGNED_HEADER, PLANES_HEADER, CONTROL_HEADER = 24, 32, 44, 40
local QUANTUM = 32       -- coordinates
local MAX_QUANTA = 256   -- per packet, written as 0
local TAIL_NAMES = {[0] = "one for all of it", "one per segment"}
local TAIL_SEGMENTS, TAIL_SEGMENT = 1, 512 -- bytes of planes per tail check
local MAX_PATH = 64
local CHECK = 8          -- bytes of a tag
local MAX_PACKET = 8972
local MAX_PACKETS = 65536 -- per message
local MAX_PLANES = 32
local MIN_ROW_LOG2, MAX_ROW_LOG2 = 8, 15
local MAX_BITMAP_COUNT, MAX_PATH_REPORTS = 8192, 16
local PATH_REPORT = 32
local BODY = {[TYPE.PROBE] = 20, [TYPE.STOP] = 8, [TYPE.BITMAP] = 16, [TYPE.CREDIT] = 8, [TYPE.WAIT] = 0,
              [TYPE.LEAVE] = 4}
local CAUSE_MISMATCH = 2
local MISMATCH = 16 -- follows the body of a LEAVE with that cause
local MISMATCH_FLAGS_KNOWN, MAX_CALL_TEXT = 0x07, 200
local DSCP_TRIMMED = 48 -- lib/wire/packet.h

local MAX_RANGES_SHOWN = 32 -- missing packets in a BITMAP

-- ------------------------------------------------------------------ fields

local function number(bits, name, label, names, mask)
  return ProtoField["uint" .. bits]("spillway." .. name, label, base.DEC, names, mask)
end
local function flag(name, label, mask)
  return ProtoField.bool("spillway." .. name, label, 8, nil, mask)
end

local f = {
  version = number(8, "version", "Version", nil, 0xF0),
  type = number(8, "type", "Type", TYPE_NAMES, 0x0F),
  flags = ProtoField.uint8("spillway.flags", "Flags", base.HEX),
  encrypted = flag("flags.encrypted", "Scale, planes and bytes encrypted", 0x01),
  last = flag("flags.last", "Last packet of its message", 0x02),
  retransmit = flag("flags.retransmit", "Sent before", 0x04),
  report = flag("flags.report", "Report at once", 0x08),
  requires = flag("flags.requires", "A PROBE says how many packets must arrive", 0x10),
  code = flag("flags.code", "Floats as code", 0x20),
  unknown_flags = ProtoField.uint8("spillway.flags.unknown", "Unknown flags", base.HEX, nil, 0xC0),
  job = number(16, "job", "Job"),
  epoch = number(8, "epoch", "Epoch, low bits"),
  source = number(16, "source", "Source rank"),
  destination = number(16, "destination", "Destination rank"),
  piece = number(16, "piece", "Piece"),
  operation = number(24, "operation", "Operation, low bits"),
  signature = ProtoField.uint64("spillway.signature", "Signature", base.HEX),
  signature_kind = number(16, "signature.kind", "Kind", KIND_NAMES, 0xFC00),
  signature_type = number(16, "signature.type", "Element type", ELEMENT_NAMES, 0x03F0),
  signature_reduction = number(16, "signature.reduction", "Reduction", REDUCTION_NAMES, 0x000F),
  signature_tag = number(24, "signature.tag", "Tag of the send"),
  phase = number(8, "phase", "Phase", PHASE_NAMES, 0xC0),
  priority = number(8, "priority", "Priority", nil, 0x38),
  importance = number(8, "importance", "Importance", nil, 0x07),
  path = number(8, "path", "Path"),
  packet = number(16, "packet", "Packet"),
  timestamp = number(24, "timestamp", "Timestamp (us), low bits"),

  row_log2 = number(8, "row_log2", "Row length, log2"),
  rotations = number(8, "rotations", "Rotations", nil, 0xC0),
  planes = number(8, "planes", "Planes sent", nil, 0x3F),
  row = number(16, "row", "Row"),
  slot = number(8, "slot", "Slot"),
  quanta = number(8, "quanta", "Quanta"),
  head_words = number(8, "head_words", "Head, 4-byte words"),
  tail = number(8, "tail", "Checks of the tail", TAIL_NAMES),
  number = number(24, "number", "Number on its path, low bits"),
  scale = ProtoField.float("spillway.scale", "Scale"),
  encrypted_scale = ProtoField.bytes("spillway.encrypted_scale", "Scale, encrypted"),

  first = number(32, "coordinates.first", "First coordinate"),
  count = number(32, "coordinates.count", "Coordinates"),
  head_bytes = number(32, "head_bytes", "Head bytes"),
  sent_bytes = number(32, "sent_bytes", "Bytes when sent"),
  bytes = number(32, "bytes", "Bytes on this wire"),
  captured_bytes = number(32, "captured_bytes", "Bytes in this capture"),
  trimmed = ProtoField.bool("spillway.trimmed", "Trimmed"),
  diverted = ProtoField.bool("spillway.diverted", "Diverted whole"),
  planes_present = ProtoField.float("spillway.planes_present", "Planes under a check that is there"),
  whole_planes = number(8, "whole_planes", "Whole planes among them"),
  unchecked_bytes = number(32, "unchecked_bytes", "Bytes behind the last check, of no use"),
  plane_data = ProtoField.bytes("spillway.plane_data", "Planes"),
  encrypted_planes = ProtoField.bytes("spillway.encrypted_planes", "Planes, encrypted"),
  byte_count = number(32, "byte_count", "Bytes carried"),
  byte_data = ProtoField.bytes("spillway.byte_data", "Bytes"),
  encrypted_bytes = ProtoField.bytes("spillway.encrypted_bytes", "Bytes, encrypted"),

  checks_present = number(8, "check.present", "Checks present"),
  checks_sent = number(8, "check.sent", "Checks sent"),
  check = ProtoField.bytes("spillway.check", "Tag"),
  segment = number(8, "segment", "Tail segment"),

  message_source = number(16, "message_source", "Source rank of the message"),
  sequence = number(24, "sequence", "Sequence, low bits"),
  generation = number(32, "generation", "Generation"),
  probe_packets = number(32, "probe.packets", "Packets of the message"),
  probe_important = number(32, "probe.important", "Important ones"),
  probe_transmitted = number(32, "probe.transmitted", "Packets sent so far"),
  probe_settled = number(32, "probe.settled", "Packets to this rank that came or are lost (low bits)"),
  probe_all_sent = number(8, "probe.all_sent", "All sent at least once"),
  stop_delivered = number(32, "stop.delivered", "Packets delivered"),
  stop_outcome = number(8, "stop.outcome", "Outcome", OUTCOME_NAMES),
  bitmap_first = number(32, "bitmap.first", "First packet"),
  bitmap_count = number(32, "bitmap.count", "Packets of this range"),
  bitmap_missing = number(32, "bitmap.missing", "Missing in the whole message"),
  bitmap_allowed = number(32, "bitmap.allowed", "Allowed to stay missing"),
  bitmap_bits = ProtoField.bytes("spillway.bitmap.bits", "Bits"),
  bitmap_delivered = number(32, "bitmap.delivered", "Delivered in this range"),
  bitmap_gap = ProtoField.string("spillway.bitmap.gap", "Missing"),
  credit_granted = number(32, "credit.granted", "Packets granted so far (low bits)"),
  credit_paths = number(8, "credit.path_count", "Path reports"),
  credit_answer = number(8, "credit.answer", "Answer asked for"),
  leave_culprit = number(16, "leave.culprit", "Because of rank"),
  leave_cause = number(8, "leave.cause", "Which", CAUSE_NAMES),
  mismatch_operation = ProtoField.uint64("spillway.mismatch.operation", "Operation", base.DEC),
  mismatch_point_to_point = flag("mismatch.point_to_point", "A message between the two", 0x01),
  mismatch_first_whole = flag("mismatch.first_whole", "First call known in whole", 0x02),
  mismatch_second_whole = flag("mismatch.second_whole", "Second call known in whole", 0x04),
  mismatch_rank = number(16, "mismatch.rank", "Rank"),
  mismatch_call = ProtoField.string("spillway.mismatch.call", "It calls"),
  report_item = ProtoField.none("spillway.report", "Path report"),
  report_path = number(8, "report.path", "Path"),
  report_hold = number(32, "report.hold", "Held for (us)"),
  report_packets = number(32, "report.packets", "Packets"),
  report_marked = number(32, "report.marked", "Marked"),
  report_usable = ProtoField.uint64("spillway.report.usable", "Of use, from the latest back", base.HEX),
  report_echo = number(32, "report.echo", "Latest timestamp (us)"),
  report_echo_number = number(32, "report.echo_number", "Its number"),
}
spillway.fields = f

-- Positions: field, offset, bytes.
local COMMON_FIELDS = {
  {f.job, 2, 2}, {f.source, 4, 2}, {f.destination, 6, 2}, {f.piece, 8, 2}, {f.packet, 10, 2},
  {f.operation, 12, 3}, {f.epoch, 15, 1}, {f.path, 19, 1}, {f.timestamp, 20, 3}, {f.phase, 23, 1},
  {f.priority, 23, 1}, {f.importance, 23, 1},
}
local SIGNATURE_FIELDS = {
  {f.signature_kind, 30, 2}, {f.signature_type, 30, 2}, {f.signature_reduction, 30, 2},
}
local FLAG_FIELDS = {
  {f.encrypted, 1, 1}, {f.last, 1, 1}, {f.retransmit, 1, 1}, {f.report, 1, 1}, {f.requires, 1, 1},
  {f.code, 1, 1}, {f.unknown_flags, 1, 1},
}
local PLANES_FIELDS = {
  {f.row_log2, 32, 1}, {f.rotations, 33, 1}, {f.planes, 33, 1}, {f.row, 34, 2}, {f.slot, 36, 1},
  {f.quanta, 37, 1}, {f.head_words, 38, 1}, {f.tail, 39, 1},
}
local CONTROL_FIELDS = {{f.sequence, 16, 3}, {f.message_source, 32, 2}, {f.generation, 36, 4}}
local BODY_FIELDS = { -- from the end of the header
  [TYPE.PROBE] = {{f.probe_packets, 0, 4}, {f.probe_important, 4, 4}, {f.probe_transmitted, 8, 4},
                  {f.probe_settled, 12, 4}, {f.probe_all_sent, 16, 1}},
  [TYPE.STOP] = {{f.stop_delivered, 0, 4}, {f.stop_outcome, 4, 1}},
  [TYPE.BITMAP] = {{f.bitmap_first, 0, 4}, {f.bitmap_count, 4, 4}, {f.bitmap_missing, 8, 4},
                   {f.bitmap_allowed, 12, 4}},
  [TYPE.CREDIT] = {{f.credit_granted, 0, 4}, {f.credit_paths, 4, 1}, {f.credit_answer, 5, 1}},
  [TYPE.WAIT] = {},
  [TYPE.LEAVE] = {{f.leave_culprit, 0, 2}, {f.leave_cause, 2, 1}},
}
local MISMATCH_FIELDS = { -- from the body's start
  {f.mismatch_operation, 4, 8}, {f.mismatch_point_to_point, 18, 1}, {f.mismatch_first_whole, 18, 1},
  {f.mismatch_second_whole, 18, 1},
}
local REPORT_FIELDS = {
  {f.report_path, 0, 1}, {f.report_hold, 4, 4}, {f.report_packets, 8, 4}, {f.report_marked, 12, 4},
  {f.report_usable, 16, 8}, {f.report_echo, 24, 4}, {f.report_echo_number, 28, 4},
}

local e = {
  malformed = ProtoExpert.new("spillway.expert.malformed", "No reader takes this packet",
                              expert.group.MALFORMED, expert.severity.ERROR),
  trimmed = ProtoExpert.new("spillway.expert.trimmed", "Trimmed on the way",
                            expert.group.SEQUENCE, expert.severity.NOTE),
  cut_in_head = ProtoExpert.new("spillway.expert.cut_in_head", "Cut inside its head: lost",
                                expert.group.SEQUENCE, expert.severity.WARN),
  snapped = ProtoExpert.new("spillway.expert.snapped", "Cut in the capture",
                            expert.group.UNDECODED, expert.severity.CHAT),
}
spillway.experts = e

-- `bytes` is a function or range that returns the range at an offset with a length.
local function add_fields(tree, bytes, fields)
  for _, field in ipairs(fields) do
    tree:add_le(field[1], bytes(field[2], field[3]))
  end
end

local function add_computed(tree, field, value)
  return tree:add(field, value):set_generated()
end

-- ------------------------------------------------------------------ headers

local band, lshift, rshift = bit.band, bit.lshift, bit.rshift

local function is_control(kind)
  return kind >= TYPE.PROBE and kind <= TYPE.LEAVE
end

-- The first packet of bytes of a message has its signature.
local function bytes_header_size(packet)
  return packet == 0 and SIGNED_HEADER or COMMON_HEADER
end

-- Needs one captured byte. The header of another version is unknown beyond that byte.
local function header_size(tvb)
  local version_type = tvb(0, 1):uint()
  if rshift(version_type, 4) ~= VERSION then
    return 1
  end
  local kind = band(version_type, 0x0F)
  if kind == TYPE.BYTES and tvb:captured_len() >= COMMON_HEADER then
    return bytes_header_size(tvb(10, 2):le_uint())
  end
  return kind == TYPE.PLANES and PLANES_HEADER or is_control(kind) and CONTROL_HEADER or COMMON_HEADER
end

local function has_header(tvb)
  return tvb:captured_len() > 0 and tvb:captured_len() >= header_size(tvb)
end

local function read_common(tvb, header)
  header.flags = tvb(1, 1):uint()
  header.is_encrypted = band(header.flags, FLAG_ENCRYPTED) ~= 0
  header.source = tvb(4, 2):le_uint()
  header.destination = tvb(6, 2):le_uint()
  header.piece = tvb(8, 2):le_uint()
  header.packet = tvb(10, 2):le_uint()
  header.operation = tvb(12, 3):le_uint()
  header.path = tvb(19, 1):uint()
  header.urgency = band(tvb(23, 1):uint(), 0x3F) -- priority and importance
end

local function read_signature(tvb, header)
  header.signature = "0x" .. tvb(24, 8):le_uint64():tohex():lower():gsub("^0+(%x)", "%1")
  header.signature_kind = rshift(tvb(31, 1):uint(), 2)
end

local function read_planes(tvb, header)
  local planes = tvb(33, 1):uint()
  header.row_log2 = tvb(32, 1):uint()
  header.rotations, header.planes = rshift(planes, 6), band(planes, 0x3F)
  header.row = tvb(34, 2):le_uint()
  header.slot = tvb(36, 1):uint()
  header.quanta = (tvb(37, 1):uint() - 1) % MAX_QUANTA + 1
  header.head_bytes = tvb(38, 1):uint() * 4
  header.tail = tvb(39, 1):uint()
  header.scale_bits = tvb(40, 4):le_uint()
end

local function read_control(tvb, header)
  header.message_source = tvb(32, 2):le_uint()
  header.reserved = tvb(34, 2):le_uint()
end

-- Needs a captured header.
local function read_header(tvb)
  local version_type = tvb(0, 1):uint()
  local header = {version = rshift(version_type, 4), type = band(version_type, 0x0F)}
  if header.version == VERSION then
    read_common(tvb, header)
    if header_size(tvb) >= SIGNED_HEADER then
      read_signature(tvb, header)
    end
    if header.type == TYPE.PLANES then
      read_planes(tvb, header)
    elseif is_control(header.type) then
      read_control(tvb, header)
    end
  end
  return header
end

-- Derived from the header of planes: its coordinates, and the offsets of all parts.
local function layout_of(header)
  local length = lshift(1, header.row_log2)
  local first = header.slot * header.quanta * QUANTUM
  local count = math.min(header.quanta * QUANTUM, length - math.min(length, first))
  local plane_bytes = rshift(count, 3)
  local tail = plane_bytes * header.planes - header.head_bytes
  local head_end = PLANES_HEADER + CHECK + header.head_bytes
  local segment = header.tail == TAIL_SEGMENTS and TAIL_SEGMENT or math.max(1, tail)
  local segments = math.max(0, math.ceil(tail / segment))
  return {
    length = length,
    first = first,
    count = count,
    plane_bytes = plane_bytes,
    tail = tail,
    head_end = head_end,
    segment = segment,
    segments = segments,
    sent = head_end + tail + segments * CHECK,
  }
end

-- The offset of tail segment `index` (from 0), and its bytes of planes.
local function segment_span(layout, index)
  local offset = layout.head_end + index * (layout.segment + CHECK)
  return offset, math.min(layout.segment, layout.tail - index * layout.segment)
end

-- An encrypted scale can be anything.
local function is_scale_valid(header)
  local bits, rotations = header.scale_bits, header.rotations
  if header.is_encrypted then
    return true
  end
  local magnitude = bits % 0x80000000
  if magnitude == 0 or magnitude > 0x7F800000 then -- zero or NaN
    return rotations == 0
  end
  return bits < 0x7F800000 and rotations >= 1
end

-- ------------------------------------------------------------------ faults of packets
-- Each function returns a sentence, or nil for a valid packet. `bytes` is its length on the wire.

local function planes_fault(header, bytes)
  if header.row_log2 < MIN_ROW_LOG2 or header.row_log2 > MAX_ROW_LOG2 then
    return "a row of 2^" .. header.row_log2 .. " coordinates"
  elseif header.planes == 0 or header.planes > MAX_PLANES then
    return header.planes .. " planes"
  elseif header.head_bytes == 0 then
    return "no head"
  elseif not TAIL_NAMES[header.tail] then
    return "unknown checks of the tail"
  elseif not is_scale_valid(header) then
    return "scale and rotations contradict each other"
  end
  local layout = layout_of(header)
  if layout.count == 0 then
    return "coordinates beyond the end of the row"
  elseif layout.tail < 0 then
    return "a head of more bytes than all planes have"
  elseif layout.sent > MAX_PACKET then
    return "a packet of " .. layout.sent .. " bytes"
  elseif bytes > layout.sent then
    return string.format("%d bytes where its header accounts for %d; on a host that sends, several "
                         .. "packets that the card is to take apart look like this", bytes, layout.sent)
  end
end

-- `body` is the fixed part after a control packet's header.
local body_fault = {
  [TYPE.PROBE] = function(body)
    local packets = body(0, 4):le_uint()
    if packets == 0 or packets > MAX_PACKETS or body(4, 4):le_uint() > packets
       or body(16, 1):uint() > 1 then
      return "a PROBE with counts that cannot be"
    end
  end,
  [TYPE.STOP] = function(body)
    if body(0, 4):le_uint() > MAX_PACKETS or not OUTCOME_NAMES[body(4, 1):uint()] then
      return "a STOP with a count or an outcome that cannot be"
    end
  end,
  [TYPE.BITMAP] = function(body)
    local first, count = body(0, 4):le_uint(), body(4, 4):le_uint()
    if count == 0 or count > MAX_BITMAP_COUNT or first + count > MAX_PACKETS
       or body(8, 4):le_uint() > MAX_PACKETS or body(12, 4):le_uint() > MAX_PACKETS then
      return "a BITMAP with a range or counts that cannot be"
    end
  end,
  [TYPE.CREDIT] = function(body)
    if body(4, 1):uint() > MAX_PATH_REPORTS or body(5, 1):uint() > 1 then
      return "a CREDIT with too many reports, or an answer that is neither yes nor no"
    end
  end,
  [TYPE.WAIT] = function() end,
  [TYPE.LEAVE] = function(body)
    if not CAUSE_NAMES[body(2, 1):uint()] then
      return "a LEAVE for a reason that cannot be"
    elseif body(2, 1):uint() == CAUSE_MISMATCH and (body(16, 1):uint() > MAX_CALL_TEXT
           or body(17, 1):uint() > MAX_CALL_TEXT or body(18, 1):uint() > MISMATCH_FLAGS_KNOWN) then
      return "a LEAVE with calls that are too long, or with unknown flags"
    end
  end,
}

-- Bytes of the fixed part of the body, as far as the captured bytes tell.
local function fixed_body(tvb, kind)
  local cause = CONTROL_HEADER + 2
  if kind == TYPE.LEAVE and tvb:captured_len() > cause and tvb(cause, 1):uint() == CAUSE_MISMATCH then
    return BODY[kind] + MISMATCH
  end
  return BODY[kind]
end

local function has_fixed_body(tvb, kind)
  return tvb:captured_len() >= CONTROL_HEADER + fixed_body(tvb, kind)
end

-- Offsets are relative to the body. A WAIT has no body.
local function body_of(tvb)
  return function(offset, length) return tvb(CONTROL_HEADER + offset, length) end
end

-- Bytes of a control packet up to its check; its fixed part must be captured.
local function control_length(tvb, kind)
  local length = CONTROL_HEADER + BODY[kind]
  if kind == TYPE.BITMAP then
    return length + math.ceil(body_of(tvb)(4, 4):le_uint() / 8)
  elseif kind == TYPE.CREDIT then
    return length + body_of(tvb)(4, 1):uint() * PATH_REPORT
  elseif fixed_body(tvb, kind) > BODY[kind] then
    local body = body_of(tvb)
    return length + MISMATCH + body(16, 1):uint() + body(17, 1):uint()
  end
  return length
end

local function control_fault(tvb, header)
  if header.packet ~= 0 or header.urgency ~= 0 or header.flags ~= 0 or header.reserved ~= 0 then
    return "a control packet whose packet, priority, importance and flags are not zero"
  end
  local bytes, shortest = tvb:reported_len(), CONTROL_HEADER + fixed_body(tvb, header.type) + CHECK
  if bytes < shortest then
    return string.format("%d bytes where a %s has at least %d", bytes, TYPE_NAMES[header.type], shortest)
  elseif not has_fixed_body(tvb, header.type) then
    return nil
  end
  local fault = body_fault[header.type](body_of(tvb))
  local expected = control_length(tvb, header.type) + CHECK
  if fault or bytes == expected then
    return fault
  end
  return string.format("%d bytes where its body accounts for %d", bytes, expected)
end

local function packet_fault(tvb, header)
  if header.version ~= VERSION then
    return "unknown version " .. header.version
  elseif not TYPE_NAMES[header.type] then
    return "unknown type " .. header.type
  elseif header.flags > FLAGS_KNOWN + (header.type == TYPE.BYTES and FLAG_CODE or 0) then
    return "unknown flags"
  elseif is_control(header.type) then
    return control_fault(tvb, header)
  elseif header.path > MAX_PATH then
    return "a path beyond the stream"
  elseif header.type == TYPE.PLANES then
    return planes_fault(header, tvb:reported_len())
  elseif tvb:reported_len() > MAX_PACKET then
    return "a packet of " .. tvb:reported_len() .. " bytes"
  end
end

-- ------------------------------------------------------------------ checks in the tree

local function add_check(tree, tvb, offset)
  tree:add(f.check, tvb(offset, CHECK)):append_text(" (not verifiable without the run's key)")
end

local function add_planes_of(tree, tvb, header, offset, length)
  tree:add(header.is_encrypted and f.encrypted_planes or f.plane_data, tvb(offset, length))
end

local function add_segment(tree, tvb, header, index, offset, length)
  local item = tree:add(f.segment, tvb(offset, length + CHECK), index)
  item:append_text(", " .. length .. " bytes")
  add_planes_of(item, tvb, header, offset, length)
  add_check(item, tvb, offset + length)
end

-- ------------------------------------------------------------------ packets of planes

-- The part of a packet of `bytes` that present checks cover: tail segments, bytes of planes, and
-- where that part ends.
local function usable_part(header, layout, bytes)
  if bytes < layout.head_end then
    return {segments = 0, plane_bytes = 0, stop = PLANES_HEADER}
  end
  local part = {segments = 0, plane_bytes = header.head_bytes, stop = layout.head_end}
  while part.segments < layout.segments do
    local offset, length = segment_span(layout, part.segments)
    if offset + length + CHECK > bytes then
      break
    end
    part = {segments = part.segments + 1, plane_bytes = part.plane_bytes + length,
            stop = offset + length + CHECK}
  end
  return part
end

-- Adds what was captured of the parts that are complete on the wire.
local function add_parts(tree, tvb, header, layout, part)
  local captured = tvb:captured_len()
  if part.plane_bytes == 0 or captured < layout.head_end then
    return
  end
  local head = tree:add(tvb(PLANES_HEADER, layout.head_end - PLANES_HEADER),
                        "Head, " .. header.head_bytes .. " bytes")
  add_check(head, tvb, PLANES_HEADER)
  add_planes_of(head, tvb, header, PLANES_HEADER + CHECK, header.head_bytes)
  for index = 0, part.segments - 1 do
    local offset, length = segment_span(layout, index)
    if offset + length + CHECK > captured then
      return
    end
    add_segment(tree, tvb, header, index, offset, length)
  end
end

-- The last one counts: in a tunnel, that is the innermost.
local dscp_fields = {Field.new("ip.dsfield.dscp"), Field.new("ipv6.tclass.dscp")}
local function is_marked_trimmed()
  for _, field in ipairs(dscp_fields) do
    local found = {field()}
    if #found > 0 and found[#found].value == DSCP_TRIMMED then
      return true
    end
  end
  return false
end

local function add_planes(tree, header, layout, part)
  local whole = math.floor(part.plane_bytes / layout.plane_bytes)
  local rest = part.plane_bytes - whole * layout.plane_bytes
  local present = part.plane_bytes / layout.plane_bytes
  local item = add_computed(tree, f.planes_present, present)
  item:append_text(string.format(" of %d: %d whole", header.planes, whole))
  if rest > 0 then
    item:append_text(string.format(", and %d of the %d bytes of the next", rest, layout.plane_bytes))
  end
  add_computed(tree, f.whole_planes, whole)
  return present
end

local function add_bytes_here(tree, tvb)
  local bytes, captured = tvb:reported_len(), tvb:captured_len()
  add_computed(tree, f.bytes, bytes)
  if captured < bytes then
    local item = add_computed(tree, f.captured_bytes, captured)
    item:add_proto_expert_info(e.snapped, string.format(
      "The capture kept %d of the %d bytes that were on the wire: no trim",
      captured, bytes))
  end
end

local function add_lengths(tree, tvb, layout, part)
  local bytes = tvb:reported_len()
  add_computed(tree, f.sent_bytes, layout.sent)
  add_bytes_here(tree, tvb)
  if bytes > part.stop and part.plane_bytes > 0 then
    add_computed(tree, f.unchecked_bytes, bytes - part.stop)
  end
end

-- Adds the packet's fate, and returns it in a few words.
local function add_fate(tree, bytes, layout, planes)
  local is_trimmed = bytes < layout.sent
  local item = add_computed(tree, f.trimmed, is_trimmed)
  if bytes < layout.head_end then
    item:add_proto_expert_info(e.cut_in_head)
    return "cut in its head"
  elseif is_trimmed then
    item:add_proto_expert_info(e.trimmed, string.format("Trimmed from %d to %d bytes: %s planes left",
                                                        layout.sent, bytes, planes))
    return "trimmed"
  end
  local is_diverted = is_marked_trimmed()
  add_computed(tree, f.diverted, is_diverted)
  return is_diverted and "diverted, whole" or "whole"
end

local function message_words(header)
  local signature = header.signature and " signature=" .. header.signature or ""
  return string.format("src=%d dst=%d operation=%d%s piece=%d", header.source, header.destination,
                       header.operation, signature, header.piece)
end

local function dissect_planes(tree, tvb, header)
  local layout = layout_of(header)
  local bytes = tvb:reported_len()
  local part = usable_part(header, layout, bytes)
  add_computed(tree, f.head_bytes, header.head_bytes)
  add_computed(tree, f.first, layout.first)
  add_computed(tree, f.count, layout.count):append_text(" of a row of " .. layout.length)
  add_lengths(tree, tvb, layout, part)
  local present = string.format("%.3g", add_planes(tree, header, layout, part))
  local fate = add_fate(tree, bytes, layout, present)
  add_computed(tree, f.checks_sent, 1 + layout.segments)
  add_computed(tree, f.checks_present, part.plane_bytes > 0 and 1 + part.segments or 0)
  add_parts(tree, tvb, header, layout, part)
  return string.format("%s #%d planes %s/%d %s%s", message_words(header), header.packet, present,
                       header.planes, fate, header.is_encrypted and " (encrypted)" or "")
end

-- ------------------------------------------------------------------ packets of bytes

-- They do not say how long they were sent, so only the switch's mark shows a trim.
local function dissect_bytes(tree, tvb, header)
  local bytes, captured = tvb:reported_len(), tvb:captured_len()
  local size = bytes_header_size(header.packet)
  local first, last = size + CHECK, bytes - CHECK
  local is_whole = not is_marked_trimmed() and last > first
  add_bytes_here(tree, tvb)
  add_computed(tree, f.trimmed, not is_whole)
  add_computed(tree, f.checks_sent, 2)
  add_computed(tree, f.checks_present, bytes < first and 0 or is_whole and 2 or 1)
  if captured >= first then
    add_check(tree, tvb, size)
  end
  if is_whole then
    add_computed(tree, f.byte_count, last - first)
    if captured >= bytes then
      tree:add(header.is_encrypted and f.encrypted_bytes or f.byte_data, tvb(first, last - first))
      add_check(tree, tvb, last)
    end
  end
  return string.format("%s #%d %s%s", message_words(header), header.packet,
                       is_whole and (last - first) .. " bytes" or "trimmed",
                       header.is_encrypted and " (encrypted)" or "")
end

-- ------------------------------------------------------------------ control packets

-- Runs of packets whose bit is 0, as {first, last}; and the number of 1 bits.
local function bitmap_gaps(bits, first, count)
  local gaps, delivered, gap = {}, 0, nil
  for i = 0, count - 1 do
    if band(rshift(bits:byte(math.floor(i / 8) + 1), i % 8), 1) == 1 then
      delivered, gap = delivered + 1, nil
    elseif gap then
      gap[2] = first + i
    else
      gap = {first + i, first + i}
      gaps[#gaps + 1] = gap
    end
  end
  return gaps, delivered
end

local function add_bitmap(tree, body)
  local first, count = body(0, 4):le_uint(), body(4, 4):le_uint()
  local range = body(BODY[TYPE.BITMAP], math.ceil(count / 8))
  tree:add(f.bitmap_bits, range)
  local gaps, delivered = bitmap_gaps(range:raw(), first, count)
  add_computed(tree, f.bitmap_delivered, delivered)
  for i = 1, math.min(#gaps, MAX_RANGES_SHOWN) do
    local from, to = gaps[i][1], gaps[i][2]
    add_computed(tree, f.bitmap_gap, from == to and tostring(from) or from .. "-" .. to)
  end
  if #gaps > MAX_RANGES_SHOWN then
    tree:add(range, string.format("... and %d more ranges are missing", #gaps - MAX_RANGES_SHOWN))
  end
end

local function add_path_reports(tree, body)
  for i = 0, body(4, 1):uint() - 1 do
    local range = body(BODY[TYPE.CREDIT] + i * PATH_REPORT, PATH_REPORT)
    local item = tree:add(f.report_item, range)
    item:append_text(string.format(": path %d, %d packets, %d marked", range(0, 1):uint(),
                                   range(8, 4):le_uint(), range(12, 4):le_uint()))
    add_fields(item, range, REPORT_FIELDS)
  end
end

local function add_calls(tree, body)
  if body(2, 1):uint() ~= CAUSE_MISMATCH then
    return
  end
  add_fields(tree, body, MISMATCH_FIELDS)
  local at = BODY[TYPE.LEAVE] + MISMATCH
  for i = 0, 1 do
    local bytes = body(16 + i, 1):uint()
    tree:add_le(f.mismatch_rank, body(12 + 2 * i, 2))
    if bytes > 0 then
      tree:add(f.mismatch_call, body(at, bytes))
    end
    at = at + bytes
  end
end

local add_list = {[TYPE.BITMAP] = add_bitmap, [TYPE.CREDIT] = add_path_reports,
                  [TYPE.LEAVE] = add_calls}

local body_words = {
  [TYPE.PROBE] = function(body)
    return string.format(" packets=%d transmitted=%d%s", body(0, 4):le_uint(), body(8, 4):le_uint(),
                         body(16, 1):uint() == 1 and " all sent" or "")
  end,
  [TYPE.STOP] = function(body)
    return string.format(" delivered=%d %s", body(0, 4):le_uint(), OUTCOME_NAMES[body(4, 1):uint()])
  end,
  [TYPE.BITMAP] = function(body)
    local first, count = body(0, 4):le_uint(), body(4, 4):le_uint()
    return string.format(" #%d-%d missing=%d allowed=%d", first, first + count - 1,
                         body(8, 4):le_uint(), body(12, 4):le_uint())
  end,
  [TYPE.CREDIT] = function(body)
    return string.format(" granted=%d paths=%d", body(0, 4):le_uint(), body(4, 1):uint())
  end,
  [TYPE.WAIT] = function() return "" end,
  [TYPE.LEAVE] = function(body)
    return string.format(" because of %d: %s", body(0, 2):le_uint(), CAUSE_NAMES[body(2, 1):uint()])
  end,
}

local function dissect_control(tree, tvb, header)
  local words = string.format("%s of=%d", message_words(header), header.message_source)
  if not has_fixed_body(tvb, header.type) then
    tree:add_proto_expert_info(e.snapped)
    return words
  end
  local body = body_of(tvb)
  add_fields(tree, body, BODY_FIELDS[header.type])
  words = words .. body_words[header.type](body)
  local length = control_length(tvb, header.type)
  if tvb:captured_len() < length + CHECK then
    tree:add_proto_expert_info(e.snapped)
    return words
  end
  if add_list[header.type] then
    add_list[header.type](tree, body)
  end
  add_check(tree, tvb, length)
  return words
end

-- ------------------------------------------------------------------ packets

local function add_signature(tree, tvb, header)
  local item = tree:add_le(f.signature, tvb(24, 8))
  add_fields(item, tvb, SIGNATURE_FIELDS)
  if header.signature_kind == KIND_SEND then
    item:add_le(f.signature_tag, tvb(27, 3))
  end
end

local function add_planes_header(tree, tvb, header)
  add_fields(tree, tvb, PLANES_FIELDS)
  if header.is_encrypted then
    tree:add(f.encrypted_scale, tvb(40, 4))
  else
    tree:add_le(f.scale, tvb(40, 4))
  end
end

local function add_header(tree, tvb, header)
  add_fields(tree, tvb, {{f.version, 0, 1}, {f.type, 0, 1}})
  if header.version ~= VERSION then
    return
  end
  add_fields(tree:add_le(f.flags, tvb(1, 1)), tvb, FLAG_FIELDS)
  add_fields(tree, tvb, COMMON_FIELDS)
  if header.signature then
    add_signature(tree, tvb, header)
  end
  if is_control(header.type) then
    add_fields(tree, tvb, CONTROL_FIELDS)
  elseif TYPE_NAMES[header.type] then
    tree:add_le(f.number, tvb(16, 3))
  end
  if header.type == TYPE.PLANES then
    add_planes_header(tree, tvb, header)
  end
end

local function show_without_header(tree, tvb, pinfo)
  local captured, bytes = tvb:captured_len(), tvb:reported_len()
  if captured > 0 and bytes < header_size(tvb) then
    tree:add_proto_expert_info(e.malformed, bytes .. " bytes: no header fits in")
    pinfo.cols.info = "Malformed: too short"
  else
    tree:add_proto_expert_info(e.snapped)
    pinfo.cols.info = "Cut in the capture before the end of the header"
  end
  return captured
end

local function show(tvb, pinfo, root)
  pinfo.cols.protocol = "Spillway"
  local tree = root:add(spillway, tvb())
  if not has_header(tvb) then
    return show_without_header(tree, tvb, pinfo)
  end
  local header = read_header(tvb)
  local name = TYPE_NAMES[header.type] or "type " .. header.type
  add_header(tree, tvb, header)
  local fault = packet_fault(tvb, header)
  if fault then
    tree:add_proto_expert_info(e.malformed, "No reader takes this packet: " .. fault)
    pinfo.cols.info = name .. " malformed: " .. fault
    return tvb:captured_len()
  end
  local dissect = header.type == TYPE.PLANES and dissect_planes or header.type == TYPE.BYTES and dissect_bytes
                  or dissect_control
  local words = name .. " " .. dissect(tree, tvb, header)
  tree:append_text(", " .. words)
  pinfo.cols.info = words
  return tvb:captured_len()
end

-- ------------------------------------------------------------------ entry points

function spillway.dissector(tvb, pinfo, root)
  return show(tvb, pinfo, root)
end

spillway:register_heuristic("udp", function(tvb, pinfo, root)
  if not has_header(tvb) or packet_fault(tvb, read_header(tvb)) then
    return false
  end
  show(tvb, pinfo, root)
  return true
end)

spillway.prefs.port = Pref.uint("UDP port", 7077, "Where packets are always taken for Spillway's; 0: nowhere")

local udp_ports, current_port = DissectorTable.get("udp.port"), 0
local function use_port(port)
  if current_port ~= 0 then
    udp_ports:remove(current_port, spillway)
  end
  current_port = port
  if port ~= 0 then
    udp_ports:add(port, spillway)
  end
end
use_port(spillway.prefs.port)

function spillway.prefs_changed()
  use_port(spillway.prefs.port)
end
