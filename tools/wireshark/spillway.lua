-- SPDX-License-Identifier: Apache-2.0
--
-- Shows Spillway packets in Wireshark and tshark: every field of docs/wire.md, how much of a packet
-- is left, and whether its checks match.
--
--   tshark -X lua_script:spillway.lua -r FILE -2 -Y "spillway.trimmed == 1"
--
-- or put the file into Wireshark's personal Lua plugin folder (Help > About > Folders). Packets are
-- known by their UDP port (a preference, 7077), by "Decode As", and elsewhere by their looks: the
-- same bounds that src/wire holds a header to.
--
-- Two lengths are kept apart: what the wire carried (tvb:reported_len(); IP and UDP lengths may be
-- stale after a trim and are not looked at) and what the capture holds of it (tvb:captured_len()).
-- Only the first can make a packet trimmed.
--
-- Checks. A tail segment's CRC32C starts from the head's check, so it is verified as it stands. The
-- head's starts from a salt that only the job knows. A CRC can be run backwards: each packet tells
-- the salt with which its check would be right, and that of an undamaged packet is its job's. The
-- salt that most packets of a job and epoch agree on counts as the job's, from two packets on; a
-- packet that implies another is bad. On a single pass (tshark without -2) the first packet of a job
-- has none to agree with. Keyed tags need the job's secret and are not verified.
--
-- Any bytes may come: nothing is read before it is known to be captured. One file, because that is
-- how plugins are copied. Tested with Wireshark 4.0.

local spillway = Proto("spillway", "Spillway")

-- ------------------------------------------------------------------ the format (src/wire/packet.h)

local VERSION = 1
local TYPE = {DATA = 1, PROBE = 2, STOP = 3, BITMAP = 4, CREDIT = 5, WAIT = 6, LEAVE = 7}
local TYPE_NAMES = {"DATA", "PROBE", "STOP", "BITMAP", "CREDIT", "WAIT", "LEAVE"}
local PHASE_NAMES = {[0] = "reduce", "gather", "note", "point-to-point"}
local OUTCOME_NAMES = {[0] = "everything", "within budget", "deadline", "cancelled"}
local CAUSE_NAMES = {[0] = "done", "silent", "runs another operation", "aborted", "too slow", "broke"}
local CODEC_NAMES = {"planes", "bytes"}
local FLAG_KEYED, FLAGS_KNOWN = 0x01, 0x0F
local CODEC_PLANES, CODEC_BYTES = 1, 2
local HEADER = 36        -- of data and of control packets
local QUANTUM = 32       -- coordinates
local TAIL_SEGMENT = 512 -- bytes of planes under one tail check
local CRC_SIZE, TAG_SIZE = 4, 8
local MAX_PACKET = 8972
local MAX_PACKETS = 65536 -- of one message
local MAX_PLANES = 32
local MIN_ROW_LOG2, MAX_ROW_LOG2 = 8, 15
local MAX_BITMAP_COUNT, MAX_PATH_REPORTS = 8192, 16
local PATH_REPORT = 24
local BODY = {[TYPE.PROBE] = 16, [TYPE.STOP] = 8, [TYPE.BITMAP] = 16, [TYPE.CREDIT] = 8, [TYPE.WAIT] = 0,
              [TYPE.LEAVE] = 4}
local DSCP_TRIMMED = 48 -- src/wire/traffic_class.h

local MAX_RANGES_SHOWN = 32 -- of missing packets in a BITMAP

-- ------------------------------------------------------------------ fields

