// SPDX-License-Identifier: Apache-2.0
//
// Sums under way at one endpoint: parts sent to their owners, parts that come to this rank, and
// results on their way back. Private to the endpoint; one thread.
//
//   contributor   sends the parts of its chunks, as many at a time as the window towards the owner
//                 allows; a chunk is done when its result came, which makes room for another. A
//                 full window does not stop the sum with the lowest number: the window may be full
//                 of chunks that other ranks have not sent because theirs are full of this one's.
//                 Results that do not come are asked for (WANT): before the first result of a sum,
//                 only that of the latest part, which tells the owner how far this rank has come;
//                 later, the oldest missing ones.
//   owner         takes parts and sums of parts, each rank once per chunk: it refuses a packet that
//                 names a rank that is in already. A chunk that every rank is known to have sent
//                 (SumProgress) and that still lacks parts, for longer than packets differ, is
//                 flushed: first one of the missing ranks is asked, and with it any switch on the
//                 way that holds some of the chunk; then all of them are. Parts that are not known
//                 to have been sent are waited for, since a switch may hold them: kBlindTimeout at
//                 most. A chunk is the result when it is complete, or when the bound forgives its
//                 missing parts. It goes to every recipient. Ranks whose parts left a slot together
//                 are behind a switch that hands results on; they get one packet.
//
// A packet that was cut on the way has no tag that can be checked: anybody can make one up. So it
// is a hint, and makes a rank ask for a repetition a little earlier. It never shows that a part was
// sent, and never shortens the time after which a chunk is formed without a part. Hints live in
// Sum::trim_hints, apart from the chunks' own waits. Limits: each chunk doubles the time between
// requests that only hints caused; an owner sends kHintRequests per kMinTimeout and sum; a
// contributor retransmits only parts that it has sent; a recipient asks once per chunk, and only
// for a chunk whose part it has sent.
//
// A recipient that has all results says so (WANT of all chunks). The owner sends the last result
// again until all have said so.
//
// A window grows by one a round. It is halved, at most once a round, when a result tells of
// congestion or is missing while later ones came; a result that is merely late says that other
// ranks are. Limits: kMaxPending packets to write, kMaxEarly parts that come before their sum has
// begun here. A part that does not fit is lost, and the protocol repairs it as any loss.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "transport/core.h"
#include "transport/message.h"
#include "transport/round_trip.h"
#include "wire/sum_datagram.h"

namespace spillway::transport {

// How far the parts of one sum are known, at its owner, to have been sent. Ranks send their parts
// in the order of chunks and over one path, so a part of a chunk shows that all before it were
// sent. A rank that asks for a result has sent its part.
//
// A missing part may wait in a switch for ranks that have not come so far; asking for it then takes
// the slot's sum apart. A part that all ranks have sent is either here within the time that packets
// differ by, or lost. So an owner asks for nothing earlier, as a sender takes a packet for lost
// when later ones arrived, and not by the clock.
//
// Pure; one thread.

class SumProgress {
 public:
  SumProgress() = default;
  explicit SumProgress(const wire::RankSet& contributors)
      : contributors_(contributors), sent_(SPILLWAY_SUM_RANKS) {}

  // `ranks` have sent their parts of this chunk and of all before it.
  void note(const wire::RankSet& ranks, std::uint32_t chunk) {
    bool has_changed = false;
    (ranks & contributors_).for_each([&](std::uint16_t rank) {
      has_changed |= sent_[rank] <= chunk;
      sent_[rank] = std::max(sent_[rank], chunk + 1);
    });
    if (!has_changed) {
      return;
    }
    sent_by_all_ = UINT32_MAX;
    contributors_.for_each(
        [&](std::uint16_t rank) { sent_by_all_ = std::min(sent_by_all_, sent_[rank]); });
  }

  // This rank has sent the chunks below this one.
  std::uint32_t sent_by(std::uint16_t rank) const { return sent_[rank]; }
  // All contributors have sent the chunks below this one.
  std::uint32_t sent_by_all() const { return sent_by_all_; }

 private:
  wire::RankSet contributors_;
  std::vector<std::uint32_t> sent_;  // by rank: chunks below this one were sent
  std::uint32_t sent_by_all_ = 0;
};

class SumExchange {
 public:
  explicit SumExchange(Core& core) : core_(core) {}

  base::Status begin(const SumOptions& options, base::Instant now);
  void withdraw(const SumId& id);
  void finish_for(const SumId& id, std::uint16_t rank);

  // A packet that passed its check, with `words` if its kind has any.
  void on_packet(const wire::SumPacket& packet, std::span<const std::uint64_t> words, bool marked,
                 base::Instant now);
  // A packet that was cut on the way: nothing in it can be trusted. Only causes requests.
  void on_trimmed(const wire::SumPacket& packet, base::Instant now);
  void on_timer(std::uint32_t slot, base::Instant now);

  bool poll(base::Instant now, Transmission& out);
  bool is_idle() const { return sums_.empty(); }
  std::size_t memory_bytes() const;

