// SPDX-License-Identifier: Apache-2.0
//
// One process's part in a job that outlives its machines: watches the others, stops training when
// one is gone or a change is asked for, and agrees with the rest on who goes on, from which step.
//
// What follows a view is decided once, by its voters (ranks, then standbys): one Paxos per epoch. A
// promise is at the same time the word that training stands still here.
//
//   driver ── HALT (ballot) ──► all
//   each: Interrupt, on_parked() ── PARKED: promise, position ──► driver
//   driver, when all in reach have parked, a quorum and a rank among them: choose() (choice.h), or
//   what was accepted before ── ACCEPT ──► all ── ACCEPTED ──► driver
//   driver, when a quorum has ── CHOSEN ──► all: Decided
//
//   rank     running ── HALT ──► stopping ── on_parked() ──► parked ── decision ──► running
//   standby  always parked             newcomer ── decision ──► standby or rank
//   driver   idle ── something is wrong, and it is my turn ──► gathering ──► accepting ──► idle
//
// The first voter that is not suspected drives; the others step in one after the other when nothing
// is heard of a driver. A planned change (ask(), or too few voters to lose one more) halts at the
// beginning of a step that nobody has begun; who has begun it says so, and all halt at once. A
// promise is kept until the decision: a change that began is ended by somebody.
//
// Watching: a connection that ends tells everybody; signs of life go to three voters each
// (roster.h), and during a change between the driver and all. Whoever loses somebody tells those
// who might drive, and its watchers tell all; who hears of a loss asks for a sign itself and
// believes only that.
//
// Invariants: at most one decision follows a view; whoever trains in epoch e + 1 was let in by a
// quorum of epoch e, of which one rank at least gives no part to any further step of e. So who was
// left behind can end the step that was under way, and none after it. A part without a quorum stops
// at once and gives up after `quorum_limit`.
//
// A member that lies can stop the job, or have it go on without somebody. It cannot split it: where
// two follow different decisions, they hear of it from each other (fork_watch.h) and end the job. A
// voter takes one decision after the other: none has a place for it that it was not parked for in
// the epoch before, so a verdict that leaves an epoch out and gives it one is a lie, and ends it.
// Nor can a lie end the job well: ranks know themselves when all are done. Not held: a newcomer
// that a liar alone lets in may follow it; none of the job's members does.
//
// Decisions are heard from voters of this view and of the one before. A newcomer that was not
// admitted has no voice: what it says of decisions, ballots and requests is not heard.
//
// Limits: every wait is one of MemberConfig's, checked at every heartbeat; kMaxPeers connections,
// kMaxAsked requests. One that was stopped itself for longer than half of `silence` blames nobody
// for what it did not hear. No I/O, no threads, no clock. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "base/status.h"
#include "base/units.h"
#include "membership/choice.h"
#include "membership/fork_watch.h"
#include "membership/message.h"
#include "membership/roster.h"
#include "membership/straggler.h"
#include "membership/terms.h"
#include "membership/view.h"

