// SPDX-License-Identifier: Apache-2.0
//
// One process's part in an elastic job. It watches the other members and stops training when one is
// lost or a change is requested. With the others it then agrees on who continues, and from which
// step.
//
// The decision after a view is made once, by its voters (ranks, then standbys): one Paxos instance
// per epoch. A voter's promise also states that its training is stopped.
//
//   driver ── HALT (ballot) ──► all
//   each: Interrupt, on_parked() ── PARKED: promise, position ──► driver
//   driver, when all in reach have parked, with a quorum and a rank: choose() (view.h), or the
//   decision accepted before ── ACCEPT ──► all ── ACCEPTED ──► driver
//   driver, when a quorum has accepted ── CHOSEN ──► all: Decided
//
//   rank     running ── HALT ──► stopping ── on_parked() ──► parked ── decision ──► running
//   standby  always parked             newcomer ── decision ──► standby or rank
//   driver   idle ── a change is needed, and it is its turn ──► gathering ──► accepting ──► idle
//
// The first voter that is not suspected drives. If a driver is silent, the others step in one after
// the other. A planned change (ask(), or too few voters to lose one more) halts at the beginning of
// a step that no rank has begun. A rank that has begun it says so, and all halt at once. A promise
// is kept until the decision: some driver completes every change that began.
//
// Watching: every peer sees a connection end. Each voter sends signs of life to three others
// (view.h); during a change, the driver and all others exchange them. A member that loses another
// tells the likely drivers; the watchers of the lost member tell all. A member that is told of a
// loss asks for a sign itself, and believes only its own result.
//
// Invariants: at most one decision follows a view. Members that train in epoch e + 1 were admitted
// by a quorum of epoch e. At least one rank of that quorum contributes to no further step of e. So
// a rank that was left behind can end the step under way, and none after it. A part without a
// quorum stops at once and gives up after `quorum_limit`.
//
// A member that lies can stop the job, or have it continue without some member. It cannot split the
// job: two members that follow different decisions learn this from each other (fork_watch.h) and
// end it. A voter adopts one decision after the other. No decision gives a voter a place unless it
// was parked for it in the epoch before. So a verdict that skips an epoch and has a place for the
// voter is a lie, and the voter ends. A lie cannot end the job as a success either, because ranks
// know themselves when all are done. Not guaranteed: a newcomer that only a liar admits may follow
// the liar; none of the job's members does.
//
// Decisions are accepted from voters of this view and of the previous one. A newcomer that was not
// admitted has no voice: its decisions, ballots and requests are ignored.
//
// Limits: every wait has a limit in MemberConfig, checked at every heartbeat; kMaxPeers
// connections, kMaxAsked requests. A process that was itself stopped for longer than half of
// `silence` blames nobody for messages it did not receive. No I/O, no threads, no clock. One
// thread.
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
#include "elastic/membership/fork_watch.h"
#include "elastic/membership/message.h"
#include "elastic/membership/view.h"