 private:
  static constexpr std::size_t kMaxPending = 8192;
  static constexpr std::size_t kMaxEarly = 512;
  static constexpr std::uint16_t kAllChunks = UINT16_MAX;
  // Requests for parts, due to cut packets alone, per sum and kMinTimeout.
  static constexpr unsigned kHintRequests = 256;
  // Waiting times: before any was measured, at least, at most; and for parts that are not known to
  // have been sent.
  static constexpr base::Duration kFirstTimeout = base::milliseconds(20);
  static constexpr base::Duration kMinTimeout = base::milliseconds(2);
  static constexpr base::Duration kMaxTimeout = base::milliseconds(200);
  static constexpr base::Duration kBlindTimeout = base::seconds(1);

  enum class ChunkState : std::uint8_t {
    kUntouched,  // contributor: not sent; owner: nothing is known of it
    kOpen,       // contributor: sent; owner: parts are missing
    kDone,       // holds the sum
  };
  struct Chunk {
    ChunkState state = ChunkState::kUntouched;
    std::uint8_t attempts = 0;  // to get what is missing
    bool congested = false;
    bool multiplied = false;  // its result went to several ranks in one packet
    // Contributor: when its part was sent, or its result was asked for. Owner: when every rank was
    // known to have sent it; once it is done, when its result was handed out.
    base::Instant since;
    base::Instant due;  // the next attempt
  };
  // Claims of cut packets about a chunk that is not done.
  struct TrimHint {
    wire::RankSet ranks;         // owner: whose parts were cut
    std::uint8_t requests = 0;   // owner: how often they were asked because of it
    base::Instant due = kNever;  // the next request; never: none until a packet is cut again
    base::Instant next;          // owner: no request before
  };
  struct Key {
    std::uint64_t operation = 0;
    std::uint16_t piece = 0;
    std::uint16_t owner = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Sum {
    Key key() const { return {options.id.operation, options.id.piece, options.id.owner}; }

    SumOptions options;
    std::uint32_t slot = 0;
    std::vector<Chunk> chunks;
    std::uint32_t touched = 0;  // chunks below this are open or done
    std::uint32_t done = 0;
    std::uint32_t oldest = 0;  // chunks below this are done
    std::uint32_t latest = 0;  // contributor: highest chunk whose result came
    std::uint64_t missing_parts = 0;
    std::map<std::uint32_t, TrimHint> trim_hints;  // by chunk
    unsigned hint_requests = 0;                    // owner: since hint_requests_since
    base::Instant hint_requests_since;
    SumProgress progress;   // owner
    wire::RankSet told;     // recipients that have everything
    base::Instant began;    // contributor: first result came; owner: sum is formed
    bool reminded = false;  // owner
    base::Duration wait{};
    base::Instant armed = kNever;
    SumReport report;

    bool has_all() const { return done == chunks.size(); }
    wire::RankSet everybody() const { return options.contributors | options.recipients; }
  };
  // A contributor's window towards one owner.
  struct Flow {
    double window = 32.0;
    bool is_starting = true;  // grows by one per result
    std::uint32_t in_flight = 0;
    // Sums with unsent parts: in the order in which they began, and by number.
    std::deque<std::uint32_t> line;
    std::map<Key, std::uint32_t> by_number;
    base::Instant cut;
    RoundTrip wait;
  };
  // Counts results that a switch should have handed on to a rank; decays.
  struct Copies {
    double sent = 0.0;
    double lost = 0.0;

    void on_sent() {
      constexpr double kRemembered = 64.0;
      const double rest = sent < kRemembered ? 1.0 : 0.5;
      sent = sent * rest + 1.0;
      lost *= rest;
    }
    // Congestion loses some of them; a switch that hands nothing on loses most.
    bool fail() const { return lost >= 8.0 && lost * 2.0 > sent; }
  };
  struct Work {
    wire::SumKind kind = wire::SumKind::kPart;
    std::uint32_t slot = 0;
    std::uint16_t chunk = 0;
    std::uint16_t to = 0;
    bool is_first = false;  // RESULT: nobody has it yet
    wire::RankSet ranks{};  // FLUSH: missing; RESULT: recipients of one packet
  };
  struct Early {
    wire::SumPacket packet;
    std::array<std::uint64_t, SPILLWAY_SUM_WORDS> words;
    bool marked = false;
  };

  static base::Duration clamped(base::Duration wait);
  bool is_owner(const Sum& sum) const { return sum.options.id.owner == core_.config.rank; }
  base::Status check(const SumOptions& options);
  Sum* find(const Key& key);
  Sum* find(const wire::SumPacket& packet);
  std::span<std::uint64_t> words_of(const Sum& sum, std::uint32_t chunk) const;
  static bool is_part(const wire::SumPacket& packet);
  // True if the packet brought numbers that were not there: only that is a sign of life. Anything
  // else that passes its tag may be a recorded packet that anybody sent again; such ranks are asked
  // with control packets, which are numbered. Parts that came early tell of a time that has passed.
  bool take(Sum& sum, const wire::SumPacket& packet, std::span<const std::uint64_t> words,
            bool marked, base::Instant now);
  void hear(const wire::RankSet& ranks, base::Instant now);
  void await(const Sum& sum, bool begins, base::Instant now);
  void arm(Sum& sum, base::Instant due);
  bool is_full(std::uint16_t rank);
  void queue(const Work& work);
  void end(Sum& sum);
  void drop(Sum& sum);
  bool has_ended(const wire::SumPacket& packet) const;
  void remember_end(const SumId& id);
  void queue_confirmation(const SumId& id);