namespace spillway::membership {

inline constexpr std::size_t kMaxPeers = 2 * kMaxMembers;
inline constexpr std::size_t kMaxAsked = 64;     // requests that wait at one member
inline constexpr unsigned kMaxFruitless = 3;     // changes in a row that change nothing
inline constexpr unsigned kBeatsPerReport = 20;  // heartbeats between two words on a rank's work

struct MemberConfig {
  base::Duration heartbeat = base::milliseconds(50);
  base::Duration silence = base::seconds(2);        // after which a watched member counts as gone
  base::Duration park_limit = base::seconds(300);   // for a rank to end or give up its step
  base::Duration answer_limit = base::seconds(2);   // for everything else that is waited for
  base::Duration quorum_limit = base::seconds(10);  // for a quorum to be in reach again, and for
                                                    // members of a view to get connected
  SizeRules size{};
  double straggler_factor = 2.0;  // times the median of ranks' own work per step
  bool replace_stragglers = false;
  std::uint64_t seed = 0;  // of waiting times, and of epochs' nonces, which are no secrets
  // 64 bits that no other member can guess, for points of fingerprints (fork_watch.h): of the
  // system's generator for secrets. Unset, in simulations alone: from the seed.
  std::function<std::uint64_t()> secret_word{};
};

// Training must stop: at once (whatever is under way is revoked), or when `at_step` is about to
// begin. One at once may follow one with a step. A rank that has parked is not interrupted.
struct Interrupt {
  std::uint32_t epoch = 0;
  std::optional<std::uint64_t> at_step{};
  std::string why{};
};
// The view is in force from now on. Ranks of it train; standbys wait. Where the job ends, Dismissed
// follows.
struct Decided {
  Decision decision{};
};
// This process is no longer one of the job's, or the job has ended. The last event.
struct Dismissed {
  std::string why{};
};
// Once per rank and epoch, at every member.
struct StragglerFound {
  std::uint32_t rank = 0;
  double times_median = 0;
};
// What became of a request that was made here.
struct Answered {
  std::string text{};
  bool ok = false;
};
using Event = std::variant<Interrupt, Decided, Dismissed, StragglerFound, Answered>;

struct Outgoing {
  MemberId to = 0;
  std::vector<std::uint8_t> message{};
};

class Member {
 public:
  // A founder: `view` (epoch 1) is known to all its members alike. A newcomer: has no view yet, and
  // learns it from whomever it gets connected to; it becomes a standby with the next change, or a
  // rank.
  Member(const MemberConfig& config, MemberId self, std::optional<View> view, Handle next_handle,
         base::Instant now);
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // ---- connections: the runtime keeps one to every member and newcomer that it knows of.
  // Messages of one connection arrive in order, and all of them while it lasts.
  void on_connected(MemberId peer, base::Instant now);
  // kClosed, kSilent: the connection is over. kData: it may live, but an operation named it.
  void on_lost(MemberId peer, LossCause cause, base::Instant now);
  // Any bytes: what makes no sense is counted and changes nothing.
  void on_message(MemberId from, base::ByteView message, base::Instant now);
  base::Instant next_timeout() const { return next_beat_; }
  void on_timeout(base::Instant now);
  std::optional<Outgoing> poll_transmit();

  // ---- the application
  // Step `step` is about to begin; the step before took `work` of this rank's own time. Look at the
  // events before beginning it.
  void on_step(std::uint64_t step, base::Duration work, base::Instant now);
  // In answer to Interrupt, or of its own accord before one (an operation failed and training has
  // stopped): then a change follows. `next_handle`: for the next epoch. A standby or newcomer calls
  // it when its handle or its warmth changes. `epoch`: the last that the application has heard of,
  // 0 for none. What a member says of one that is over is not heard: it says so again when it has
  // heard of the next.
  void on_parked(std::uint32_t epoch, const Position& position, const Handle& next_handle,
                 base::Instant now);
  // Made at any member; Answered says what became of it.
  base::Status ask(const Request& request, base::Instant now);
  // This process ends by itself: tells the others, so that nobody takes it for dead. `is_whole`:
  // this rank's part of the job is done. It then stays in touch (and may be interrupted, to help
  // others to the end) until Dismissed says that all are.
  void leave(bool is_whole, base::Instant now);

  std::optional<Event> poll_event();
  const View& view() const { return view_; }  // the present one
  // For people and tools: what it waits for ("rank 3 to end its step, for 1.2 s"), empty when
  // nothing.
  std::string waits_for(base::Instant now) const;
  std::uint64_t refused_messages() const { return refused_messages_; }