namespace spillway::membership {

inline constexpr std::size_t kMaxPeers = 2 * kMaxMembers;
inline constexpr std::size_t kMaxAsked = 64;             // requests waiting at one member
inline constexpr unsigned kMaxChangesWithoutEffect = 3;  // consecutive changes that change nothing
inline constexpr unsigned kBeatsPerReport = 20;  // heartbeats between two reports of a rank's work

struct MemberConfig {
  base::Duration heartbeat = base::milliseconds(50);
  base::Duration silence = base::seconds(2);        // a watched member counts as lost after this
  base::Duration park_limit = base::seconds(300);   // for a rank to end or abandon its step
  base::Duration answer_limit = base::seconds(2);   // for every other wait
  base::Duration quorum_limit = base::seconds(10);  // for a quorum to return, and for a view's
                                                    // members to connect
  SizeRules size{};
  double straggler_factor = 2.0;  // times the median of ranks' own work per step
  bool replace_stragglers = false;
  std::uint64_t seed = 0;  // for waiting times and epochs' nonces, which are not secret
  // Returns 64 bits that no other member can guess, from the system's generator for secrets. Used
  // as the points of fingerprints (fork_watch.h). Unset only in simulations, which use `seed`.
  std::function<std::uint64_t()> secret_word{};
};

// Training must stop: at once (operations under way are revoked), or when `at_step` is about to
// begin. An Interrupt at once may follow one with a step. A rank that has parked is not
// interrupted.
struct Interrupt {
  std::uint32_t epoch = 0;
  std::optional<std::uint64_t> at_step{};
  std::string why{};
};
// The view is in force from now on: its ranks train, its standbys wait. If the job ends, Dismissed
// follows.
struct Decided {
  Decision decision{};
};
// This process no longer belongs to the job, or the job has ended. The last event.
struct Dismissed {
  std::string why{};
};
// Once per rank and epoch, at every member.
struct StragglerFound {
  std::uint32_t rank = 0;
  double times_median = 0;
};
// The outcome of a request that was made here.
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
  // A founder passes `view` (epoch 1), the same at all its members. A newcomer passes none and
  // learns the view from the members it connects to. It becomes a standby or a rank with the next
  // change.
  Member(const MemberConfig& config, MemberId self, std::optional<View> view, Handle next_handle,
         base::Instant now);
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // ---- connections: the runtime keeps one to every member and newcomer that it knows of.
  // While a connection lasts, its messages arrive in order and none is lost. The peer has proved
  // that the id is its own: whoever is connected as a voter has its vote.
  void on_connected(MemberId peer, base::Instant now);
  // kClosed, kSilent: the connection is over. kData: it may still work, but an operation blamed the
  // peer.
  void on_lost(MemberId peer, LossCause cause, base::Instant now);
  // Accepts any bytes: malformed messages are counted and change nothing.
  void on_message(MemberId from, base::ByteView message, base::Instant now);
  base::Instant next_timeout() const { return next_beat_; }
  void on_timeout(base::Instant now);
  std::optional<Outgoing> poll_transmit();

  // ---- the application
  // Step `step` is about to begin; the previous step took `work` of this rank's own time. Handle
  // the pending events before beginning it.
  void on_step(std::uint64_t step, base::Duration work, base::Instant now);
  // Reports that training has stopped: after an Interrupt, or without one because an operation
  // failed; then a change follows. `next_handle` is for the next epoch. A standby or newcomer calls
  // this when its handle or warmth changes. `epoch` is the latest that the application knows, 0 for
  // none. A voter's call for an older epoch is ignored: the application calls again when it knows
  // the new one.
  void on_parked(std::uint32_t epoch, const Position& position, const Handle& next_handle,
                 base::Instant now);
  // May be called at any member of the job; Answered tells the outcome.
  base::Status ask(const ChangeRequest& request, base::Instant now);
  // This process ends by itself and tells the others, so that they do not count it as lost.
  // `is_whole`: this rank's part of the job is done. It then stays connected until Dismissed says
  // that all are done. Until then it may be interrupted, to help the others finish.
  void leave(bool is_whole, base::Instant now);

  std::optional<Event> poll_event();
  const View& view() const { return view_; }  // the present view
  // For people and tools: what this member waits for ("rank 3 to end its step, for 1.2 s"). Empty
  // if it waits for nothing.
  std::string waits_for(base::Instant now) const;
  std::uint64_t refused_messages() const { return refused_messages_; }

 private:
  enum class Standing : std::uint8_t { kNewcomer, kStandby, kRank, kOver };
  enum class Training : std::uint8_t { kRunning, kStopping, kParked };
  enum class Reach : std::uint8_t {
    kAwaited,    // in the view, but not connected yet
    kConnected,  // connected and heard from
    kLost,
  };
  // Whether a peer was asked for a sign of life, and why.
  enum class Doubt : std::uint8_t {
    kNone,
    kAsked,    // as a precaution
    kAccused,  // because another member lost it
  };
  struct Peer {
    Reach reach = Reach::kAwaited;
    LossCause cause = LossCause::kClosed;  // cause of the loss
    bool is_open = false;                  // its connection is open, even if it is silent
    bool has_left = false;                 // it said that it leaves
    bool has_finished = false;             // its part of the job
    Doubt doubt = Doubt::kNone;
    base::Instant since{};  // start of the present wait for it
    base::Instant heard{};
    std::optional<base::Instant> told{};  // when missed decisions were last exchanged with it
  };
  struct Applicant {
    bool is_warm = false;
    Handle handle{};
  };
  // A driver's phase.
  enum class Phase : std::uint8_t { kIdle, kGathering, kAccepting };
  struct Drive {
    Phase phase = Phase::kIdle;
    Ballot ballot = 0;
    base::Instant since{};
    base::Instant resend_at{};
    std::optional<std::uint64_t> at_step{};
    std::string why{};
    std::map<MemberId, Present> parked{};
    std::map<MemberId, std::size_t> reach{};  // voters that each of them has in reach
    Ballot best_ballot = 0;                   // the greatest ballot accepted before
    std::optional<Decision> best{};
    Decision proposal{};
    std::set<MemberId> accepted{};
  };
  struct OwnRequest {
    std::uint32_t number = 0;
    RequestKind kind = RequestKind::kMove;
    std::vector<MemberId> members{};  // members whose places are requested
    std::size_t least_ranks = 0;      // after the change
    base::Instant since{};
  };
  struct PendingRequest {
    MemberId from = 0;
    std::uint32_t number = 0;
    ChangeRequest request{};
  };