local BAD, GOOD, UNVERIFIED = 0, 1, 2
local STATUS_NAMES = {[BAD] = "bad", [GOOD] = "good", [UNVERIFIED] = "not verified"}

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
  keyed = flag("flags.keyed", "Keyed checks", 0x01),
  last = flag("flags.last", "Last packet of its message", 0x02),
  retransmit = flag("flags.retransmit", "Sent before", 0x04),
  report = flag("flags.report", "Report at once", 0x08),
  unknown_flags = ProtoField.uint8("spillway.flags.unknown", "Unknown flags", base.HEX, nil, 0xF0),
  job = number(16, "job", "Job"),
  epoch = number(16, "epoch", "Epoch"),
  source = number(16, "source", "Source rank"),
  operation = number(32, "operation", "Operation"),
  signature = number(16, "signature", "Signature"),
  piece = number(16, "piece", "Piece"),
  phase = number(8, "phase", "Phase", PHASE_NAMES, 0xC0),
  priority = number(8, "priority", "Priority", nil, 0x38),
  importance = number(8, "importance", "Importance", nil, 0x07),
  path = number(8, "path", "Path"),
  packet = number(16, "packet", "Packet"),
  timestamp = number(32, "timestamp", "Timestamp (us)"),

  codec = number(8, "codec", "Codec", CODEC_NAMES, 0xF0),
  row_log2 = number(8, "row_log2", "Row length, log2", nil, 0x0F),
  rotations = number(8, "rotations", "Rotations", nil, 0xC0),
  planes = number(8, "planes", "Planes sent", nil, 0x3F),
  row = number(16, "row", "Row"),
  slot = number(8, "slot", "Slot"),
  quanta = number(8, "quanta", "Quanta"),
  head_words = number(8, "head_words", "Head, 4-byte words"),
  path_sequence = number(8, "path_sequence", "Path sequence"),
  scale = ProtoField.float("spillway.scale", "Scale"),

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

  check_kind = ProtoField.string("spillway.check.kind", "Checks"),
  checks_present = number(8, "check.present", "Checks present"),
  checks_sent = number(8, "check.sent", "Checks sent"),
  check = ProtoField.bytes("spillway.check", "Check"),
  check_status = number(8, "check.status", "Status", STATUS_NAMES),
  salt = ProtoField.uint32("spillway.check.salt", "Salt it implies", base.HEX),
  segment = number(8, "segment", "Tail segment"),

  destination = number(16, "destination", "Destination rank"),
  message_source = number(16, "message_source", "Source rank of the message"),
  sequence = number(32, "sequence", "Sequence"),
  generation = number(32, "generation", "Generation"),
  probe_packets = number(32, "probe.packets", "Packets of the message"),
  probe_important = number(32, "probe.important", "Important ones"),
  probe_transmitted = number(32, "probe.transmitted", "Packets sent so far"),
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
  credit_granted = number(32, "credit.granted", "Packets granted"),
  credit_paths = number(8, "credit.path_count", "Path reports"),
  credit_answer = number(8, "credit.answer", "Answer asked for"),
  leave_culprit = number(16, "leave.culprit", "Because of rank"),
  leave_cause = number(8, "leave.cause", "Which", CAUSE_NAMES),
  report_item = ProtoField.none("spillway.report", "Path report"),
  report_path = number(8, "report.path", "Path"),
  report_echo_sequence = number(8, "report.echo_sequence", "Latest path sequence"),
  report_hold = number(16, "report.hold", "Held for (us)"),
  report_packets = number(32, "report.packets", "Packets"),
  report_bytes = number(32, "report.bytes", "Bytes as sent"),
  report_marked = number(32, "report.marked", "Marked"),
  report_trimmed = number(32, "report.trimmed", "Trimmed"),
  report_echo = number(32, "report.echo", "Latest timestamp (us)"),
}
spillway.fields = f