 private:
  enum class Standing : std::uint8_t { kNewcomer, kStandby, kRank, kOver };
  enum class Training : std::uint8_t { kRunning, kStopping, kParked };
  enum class Reach : std::uint8_t {
    kAwaited,    // of the view, but no connection yet
    kConnected,  // and heard of
    kLost,
  };
  // Of one that was asked for a sign of life.
  enum class Doubt : std::uint8_t {
    kNone,
    kAsked,    // to be sure
    kAccused,  // because somebody has waited for one in vain already
  };
  struct Peer {
    Reach reach = Reach::kAwaited;
    LossCause cause = LossCause::kClosed;  // of the loss
    bool is_open = false;                  // its connection; a silent one's may be
    bool has_left = false;                 // said so
    bool has_finished = false;             // its part of the job
    Doubt doubt = Doubt::kNone;
    base::Instant since{};  // when it began to be waited for
    base::Instant heard{};
    std::optional<base::Instant> told{};  // what it had missed
  };
  struct Applicant {
    bool is_warm = false;
    Handle handle{};
  };
  // What a driver is at.
  enum class Phase : std::uint8_t { kIdle, kGathering, kAccepting };
  struct Drive {
    Phase phase = Phase::kIdle;
    Ballot ballot = 0;
    base::Instant since{};
    base::Instant repeat_at{};
    std::optional<std::uint64_t> at_step{};
    std::string why{};
    std::map<MemberId, Present> parked{};
    std::map<MemberId, std::size_t> reach{};  // voters that they have in reach
    Ballot best_ballot = 0;                   // of what was accepted before
    std::optional<Decision> best{};
    Decision proposal{};
    std::set<MemberId> accepted{};
  };
  struct Asked {
    std::uint32_t number = 0;
    RequestKind kind = RequestKind::kMove;
    std::vector<MemberId> members{};  // whose places are meant
    std::size_t least_ranks = 0;      // afterwards
    base::Instant since{};
  };
  struct Wanted {
    MemberId from = 0;
    std::uint32_t number = 0;
    Request request{};
  };

  // ---- member.cc
  void settle(const View& view, base::Instant now);
  void dismiss(std::string why);
  bool is_voter() const { return standing_ == Standing::kRank || standing_ == Standing::kStandby; }
  void stop_training(std::optional<std::uint64_t> at_step, const std::string& why);
  Position position() const;
  void park_here();
  void answer_asked(const View& before, const Decision& decision);
  std::string name_of(MemberId member) const;

  // ---- member_watch.cc
  Peer* find_peer(MemberId peer);
  const Peer* find_peer(MemberId peer) const;
  void mark(Peer& peer, Reach reach, base::Instant now);
  bool is_in_reach(MemberId member) const;
  bool counts(std::uint32_t index) const;
  std::size_t voters_in_reach() const;
  bool may_decide() const;  // a quorum is in reach, and a rank
  void lose(MemberId peer, LossCause cause, base::Instant now);
  void accuse(MemberId from, MemberId target, LossCause cause, base::Instant now);
  void tell_of_loss(MemberId peer, LossCause cause);
  void ask_for_sign(MemberId from, Doubt doubt, base::Instant now);
  // In whose turn it is to drive a change; so many of them.
  std::vector<MemberId> drivers(std::size_t most = kMaxMembers) const;
  std::string loss_text(MemberId member) const;

  // ---- member_time.cc
  void beat(base::Instant now);
  void send_signs();
  void check_silence(base::Instant now);
  bool is_expected(MemberId peer, const Peer& state) const;
  bool has_company() const;
  void check_limits(base::Instant now);
  void note_finished(bool& has_finished, base::Instant now);
  void probe_the_last();
  void hail_in_turn(base::Instant now);
  void check_stragglers(base::Instant now);
  void ask_those_ahead(base::Instant now);

  // ---- member_change.cc
  void evaluate(base::Instant now);
  void end_job();
  bool is_urgent() const;
  bool is_planned() const;
  bool is_thin() const;
  std::string reason() const;
  void consider_driving(base::Instant now);
  void begin_drive(base::Instant now);
  void halt(MemberId peer);
  void hurry();
  void repeat(MemberId peer, base::Instant now);
  void resign(base::Instant now);
  bool is_drivers(MemberId from, Ballot ballot) const;
  void adopt(const Decision& decided, base::Instant now);
  void tell_what_is_followed(const std::set<MemberId>& whom);
  std::set<MemberId> compared_with() const;
  std::string refuted(const std::string& why) const;
  void end_split_job(const Following& other);
  void take_wanted(MemberId from, std::uint32_t number, const Request& request, base::Instant now);
  void refuse_wanted(MemberId from, std::uint32_t number, const std::string& why);

  // ---- member_drive.cc
  void advance_drive(base::Instant now);
  std::vector<MemberId> waited_for(base::Instant now) const;
  bool is_worse_off() const;
  std::size_t spares() const;
  MemberId worst_connected() const;
  Findings findings();
  void propose(base::Instant now);
  void conclude_if_accepted(base::Instant now);