  // ---- member.cc
  void settle(const View& view, base::Instant now);
  void dismiss(std::string why);
  bool is_voter() const { return standing_ == Standing::kRank || standing_ == Standing::kStandby; }
  void stop_training(std::optional<std::uint64_t> at_step, const std::string& why);
  Position position() const;
  void report_parked();
  void answer_own_requests(const View& before, const Decision& decision);
  std::string name_of(MemberId member) const;

  // ---- member_watch.cc
  Peer* find_peer(MemberId peer);
  const Peer* find_peer(MemberId peer) const;
  void mark(Peer& peer, Reach reach, base::Instant now);
  bool is_in_reach(MemberId member) const;
  bool counts(std::uint32_t index) const;
  std::size_t voters_in_reach() const;
  bool may_decide() const;  // true if a quorum and a rank are in reach
  void lose(MemberId peer, LossCause cause, base::Instant now);
  void accuse(MemberId from, MemberId target, LossCause cause, base::Instant now);
  void report_loss(MemberId peer, LossCause cause);
  void ask_for_heartbeat(MemberId from, Doubt doubt, base::Instant now);
  // The first `most` voters in the order in which they drive a change.
  std::vector<MemberId> drivers(std::size_t most = kMaxMembers) const;
  std::string loss_text(MemberId member) const;

  // ---- member_watch.cc
  void beat(base::Instant now);
  void send_heartbeats();
  void check_silence(base::Instant now);
  bool is_expected(MemberId peer, const Peer& state) const;
  bool has_company() const;
  void check_limits(base::Instant now);
  void note_finished(bool& has_finished, base::Instant now);
  void probe_unfinished();
  void greet_in_turn(base::Instant now);
  void check_stragglers(base::Instant now);
  void ask_members_ahead(base::Instant now);

  // ---- member_change.cc
  void evaluate(base::Instant now);
  bool is_done() const;
  void end_job();
  bool is_urgent() const;
  bool is_planned() const;
  bool is_quorum_at_risk() const;
  std::string reason() const;
  void consider_driving(base::Instant now);
  void begin_drive(base::Instant now);
  void halt(MemberId peer);
  void halt_at_once();
  void resend(MemberId peer, base::Instant now);
  void resign(base::Instant now);
  bool is_driver_of(MemberId from, Ballot ballot) const;
  void adopt(const Decision& decided, base::Instant now);
  void send_fingerprint(const std::set<MemberId>& whom);
  std::set<MemberId> compared_with() const;
  std::string refuted(const std::string& why) const;
  void end_split_job(const Fingerprint& other);
  void add_request(MemberId from, std::uint32_t number, const ChangeRequest& request,
                   base::Instant now);
  void refuse_request(MemberId from, std::uint32_t number, const std::string& why);

  // ---- member_change.cc
  void advance_drive(base::Instant now);
  std::vector<MemberId> awaited(base::Instant now) const;
  bool is_worse_off() const;
  std::size_t spares() const;
  MemberId worst_connected() const;
  Findings findings();
  void propose(base::Instant now);
  void conclude_if_accepted(base::Instant now);