-- What lies where: field, offset, bytes.
local COMMON_FIELDS = {
  {f.job, 2, 2}, {f.epoch, 4, 2}, {f.source, 6, 2}, {f.operation, 8, 4}, {f.signature, 12, 2},
  {f.piece, 14, 2}, {f.phase, 16, 1}, {f.priority, 16, 1}, {f.importance, 16, 1}, {f.path, 17, 1},
  {f.packet, 18, 2}, {f.timestamp, 20, 4},
}
local FLAG_FIELDS = {
  {f.keyed, 1, 1}, {f.last, 1, 1}, {f.retransmit, 1, 1}, {f.report, 1, 1}, {f.unknown_flags, 1, 1},
}
local DATA_FIELDS = {
  {f.codec, 24, 1}, {f.row_log2, 24, 1}, {f.rotations, 25, 1}, {f.planes, 25, 1}, {f.row, 26, 2},
  {f.slot, 28, 1}, {f.quanta, 29, 1}, {f.head_words, 30, 1}, {f.path_sequence, 31, 1},
  {f.scale, 32, 4},
}
local CONTROL_FIELDS = {
  {f.destination, 24, 2}, {f.message_source, 26, 2}, {f.sequence, 28, 4}, {f.generation, 32, 4},
}
local BODY_FIELDS = {
  [TYPE.PROBE] = {{f.probe_packets, 36, 4}, {f.probe_important, 40, 4},
                  {f.probe_transmitted, 44, 4}, {f.probe_all_sent, 48, 1}},
  [TYPE.STOP] = {{f.stop_delivered, 36, 4}, {f.stop_outcome, 40, 1}},
  [TYPE.BITMAP] = {{f.bitmap_first, 36, 4}, {f.bitmap_count, 40, 4}, {f.bitmap_missing, 44, 4},
                   {f.bitmap_allowed, 48, 4}},
  [TYPE.CREDIT] = {{f.credit_granted, 36, 4}, {f.credit_paths, 40, 1}, {f.credit_answer, 41, 1}},
  [TYPE.WAIT] = {},
  [TYPE.LEAVE] = {{f.leave_culprit, 36, 2}, {f.leave_cause, 38, 1}},
}
local REPORT_FIELDS = {
  {f.report_path, 0, 1}, {f.report_echo_sequence, 1, 1}, {f.report_hold, 2, 2},
  {f.report_packets, 4, 4}, {f.report_bytes, 8, 4}, {f.report_marked, 12, 4},
  {f.report_trimmed, 16, 4}, {f.report_echo, 20, 4},
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
  bad_check = ProtoExpert.new("spillway.expert.bad_check", "The check does not match",
                              expert.group.CHECKSUM, expert.severity.WARN),
}
spillway.experts = e

local function add_fields(tree, tvb, fields, start)
  for _, field in ipairs(fields) do
    tree:add_le(field[1], tvb((start or 0) + field[2], field[3]))
  end
end

local function add_computed(tree, field, value)
  return tree:add(field, value):set_generated()
end

-- ------------------------------------------------------------------ CRC32C, both ways

local band, bxor, bnot, lshift, rshift = bit.band, bit.bxor, bit.bnot, bit.lshift, bit.rshift

-- crc_tables[k] advances a state whose last byte is the index, the others zero, over k bytes.
local crc_tables, crc_entry_of_top = {{}, {}, {}, {}}, {}
for byte = 0, 255 do
  local state = byte
  for _ = 1, 8 do
    state = bxor(rshift(state, 1), band(state, 1) * 0x82F63B78)
  end
  crc_tables[1][byte] = state
  crc_entry_of_top[rshift(state, 24)] = byte
end
for byte = 0, 255 do
  for k = 2, 4 do
    local state = crc_tables[k - 1][byte]
    crc_tables[k][byte] = bxor(crc_tables[1][band(state, 0xFF)], rshift(state, 8))
  end
end

-- `bytes` is a string whose length is a multiple of four, as those of all planes are: a word at a
-- time, and taken apart by arithmetic, which is cheaper than calls.
local function crc32c(state, bytes)
  local one, two, three, four = crc_tables[1], crc_tables[2], crc_tables[3], crc_tables[4]
  for i = 1, #bytes, 4 do
    local a, b, c, d = bytes:byte(i, i + 3)
    local word = bxor(state, a + b * 0x100 + c * 0x10000 + d * 0x1000000) % 0x100000000
    local low, high = word % 0x10000, math.floor(word / 0x10000)
    a, c = low % 0x100, high % 0x100
    state = bxor(four[a], three[(low - a) / 0x100], two[c], one[(high - c) / 0x100])
  end
  return state
end

-- The state before `bytes`, from the one after them.
local function crc32c_before(state, bytes)
  for i = #bytes, 1, -1 do
    local entry = crc_entry_of_top[rshift(state, 24)]
    state = bxor(lshift(bxor(state, crc_tables[1][entry]), 8), bxor(entry, bytes:byte(i)))
  end
  return state
end

-- An odd constant that starts segments' CRCs apart (src/wire/packet_auth.cc).
local INDEX_SPREAD = 0x9E3779B1

local function segment_crc(head_check, index, bytes)
  local start = bxor(bnot(head_check), bit.tobit((index + 1) * INDEX_SPREAD))
  return bnot(crc32c(start, bytes))
end

-- ------------------------------------------------------------------ the salts of jobs

local MIN_VOTES = 2
local salts = {} -- by job and epoch: votes by salt, and the salt that has most

function spillway.init()
  salts = {}
end