  // ---- member_inbox.cc
  void send(MemberId to, const Message& message);
  void hail(MemberId to);
  void inform(MemberId peer, base::Instant now);
  bool is_for_now(MemberId from, std::uint32_t epoch, base::Instant now);
  bool is_for_now_from_voter(MemberId from, std::uint32_t epoch, base::Instant now);
  bool has_voice(MemberId from) const;
  void ask_what_was_missed(MemberId from, base::Instant now);
  bool promise(MemberId driver, std::uint32_t epoch, Ballot ballot, base::Instant now);
  void take(MemberId from, const Hello& m, base::Instant now);
  void take(MemberId from, const Welcome& m, base::Instant now);
  void take(MemberId from, const Leave& m, base::Instant now);
  void take(MemberId from, const Alive& m, base::Instant now);
  void take(MemberId from, const Suspect& m, base::Instant now);
  void take(MemberId from, const Straggling& m, base::Instant now);
  void take(MemberId from, const Farewell& m, base::Instant now);
  void take(MemberId from, const Done& m, base::Instant now);
  void take(MemberId from, const Halt& m, base::Instant now);
  void take(MemberId from, const Beyond& m, base::Instant now);
  void take(MemberId from, const Parked& m, base::Instant now);
  void take(MemberId from, const Accept& m, base::Instant now);
  void take(MemberId from, const Accepted& m, base::Instant now);
  void take(MemberId from, const Refused& m, base::Instant now);
  void take(MemberId from, const Chosen& m, base::Instant now);
  void take(MemberId from, const Verdict& m, base::Instant now);
  void take(MemberId from, const Petition& m, base::Instant now);
  void take(MemberId from, const Refusal& m, base::Instant now);
  void take(MemberId from, const Following& m, base::Instant now);

  MemberConfig config_;
  MemberId self_;
  base::RandomSequence random_;

  View view_{};
  Roster roster_{};
  Standing standing_ = Standing::kNewcomer;
  std::optional<Decision> last_{};  // that made the view
  Roster former_{};                 // of the view before
  ForkWatch forks_{};

  // The application's.
  Training training_ = Training::kParked;
  Position position_{};
  Handle handle_;
  std::optional<std::uint64_t> stop_at_{};
  std::optional<std::uint64_t> step_{};  // the latest that was begun in this epoch
  std::uint64_t greatest_step_ = 0;      // known of anybody
  bool has_finished_ = false;
  WorkWindow work_{};

  // The others.
  std::map<MemberId, Peer> peers_{};
  std::vector<Peer*> voter_peers_{};  // by index in the roster; none for this one
  std::map<MemberId, Applicant> applicants_{};
  std::map<MemberId, std::set<MemberId>>
      accusers_{};              // ranks, by the rank they blame, in this epoch
  std::set<MemberId> unfit_{};  // accused of having closed or fallen silent: they drive last
  std::set<MemberId> told_of_{};
  std::map<std::uint32_t, base::Duration> works_{};  // typical, by rank
  std::set<std::uint32_t> stragglers_{};
  unsigned fruitless_ = 0;
  std::int32_t lost_count_ = 0;     // peers that had not finished
  std::size_t finished_count_ = 0;  // ranks, this one included
  base::Instant reach_changed_{};

  // The change under way.
  Ballot promised_ = 0;
  Ballot accepted_ballot_ = 0;
  std::optional<Decision> accepted_{};
  MemberId driver_ = 0;  // to whom it was promised
  base::Instant driver_heard_{};
  std::uint64_t greatest_round_ = 0;
  Drive drive_{};
  std::optional<base::Instant> needed_since_{};
  base::Instant turn_since_{};
  std::optional<base::Instant> alone_since_{};  // without a quorum

  std::vector<Asked> asked_{};    // here
  std::vector<Wanted> wanted_{};  // by whomever, of this one as a driver
  std::uint32_t next_number_ = 1;

  std::deque<Outgoing> outbox_{};
  std::deque<Event> events_{};
  base::Instant next_beat_{};
  std::uint64_t beats_ = 0;
  std::uint64_t refused_messages_ = 0;
};

}  // namespace spillway::membership