  // ---- member_inbox.cc
  void send(MemberId to, const Message& message);
  void send_hello(MemberId to);
  void send_missed_decision(MemberId peer, base::Instant now);
  bool is_for_now(MemberId from, std::uint32_t epoch, base::Instant now);
  bool is_for_now_from_voter(MemberId from, std::uint32_t epoch, base::Instant now);
  bool has_voice(MemberId from) const;
  void ask_for_missed_decisions(MemberId from, base::Instant now);
  bool promise(MemberId driver, std::uint32_t epoch, Ballot ballot, base::Instant now);
  void take(MemberId from, const Hello& m, base::Instant now);
  void take(MemberId from, const Welcome& m, base::Instant now);
  void take(MemberId from, const DismissNotice& m, base::Instant now);
  void take(MemberId from, const Alive& m, base::Instant now);
  void take(MemberId from, const Suspect& m, base::Instant now);
  void take(MemberId from, const StragglerNotice& m, base::Instant now);
  void take(MemberId from, const LeaveNotice& m, base::Instant now);
  void take(MemberId from, const Done& m, base::Instant now);
  void take_finished(Peer& peer, base::Instant now);
  void take(MemberId from, const Halt& m, base::Instant now);
  void take(MemberId from, const StepBegun& m, base::Instant now);
  void take(MemberId from, const Parked& m, base::Instant now);
  void take(MemberId from, const Accept& m, base::Instant now);
  void take(MemberId from, const Accepted& m, base::Instant now);
  void take(MemberId from, const BallotRefused& m, base::Instant now);
  void take(MemberId from, const Chosen& m, base::Instant now);
  void take(MemberId from, const DecisionNotice& m, base::Instant now);
  void take(MemberId from, const ForwardedRequest& m, base::Instant now);
  void take(MemberId from, const RequestRefused& m, base::Instant now);
  void take(MemberId from, const Fingerprint& m, base::Instant now);

  MemberConfig config_;
  MemberId self_;
  base::RandomSequence random_;

  View view_{};
  Roster roster_{};
  Standing standing_ = Standing::kNewcomer;
  std::optional<Decision> last_{};  // that made the present view
  Roster former_{};                 // of the previous view
  ForkWatch forks_{};

  // State of the application.
  Training training_ = Training::kParked;
  Position position_{};
  Handle handle_;
  std::optional<std::uint64_t> stop_at_{};
  std::optional<std::uint64_t> step_{};  // the latest begun in this epoch
  std::uint64_t greatest_step_ = 0;      // of any member, as far as known
  bool has_finished_ = false;
  bool has_heard_done_ = false;  // from a rank of this view
  WorkWindow work_{};

  // State of the other members.
  std::map<MemberId, Peer> peers_{};
  std::vector<Peer*> voter_peers_{};  // by index in the roster; null for this one
  std::map<MemberId, Applicant> applicants_{};
  std::map<MemberId, std::set<MemberId>>
      accusers_{};              // accusing ranks, by the rank they blame, in this epoch
  std::set<MemberId> unfit_{};  // accused of having closed or fallen silent; they drive last
  std::set<MemberId> reported_losses_{};
  std::map<std::uint32_t, base::Duration> works_{};  // typical work, by rank
  std::set<std::uint32_t> stragglers_{};
  unsigned changes_without_effect_ = 0;
  std::int32_t lost_count_ = 0;     // lost peers that had not finished
  std::size_t finished_count_ = 0;  // ranks, including this one
  base::Instant reach_changed_{};

  // The change under way.
  Ballot promised_ = 0;
  Ballot accepted_ballot_ = 0;
  std::optional<Decision> accepted_{};
  MemberId driver_ = 0;  // holder of this member's promise
  base::Instant driver_heard_{};
  std::uint64_t greatest_round_ = 0;
  Drive drive_{};
  std::optional<base::Instant> needed_since_{};
  base::Instant turn_since_{};
  std::optional<base::Instant> alone_since_{};  // without a quorum

  std::vector<OwnRequest> own_requests_{};          // requests made here
  std::vector<PendingRequest> pending_requests_{};  // requests that this member handles as a driver
  std::uint32_t next_number_ = 1;

  std::deque<Outgoing> outbox_{};
  std::deque<Event> events_{};
  base::Instant next_beat_{};
  std::uint64_t beats_ = 0;
  std::uint64_t refused_messages_ = 0;
};

}  // namespace spillway::membership