local function vote_for_salt(job, salt)
  local known = salts[job] or {votes = {}, best = salt}
  salts[job] = known
  known.votes[salt] = (known.votes[salt] or 0) + 1
  if known.votes[salt] > known.votes[known.best] then
    known.best = salt
  end
end

-- The salt of the job, as far as its packets agree on one.
local function salt_of(job)
  local known = salts[job]
  return known and known.votes[known.best] >= MIN_VOTES and known.best or nil
end

-- ------------------------------------------------------------------ headers

local function read_header(tvb)
  local service, code, planes = tvb(16, 1):uint(), tvb(24, 1):uint(), tvb(25, 1):uint()
  return {
    version = rshift(tvb(0, 1):uint(), 4),
    type = band(tvb(0, 1):uint(), 0x0F),
    flags = tvb(1, 1):uint(),
    job = tvb(2, 4):le_uint(), -- with the epoch
    source = tvb(6, 2):le_uint(),
    operation = tvb(8, 4):le_uint(),
    signature = tvb(12, 2):le_uint(),
    piece = tvb(14, 2):le_uint(),
    urgency = band(service, 0x3F), -- priority and importance
    packet = tvb(18, 2):le_uint(),
    check_size = band(tvb(1, 1):uint(), FLAG_KEYED) ~= 0 and TAG_SIZE or CRC_SIZE,
    -- data
    codec = rshift(code, 4),
    row_log2 = band(code, 0x0F),
    rotations = rshift(planes, 6),
    planes = band(planes, 0x3F),
    row = tvb(26, 2):le_uint(),
    slot = tvb(28, 1):uint(),
    quanta = tvb(29, 1):uint(),
    head_bytes = tvb(30, 1):uint() * 4,
    scale_bits = tvb(32, 4):le_uint(),
    -- control
    destination = tvb(24, 2):le_uint(),
    message_source = tvb(26, 2):le_uint(),
    generation = tvb(32, 4):le_uint(),
  }
end

-- What follows from a data header: its coordinates, and where everything lies.
local function layout_of(header)
  local length = lshift(1, header.row_log2)
  local first = header.slot * header.quanta * QUANTUM
  local count = math.min(header.quanta * QUANTUM, length - math.min(length, first))
  local plane_bytes = rshift(count, 3)
  local tail = plane_bytes * header.planes - header.head_bytes
  local head_end = HEADER + header.check_size + header.head_bytes
  local segments = math.max(0, math.ceil(tail / TAIL_SEGMENT))
  return {
    length = length,
    first = first,
    count = count,
    plane_bytes = plane_bytes,
    tail = tail,
    head_end = head_end,
    segments = segments,
    sent = head_end + tail + segments * header.check_size,
  }
end

-- Where tail segment `index` (from 0) begins, and how many bytes of planes it has.
local function segment_span(layout, header, index)
  local offset = layout.head_end + index * (TAIL_SEGMENT + header.check_size)
  return offset, math.min(TAIL_SEGMENT, layout.tail - index * TAIL_SEGMENT)
end

local function is_scale_valid(bits, rotations)
  local magnitude = bits % 0x80000000
  if magnitude == 0 or magnitude > 0x7F800000 then -- zero or NaN
    return rotations == 0
  end
  return bits < 0x7F800000 and rotations >= 1
end

-- ------------------------------------------------------------------ what a reader refuses
-- Each returns a sentence, or nil for a packet that is taken. `bytes` is its length on the wire.

local function data_fault(header, bytes)
  if header.codec ~= CODEC_PLANES and header.codec ~= CODEC_BYTES then
    return "unknown codec " .. header.codec
  elseif header.codec == CODEC_BYTES
         and (header.row ~= 0 or header.slot ~= 0 or header.scale_bits ~= 0 or header.rotations ~= 0) then
    return "bytes with a row, a scale or rotations"
  elseif header.row_log2 < MIN_ROW_LOG2 or header.row_log2 > MAX_ROW_LOG2 then
    return "a row of 2^" .. header.row_log2 .. " coordinates"
  elseif header.planes == 0 or header.planes > MAX_PLANES then
    return header.planes .. " planes"
  elseif header.quanta == 0 or header.head_bytes == 0 then
    return "no coordinates, or no head"
  elseif not is_scale_valid(header.scale_bits, header.rotations) then
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