  // ---- contributor
  bool on_result(Sum& sum, const wire::SumPacket& packet, std::span<const std::uint64_t> words,
                 bool marked, base::Instant now);
  void on_flush(Sum& sum, const wire::SumPacket& packet, base::Instant now);
  void adapt(Flow& flow, bool congested, base::Instant now);
  static base::Duration result_timeout(const Flow& flow);
  void ask(Sum& sum, std::uint32_t chunk, base::Instant now);
  void request_results(Sum& sum, base::Instant now);
  void on_trimmed_result(Sum& sum, std::uint32_t chunk, base::Instant now);
  // Asks for the results that were cut. Returns when it is to be called again.
  base::Instant request_hinted_results(Sum& sum, base::Instant now);
  bool poll_part(base::Instant now, Transmission& out);
  bool poll_flow(Flow& flow, base::Instant now, Transmission& out);
  Sum* next_to_send(Flow& flow);
  bool has_unsent(Sum& sum) const;
  static void forget(const Sum& sum, Flow& flow);

  // ---- owner
  bool on_part(Sum& sum, const wire::SumPacket& packet, std::span<const std::uint64_t> words,
               bool marked, base::Instant now);
  void on_want(Sum& sum, const wire::SumPacket& packet, base::Instant now);
  void keep_early(const wire::SumPacket& packet, std::span<const std::uint64_t> words, bool marked);
  void take_early(Sum& sum, base::Instant now);
  void touch(Sum& sum, std::uint32_t chunk, base::Instant now);
  // `ranks` have sent their parts up to this chunk. Chunks that all have sent are due after `wait`.
  void note_sent(Sum& sum, const wire::RankSet& ranks, std::uint32_t chunk, base::Duration wait,
                 base::Instant now);
  void take_words(Sum& sum, std::uint32_t chunk, const wire::SumPacket& packet,
                  std::span<const std::uint64_t> words);
  wire::RankSet missing_in(const Sum& sum, std::uint32_t chunk) const;
  bool is_forgiven(const Sum& sum, std::uint32_t chunk) const;
  // A chunk has lacked parts for long enough: goes on without them, or asks for them.
  void resolve(Sum& sum, std::uint32_t chunk, base::Instant now);
  void flush(Sum& sum, std::uint32_t chunk, base::Instant now);
  void request_part(const Sum& sum, std::uint32_t chunk, std::uint16_t rank);
  void on_trimmed_part(Sum& sum, const wire::SumPacket& packet, base::Instant now);
  // Asks for the parts that were cut. Returns when it is to be called again.
  base::Instant request_hinted_parts(Sum& sum, base::Instant now);
  unsigned request_hinted_parts_of(Sum& sum, std::uint32_t chunk, TrimHint& cut, base::Instant now);
  void close(Sum& sum, std::uint32_t chunk, base::Instant now);
  void send_results(Sum& sum, std::uint32_t chunk);
  void check_missing_parts(Sum& sum, base::Instant now);
  void on_confirmed(Sum& sum, std::uint16_t rank, base::Instant now);
  void retransmit_result(Sum& sum, std::uint16_t chunk, std::uint16_t to);
  void end_if_confirmed(Sum& sum);
  void remind(Sum& sum, base::Instant now);
  base::Duration part_timeout() const;
  base::Duration confirm_timeout() const;
  void note_switch(const wire::RankSet& ranks);

  // False if it is for a rank that is no peer; there is no packet then.
  bool address(const Work& work, const SumId& id, std::uint8_t priority, base::Instant now,
               Transmission& out);
  bool write(const Work& work, const Sum& sum, base::Instant now, Transmission& out);

  Core& core_;
  std::map<Key, std::uint32_t> slots_;
  std::map<std::uint32_t, std::unique_ptr<Sum>> sums_;
  std::uint32_t next_slot_ = 0;
  std::map<std::uint16_t, Flow> flows_;  // by owner
  std::uint16_t turn_ = 0;               // the owner that the latest part went to
  std::deque<Work> work_;
  std::deque<SumId> finished_;  // this rank has all their results, and must say so
  // Sums that ended here while their operations go on: by operation.
  std::map<std::uint64_t, std::set<Key>> ended_;
  std::deque<Early> early_;
  std::vector<wire::RankSet> behind_switches_;  // disjoint
  std::map<std::uint16_t, Copies> copies_;      // by rank
  RoundTrip part_spread_;   // from when all ranks are known to have sent a chunk to its last part
  RoundTrip confirm_time_;  // from the last result of a sum until a recipient says that it has all
};

}  // namespace spillway::transport
