// SPDX-License-Identifier: Apache-2.0
//
// A switch that adds sum packets (wire/sum_packet.h) as they pass.
//
// SumTable is its memory: slots (dataplane/sum_slots.h), the jobs that use them, and the addresses
// of their ranks. The C code of switch/dataplane decides what happens to a packet, the same as in
// the real switch; SumTable carries the decision out on packets of the pool. SumPacketView reads
// and writes one sum packet. SumJobTotals and AdderTotals are the counters that runs report.
//
// The table learns jobs from their packets, at most SPILLWAY_SUM_JOBS at a time. The pool must
// outlive the table. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "sim/packet.h"
#include "sim/scenario/topology.h"
#include "switch/dataplane/sum_copies.h"
#include "switch/dataplane/sum_frame.h"
#include "switch/dataplane/sum_slots.h"

namespace spillway::sim {

// ------------------------------------------------------------------ packets

// Source and destination of a packet in the simulated network. A packet without a frame of its own
// has no other addresses.
struct SumAddress {
  HostId from = 0;
  HostId to = 0;
  std::uint32_t label = 0;
  std::uint8_t stack = 0;
};

// A sum packet within a packet of the pool. It is either a whole frame with its addresses, as in
// the emulated fabric, or a bare UDP payload, as simulated hosts send it. Both work alike in a
// switch. A view is valid until its packet is released or gets another payload.
class SumPacketView {
 public:
  // Empty if the packet is no sum packet or cannot be read.
  static std::optional<SumPacketView> open(PacketPool& pool, PacketIndex index);

  // The packet's header. Its marks include congestion that the packet met on its path. write()
  // applies changes of the header and the words to the packet.
  spillway_sum_image& image() { return image_; }
  const spillway_sum_image& image() const { return image_; }
  bool is_plain() const { return sum_.is_plain != 0; }    // can be changed
  bool has_words() const { return sum_.has_words != 0; }  // not cut
  std::uint8_t* words();                                  // requires has_words() or a previous
                                                          // turn()

  spillway_sum_route route() const;
  SumAddress address() const;

  void write();
  // Forwards the packet with the route and address of an absorbed one.
  void forward_as(const spillway_sum_route& route, const SumAddress& absorbed);
  // Addresses the packet to the sender of a packet with this route and address.
  void address_to(const spillway_sum_route& route, const SumAddress& sender);
  // Returns the packet to its source, grown to the size of a packet with words.
  void turn(std::uint8_t traffic_class);

 private:
  SumPacketView(PacketPool& pool, Packet& packet) : pool_(&pool), packet_(&packet) {}

  bool read();
  bool is_frame() const { return packet_->absent_bytes == 0; }
  base::MutableByteView bytes() const { return pool_->payload(*packet_); }
  std::uint8_t* begin() const { return bytes().data(); }
  const std::uint8_t* end() const { return bytes().data() + bytes().size(); }
  std::uint8_t* payload() const;
  void set_traffic_class(std::uint8_t traffic_class);

  PacketPool* pool_;
  Packet* packet_;
  spillway_layout layout_ = {};  // of a frame
  spillway_sum_frame sum_ = {};
  spillway_sum_image image_ = {};
};

// ------------------------------------------------------------------ counters

struct SumJobTotals {
  std::uint16_t job = 0;
  std::uint32_t held = 0;   // slots with parts that have not been forwarded
  std::uint32_t limit = 0;  // of `held`; 0: none
  spillway_sum_counters counters = {};
};

struct AdderTotals {
  std::string name;  // of the switch
  spillway_sum_config config = {};
  std::uint32_t held = 0;  // slots waiting for parts
  spillway_sum_counters counters = {};
  std::vector<SumJobTotals> jobs;  // all jobs seen, by number
};

// The name of an outcome's counter: "adds", "passed_cut".
std::string_view sum_outcome_name(std::size_t outcome);

// ------------------------------------------------------------------ the table

class SumTable {
 public:
  SumTable(PacketPool& pool, const scenario::Adder& adder);

  // Takes over a packet that arrived at `port` and returns the packets that leave instead, with
  // their destinations: none, the packet itself, changed or not, or copies. The result is valid
  // until the next call. Port numbers only distinguish directions.
  std::span<const PacketIndex> take(PacketIndex index, std::uint32_t port, base::Instant now);

  // Clears all state as a restart does; counters continue.
  void reset();

  AdderTotals totals() const;

 private:
  static constexpr std::size_t kMembers = SPILLWAY_SUM_JOBS * SPILLWAY_SUM_RANKS;

  struct Pass;

  spillway_sum_job* find_job(std::uint16_t job, base::Instant now, std::uint32_t port);
  void open_job(std::uint32_t row, std::uint32_t name);
  void fix_job(const scenario::JobSlots& limit);
  bool reach_slot(Pass& pass);
  void decide(Pass& pass);
  void carry_out(Pass& pass);
  void spread(Pass& pass);
  void send_copy(const Pass& pass, const spillway_sum_copy& copy);
  void learn(const Pass& pass);
  void count(const Pass& pass);
  SumAddress& member_address(const spillway_sum_job& job, std::uint32_t rank) {
    return member_addresses_[job.row * SPILLWAY_SUM_RANKS + rank % SPILLWAY_SUM_RANKS];
  }

  PacketPool* pool_;
  spillway_sum_config config_;
  std::vector<scenario::JobSlots> limits_;
  std::vector<spillway_sum_slot> slots_;
  std::vector<SumAddress> claim_addresses_;  // of the slots' claiming packets
  spillway_sum_directory directory_ = {};
  std::vector<spillway_sum_job> jobs_;
  std::vector<SumAddress> member_addresses_;  // of the jobs' members
  std::uint32_t held_ = 0;                    // slots waiting for parts
  std::map<std::uint16_t, spillway_sum_counters> by_job_;
  std::array<spillway_sum_counters*, SPILLWAY_SUM_JOBS> by_row_ = {};
  spillway_sum_counters all_ = {};
  std::vector<PacketIndex> leaving_;
};

}  // namespace spillway::sim