local body_fault = {
  [TYPE.PROBE] = function(tvb)
    local packets = tvb(36, 4):le_uint()
    if packets == 0 or packets > MAX_PACKETS or tvb(40, 4):le_uint() > packets
       or tvb(48, 1):uint() > 1 then
      return "a PROBE with counts that cannot be"
    end
  end,
  [TYPE.STOP] = function(tvb)
    if tvb(36, 4):le_uint() > MAX_PACKETS or not OUTCOME_NAMES[tvb(40, 1):uint()] then
      return "a STOP with a count or an outcome that cannot be"
    end
  end,
  [TYPE.BITMAP] = function(tvb)
    local first, count = tvb(36, 4):le_uint(), tvb(40, 4):le_uint()
    if count == 0 or count > MAX_BITMAP_COUNT or first + count > MAX_PACKETS
       or tvb(44, 4):le_uint() > MAX_PACKETS or tvb(48, 4):le_uint() > MAX_PACKETS then
      return "a BITMAP with a range or counts that cannot be"
    end
  end,
  [TYPE.CREDIT] = function(tvb)
    if tvb(40, 1):uint() > MAX_PATH_REPORTS or tvb(41, 1):uint() > 1 then
      return "a CREDIT with too many reports, or an answer that is neither yes nor no"
    end
  end,
  [TYPE.WAIT] = function() end,
  [TYPE.LEAVE] = function(tvb)
    if not CAUSE_NAMES[tvb(38, 1):uint()] then
      return "a LEAVE for a reason that cannot be"
    end
  end,
}

-- Bytes of a control packet up to its check, once its fixed part is known to be captured.
local function control_length(tvb, kind)
  local length = HEADER + BODY[kind]
  if kind == TYPE.BITMAP then
    return length + math.ceil(tvb(40, 4):le_uint() / 8)
  elseif kind == TYPE.CREDIT then
    return length + tvb(40, 1):uint() * PATH_REPORT
  end
  return length
end

local function has_fixed_body(tvb, kind)
  return tvb:captured_len() >= HEADER + BODY[kind]
end

local function control_fault(tvb, header)
  if header.packet ~= 0 or header.urgency ~= 0 or header.flags > FLAG_KEYED then
    return "a control packet whose packet, priority, importance and data flags are not zero"
  end
  local bytes, shortest = tvb:reported_len(), HEADER + BODY[header.type] + header.check_size
  if bytes < shortest then
    return string.format("%d bytes where a %s has at least %d", bytes, TYPE_NAMES[header.type], shortest)
  elseif not has_fixed_body(tvb, header.type) then
    return nil
  end
  local fault = body_fault[header.type](tvb)
  local expected = control_length(tvb, header.type) + header.check_size
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
  elseif header.flags > FLAGS_KNOWN then
    return "unknown flags"
  elseif header.type == TYPE.DATA then
    return data_fault(header, tvb:reported_len())
  end
  return control_fault(tvb, header)
end

-- ------------------------------------------------------------------ checks in the tree

local function add_status(item, status, why)
  add_computed(item, f.check_status, status):append_text(why and " (" .. why .. ")" or "")
  item:append_text(": " .. STATUS_NAMES[status])
  if status == BAD then
    item:add_proto_expert_info(e.bad_check, "Bad check: " .. (why or "damaged on the way"))
  end
end

-- A check at `offset` over `covered`, a string, that starts from the job's salt.
local function add_salted_check(tree, tvb, pinfo, header, offset, covered)
  local item = tree:add(f.check, tvb(offset, header.check_size))
  if header.check_size == TAG_SIZE then
    return add_status(item, UNVERIFIED, "keyed: only who knows the job's secret can")
  end
  local received = tvb(offset, CRC_SIZE):le_uint()
  local implied = bnot(crc32c_before(bnot(received), covered)) % 0x100000000
  if not pinfo.visited then
    vote_for_salt(header.job, implied)
  end
  add_computed(item, f.salt, implied)
  local salt = salt_of(header.job)
  if not salt then
    add_status(item, UNVERIFIED, "no other packet of the job agrees on a salt yet")
  elseif salt == implied then
    add_status(item, GOOD)
  else
    add_status(item, BAD, string.format("it implies salt 0x%08x, the job's packets have 0x%08x: damaged, "
                                        .. "or its sender has another seed", implied, salt))
  end
end

local function add_segment_check(tree, tvb, header, index, offset, length)
  local item = tree:add(f.segment, tvb(offset, length + header.check_size), index)
  item:append_text(", " .. length .. " bytes")
  item:add(f.plane_data, tvb(offset, length))
  item:add(f.check, tvb(offset + length, header.check_size))
  if header.check_size == TAG_SIZE then
    return add_status(item, UNVERIFIED, "keyed")
  end
  local computed = segment_crc(tvb(HEADER, CRC_SIZE):le_uint(), index, tvb:raw(offset, length))
  local received = tvb(offset + length, CRC_SIZE):le_uint()
  add_status(item, bxor(computed, received) == 0 and GOOD or BAD)
end

-- ------------------------------------------------------------------ data packets

-- How much of a packet of `bytes` is under a check that is there: tail segments, bytes of planes,
-- and where that ends.
local function usable_part(header, layout, bytes)
  if bytes < layout.head_end then
    return {segments = 0, plane_bytes = 0, stop = HEADER}
  end
  local part = {segments = 0, plane_bytes = header.head_bytes, stop = layout.head_end}
  while part.segments < layout.segments do
    local offset, length = segment_span(layout, header, part.segments)
    if offset + length + header.check_size > bytes then
      break
    end
    part = {segments = part.segments + 1, plane_bytes = part.plane_bytes + length,
            stop = offset + length + header.check_size}
  end
  return part
end

-- Whatever the capture holds of the parts that are whole on the wire.
local function add_checks(tree, tvb, pinfo, header, layout, part)
  local captured = tvb:captured_len()
  if part.plane_bytes == 0 or captured < layout.head_end then
    return
  end
  local head_start = HEADER + header.check_size
  local head = tree:add(tvb(HEADER, layout.head_end - HEADER),
                        "Head, " .. header.head_bytes .. " bytes")
  add_salted_check(head, tvb, pinfo, header, HEADER,
                   tvb:raw(0, HEADER) .. tvb:raw(head_start, header.head_bytes))
  head:add(f.plane_data, tvb(head_start, header.head_bytes))
  for index = 0, part.segments - 1 do
    local offset, length = segment_span(layout, header, index)
    if offset + length + header.check_size > captured then
      return
    end
    add_segment_check(tree, tvb, header, index, offset, length)
  end
end

-- The last one counts: of a tunnel, that is the innermost.
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

local function add_lengths(tree, tvb, layout, part)
  local bytes, captured = tvb:reported_len(), tvb:captured_len()
  add_computed(tree, f.sent_bytes, layout.sent)
  add_computed(tree, f.bytes, bytes)
  if captured < bytes then
    local item = add_computed(tree, f.captured_bytes, captured)
    item:add_proto_expert_info(e.snapped, string.format(
      "The capture kept %d of the %d bytes that were on the wire: no trim; checks behind them are not verified",
      captured, bytes))
  end
  if bytes > part.stop and part.plane_bytes > 0 then
    add_computed(tree, f.unchecked_bytes, bytes - part.stop)
  end
end

-- Adds what became of the packet; returns it in a few words.
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
  return string.format("src=%d operation=%d signature=%d piece=%d", header.source, header.operation,
                       header.signature, header.piece)
end

local function dissect_data(tree, tvb, pinfo, header)
  local layout = layout_of(header)
  local bytes = tvb:reported_len()
  local part = usable_part(header, layout, bytes)
  add_computed(tree, f.head_bytes, header.head_bytes)
  add_computed(tree, f.first, layout.first)
  add_computed(tree, f.count, layout.count):append_text(" of a row of " .. layout.length)
  add_lengths(tree, tvb, layout, part)
  local present = string.format("%.3g", add_planes(tree, header, layout, part))
  local fate = add_fate(tree, bytes, layout, present)
  add_computed(tree, f.check_kind, header.check_size == TAG_SIZE and "keyed tags" or "CRC32C")
  add_computed(tree, f.checks_sent, 1 + layout.segments)
  add_computed(tree, f.checks_present, part.plane_bytes > 0 and 1 + part.segments or 0)
  add_checks(tree, tvb, pinfo, header, layout, part)
  return string.format("%s #%d planes %s/%d %s", message_words(header), header.packet, present,
                       header.planes, fate)
end

-- ------------------------------------------------------------------ control packets

-- Runs of packets whose bit is 0, as {first, last}; and how many bits are 1.
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

local function add_bitmap(tree, tvb)
  local first, count = tvb(36, 4):le_uint(), tvb(40, 4):le_uint()
  local range = tvb(52, math.ceil(count / 8))
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

local function add_path_reports(tree, tvb)
  for i = 0, tvb(40, 1):uint() - 1 do
    local start = 44 + i * PATH_REPORT
    local item = tree:add(f.report_item, tvb(start, PATH_REPORT))
    item:append_text(string.format(": path %d, %d packets, %d marked, %d trimmed", tvb(start, 1):uint(),
                                   tvb(start + 4, 4):le_uint(), tvb(start + 12, 4):le_uint(),
                                   tvb(start + 16, 4):le_uint()))
    add_fields(item, tvb, REPORT_FIELDS, start)
  end
end

local add_list = {[TYPE.BITMAP] = add_bitmap, [TYPE.CREDIT] = add_path_reports}

local body_words = {
  [TYPE.PROBE] = function(tvb)
    return string.format("packets=%d transmitted=%d%s", tvb(36, 4):le_uint(), tvb(44, 4):le_uint(),
                         tvb(48, 1):uint() == 1 and " all sent" or "")
  end,
  [TYPE.STOP] = function(tvb)
    return string.format("delivered=%d %s", tvb(36, 4):le_uint(), OUTCOME_NAMES[tvb(40, 1):uint()])
  end,
  [TYPE.BITMAP] = function(tvb)
    local first, count = tvb(36, 4):le_uint(), tvb(40, 4):le_uint()
    return string.format("#%d-%d missing=%d allowed=%d", first, first + count - 1,
                         tvb(44, 4):le_uint(), tvb(48, 4):le_uint())
  end,
  [TYPE.CREDIT] = function(tvb)
    return string.format("granted=%d paths=%d", tvb(36, 4):le_uint(), tvb(40, 1):uint())
  end,
  [TYPE.WAIT] = function() return "" end,
  [TYPE.LEAVE] = function(tvb)
    return string.format("because of %d: %s", tvb(36, 2):le_uint(), CAUSE_NAMES[tvb(38, 1):uint()])
  end,
}

local function dissect_control(tree, tvb, pinfo, header)
  local words = string.format("%s dst=%d of=%d", message_words(header), header.destination,
                              header.message_source)
  if not has_fixed_body(tvb, header.type) then
    tree:add_proto_expert_info(e.snapped)
    return words
  end
  add_fields(tree, tvb, BODY_FIELDS[header.type])
  words = words .. " " .. body_words[header.type](tvb)
  local length = control_length(tvb, header.type)
  if tvb:captured_len() < length + header.check_size then
    tree:add_proto_expert_info(e.snapped)
    return words
  end
  if add_list[header.type] then
    add_list[header.type](tree, tvb)
  end
  add_salted_check(tree, tvb, pinfo, header, length, tvb:raw(0, length))
  return words
end

-- ------------------------------------------------------------------ packets

local function add_header(tree, tvb, header)
  add_fields(tree, tvb, {{f.version, 0, 1}, {f.type, 0, 1}})
  add_fields(tree:add_le(f.flags, tvb(1, 1)), tvb, FLAG_FIELDS)
  add_fields(tree, tvb, COMMON_FIELDS)
  add_fields(tree, tvb, header.type == TYPE.DATA and DATA_FIELDS or CONTROL_FIELDS)
end

local function show_without_header(tree, tvb, pinfo)
  local captured, bytes = tvb:captured_len(), tvb:reported_len()
  if bytes < HEADER then
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
  if tvb:captured_len() < HEADER then
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
  local dissect = header.type == TYPE.DATA and dissect_data or dissect_control
  local words = name .. " " .. dissect(tree, tvb, pinfo, header)
  tree:append_text(", " .. words)
  pinfo.cols.info = words
  return tvb:captured_len()
end

-- ------------------------------------------------------------------ how packets get here

function spillway.dissector(tvb, pinfo, root)
  return show(tvb, pinfo, root)
end

spillway:register_heuristic("udp", function(tvb, pinfo, root)
  if tvb:captured_len() < HEADER or packet_fault(tvb, read_header(tvb)) then
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
