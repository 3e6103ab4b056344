// SPDX-License-Identifier: Apache-2.0
//
// The host's side of a rendezvous: collects a blob from every rank and sends all of them to all.
//
// Strangers are port scanners, other jobs, other versions, second processes with the same rank, and
// clients that do not know the key. Each gets a message if possible, is counted, and does not
// disturb the rest. A client learns nothing about the job and takes no rank's place before it has
// proved the key (if there is one). A rank whose connection breaks may reconnect.
//
// Limits: a client has kStrangerPatience to identify itself, and kRefusedPatience to read a
// refusal. The stranger book decides how many unidentified clients there may be, and which of them
// makes room (net/stranger_table.h). Ranks that have been admitted are no strangers, and a rejected
// rank connects again, so all ranks of a large world get in eventually, even from one address. A
// client believes that it is in only after the welcome, so it is safe only for kHandshakeGrace:
// otherwise a flood of openings could keep the ranks of its own address out. Ranks that answer
// later keep their places because the newest client goes first, so some always get in. At most
// kMaxAcceptsPerTurn are accepted before the accepted ones are read. Blocks the calling thread and
// closes all sockets before it returns.
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/units.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/message.h"
#include "comm/rendezvous/register.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/socket.h"
#include "net/stranger_table.h"
#include "observe/log.h"

namespace spillway::comm {
namespace {

constexpr base::Duration kStrangerPatience = base::seconds(5);
constexpr base::Duration kRefusedPatience = base::seconds(1);
// Some round trips between two hosts of a datacentre.
constexpr base::Duration kHandshakeGrace = base::milliseconds(20);
constexpr std::size_t kMaxAcceptsPerTurn = 64;
// How long the host waits for the other ranks to receive a failure.
constexpr base::Duration kFailureNoticeTime = base::seconds(1);
// File descriptors left for the rest of the process.
constexpr std::uint64_t kSpareFiles = 32;
// Pause if all descriptors are in use and no connection can be closed.
constexpr int kCrowdedPauseMs = 10;

// ------------------------------------------------------------------ one client

// A client connected to the host: its stream, the state of its handshake, its input and its queued
// output. Nothing blocks.
//
//   stranger ── handshake, a good hello ──► joined rank, which waits for the other ranks
//       └────── anything else ────────────► refused: gets the reason, and stays open until it has
//                                           read it, because an earlier close would destroy bytes
//                                           in flight
//
// Until its handshake is done, a stranger may send at most kMaxHandshakeBytes per frame. A frame is
// packed just before it is sent, so a peer holds only one part of a long gather.
class PendingPeer {
 public:
  // Unless it joins, the visitor is removed at `leave_by`.
  PendingPeer(std::uint64_t id, AcceptedClient newcomer, const HostHandshake& handshake,
              base::Instant leave_by)
      : id_(id), socket_(std::move(newcomer.socket)), handshake_(handshake), leave_by_(leave_by) {}

  std::uint64_t id() const { return id_; }
  int fd() const { return socket_.get(); }
  // Events for poll.
  short wanted_events() const;
  // True if poll reported events. Initially true: a newcomer has not been polled yet.
  bool is_ready() const { return ready_; }
  void set_ready(bool ready) { ready_ = ready; }

  bool is_stranger() const { return !rank_ && !refused_; }
  // True if the host has answered a part of its handshake.
  bool was_answered() const { return answered_; }
  std::optional<std::uint32_t> rank() const { return rank_; }
  bool is_overdue(base::Instant now) const { return !rank_ && now >= leave_by_; }

  // Reads available bytes; discards them unless this is a stranger.
  void read();
  // Continues the handshake, then returns the stranger's next frame after it; nullopt while
  // incomplete. After an error the visitor must be dismissed, and fault() says why.
  base::Result<std::optional<Frame>> next();
  StrangerKind fault() const { return fault_; }
  // True once it has proved the key, if there is one.
  bool is_proven() const { return handshake_.is_done(); }
  // True if the stream has ended or failed.
  bool is_gone() const { return gone_; }

  void set_rank(std::uint32_t rank) { rank_ = rank; }
  void send(std::shared_ptr<const Frame> frame);
  void refuse(const Refusal& refusal, base::Instant leave_by);
  // Sends as much as the socket takes.
  void flush();
  bool has_sent_all() const { return outbox_.empty() && packed_.empty(); }

 private:
  base::Result<std::optional<Frame>> next_frame();
  bool pack_next();

  std::uint64_t id_;
  net::UniqueFd socket_;
  HostHandshake handshake_;
  base::Instant leave_by_;
  std::optional<std::uint32_t> rank_{};
  bool ready_ = true;
  bool answered_ = false;
  bool refused_ = false;
  bool gone_ = false;
  StrangerKind fault_ = StrangerKind::kNoise;
  FrameReader inbox_{kMaxHandshakeBytes};
  Channel channel_{};
  std::deque<std::shared_ptr<const Frame>> outbox_{};
  Blob packed_{};         // being sent
  std::size_t sent_ = 0;  // bytes of packed_ already sent
};

short PendingPeer::wanted_events() const {
  return static_cast<short>(POLLIN | (has_sent_all() ? 0 : POLLOUT));
}

void PendingPeer::read() {
  Blob bytes;
  gone_ = gone_ || receive_some(socket_, bytes) == StreamState::kClosed;
  if (is_stranger()) {
    inbox_.append(bytes);
  }
}

base::Result<std::optional<Frame>> PendingPeer::next() {
  while (!handshake_.is_done()) {
    const base::Result<std::optional<Frame>> frame = next_frame();
    if (!frame.ok() || !frame->has_value()) {
      return frame;
    }
    base::Result<std::optional<Frame>> answer = handshake_.take(**frame);
    if (!answer.ok()) {
      fault_ = handshake_.fault();
      return answer.status();
    }
    if (answer->has_value()) {
      answered_ = true;
      send(std::make_shared<const Frame>(std::move(**answer)));
    }
    if (handshake_.is_done()) {
      channel_ = handshake_.channel();
      inbox_.set_most_body_bytes(kMaxHelloBytes);
    }
  }
  base::Result<std::optional<Frame>> frame = next_frame();
  if (!frame.ok() || !frame->has_value()) {
    return frame;
  }
  base::Result<Frame> opened = channel_.unpack(std::move(**frame));
  if (!opened.ok()) {
    fault_ = StrangerKind::kUnproven;
    return opened.status();
  }
  return std::optional<Frame>(std::move(opened).value());
}

base::Result<std::optional<Frame>> PendingPeer::next_frame() {
  fault_ = StrangerKind::kNoise;
  return inbox_.next();
}

void PendingPeer::send(std::shared_ptr<const Frame> frame) {
  outbox_.push_back(std::move(frame));
  flush();
}

void PendingPeer::refuse(const Refusal& refusal, base::Instant leave_by) {
  refused_ = true;
  leave_by_ = std::min(leave_by_, leave_by);
  send(std::make_shared<const Frame>(encode(refusal)));
}

// True if there is anything to send.
bool PendingPeer::pack_next() {
  if (packed_.empty() && !outbox_.empty()) {
    base::Result<Blob> packed = channel_.pack(*outbox_.front());
    outbox_.pop_front();
    sent_ = 0;
    gone_ = gone_ || !packed.ok();  // without packing, nothing can be sent
    packed_ = packed.ok() ? std::move(packed).value() : Blob();
  }
  return !packed_.empty() && !gone_;
}

void PendingPeer::flush() {
  while (pack_next()) {
    gone_ = send_some(socket_, packed_, sent_) == StreamState::kClosed;
    if (sent_ < packed_.size()) {
      return;
    }
    packed_.clear();
  }
  if (refused_) {
    ::shutdown(socket_.get(), SHUT_WR);
  }
}

// ------------------------------------------------------------------ the host

class Host {
 public:
  Host(Listening listening, const Participant& participant, const Credential& credential,
       const Blob& own)
      : listening_(std::move(listening)),
        credential_(credential),
        register_(participant, own, clock_.now()) {}

  base::Result<RendezvousResult> run();

 private:
  void wait_until(base::Instant when);
  void accept_clients();
  bool make_room(const std::string& source);
  void displace(net::StrangerTable::Id stranger);
  void serve(PendingPeer& peer);
  void mark_if_served(const PendingPeer& peer);
  void handle(PendingPeer& peer, const Frame& frame);
  void admit(PendingPeer& peer, const Hello& hello);
  void refuse(PendingPeer& peer, const Refusal& refusal);
  void reject(PendingPeer& peer, const base::Status& why);
  template <typename Predicate>
  void remove_peers(const Predicate& goes);
  void remove_gone();
  base::Status prepare_gather();
  void send_gather(PendingPeer& peer);
  void log_missing_ranks();
  void log_strangers() const;
  std::string with_refusals(std::string sentence) const;
  base::Status fail();

  base::MonotonicClock clock_;
  Listening listening_;
  const Credential& credential_;
  Register register_;
  std::list<PendingPeer> peers_;  // in order of arrival
  // Visitors that are no ranks.
  net::StrangerTable book_{
      net::StrangerTable::most_of(net::StrangerTable::files_of_process(), kStrangerBytes),
      net::StrangerTable::of_process(), kHandshakeGrace};
  net::StrangerTable::Id next_peer_ = 0;
  std::optional<Gather> gather_{};                      // set once all ranks have come
  std::vector<std::shared_ptr<const Frame>> frames_{};  // the encoded gather
  std::string last_refusal_{};
  StrangerCounts strangers_{};
  WaitNotice notice_{clock_.now()};
};

base::Result<RendezvousResult> Host::run() {
  while (!register_.all_served()) {
    if (clock_.now() >= register_.deadline()) {
      return fail();
    }
    wait_until(std::min(register_.deadline(), notice_.next()));
    accept_clients();
    for (PendingPeer& peer : peers_) {
      if (peer.is_ready()) {
        serve(peer);
      }
    }
    remove_gone();
    if (register_.is_sealed() && !gather_) {
      if (base::Status status = prepare_gather(); !status.ok()) {
        return status;
      }
    }
    log_missing_ranks();
  }
  log_strangers();
  base::Result<RendezvousResult> met = result_of(credential_, *gather_);
  if (!met.ok()) {
    return met.status();
  }
  RendezvousResult result = std::move(met).value();
  result.strangers = strangers_;
  return result;
}

// Waits for an event, but checks often enough to remove overdue strangers.
void Host::wait_until(base::Instant when) {
  std::vector<pollfd> waiting = {{listening_.socket.get(), POLLIN, 0}};
  bool any_to_remove = false;
  for (const PendingPeer& peer : peers_) {
    waiting.push_back({peer.fd(), peer.wanted_events(), 0});
    any_to_remove = any_to_remove || !peer.rank();
  }
  base::Duration patience = when - clock_.now();
  patience = any_to_remove ? std::min(patience, kRefusedPatience / 4) : patience;
  const std::int64_t ms = std::clamp<std::int64_t>(patience.count() / 1'000'000 + 1, 0, 60'000);
  ::poll(waiting.data(), waiting.size(), static_cast<int>(ms));
  auto polled = waiting.cbegin() + 1;
  for (PendingPeer& peer : peers_) {
    peer.set_ready((polled++)->revents != 0);
  }
}

void Host::accept_clients() {
  for (std::size_t count = 0; count < kMaxAcceptsPerTurn; ++count) {
    AcceptedClient newcomer = accept_from(listening_.socket);
    if (newcomer.is_out_of_files) {
      const std::optional<net::StrangerTable::Id> leaves = book_.first_to_evict(clock_.now());
      if (!leaves) {
        // The client stays in the backlog, so a pause is needed: poll() would return at once.
        ::poll(nullptr, 0, kCrowdedPauseMs);
        return;
      }
      displace(*leaves);
      continue;
    }
    const base::Result<Random> random = draw_random();
    if (!newcomer.socket.valid() || !random.ok()) {
      return;
    }
    if (!make_room(newcomer.source)) {
      ++strangers_[StrangerKind::kCrowded];
      continue;
    }
    book_.add(next_peer_, newcomer.source, clock_.now());
    peers_.emplace_back(next_peer_++, std::move(newcomer), HostHandshake(credential_, *random),
                        clock_.now() + kStrangerPatience);
  }
}

// False if a newcomer from `source` must be turned away.
bool Host::make_room(const std::string& source) {
  // Ends, because displace() changes what the book says.
  for (;;) {
    const net::StrangerTable::Room room = book_.room_for(source, clock_.now());
    if (!room.evict) {
      return room.is_free;
    }
    displace(*room.evict);
  }
}

// Closes a stranger, unless what it has sent meanwhile makes it a rank or gets its first answer.
void Host::displace(net::StrangerTable::Id stranger) {
  const auto found = std::find_if(peers_.begin(), peers_.end(),
                                  [&](const PendingPeer& peer) { return peer.id() == stranger; });
  const bool was_answered = found->was_answered();
  serve(*found);
  if (found->rank() || found->was_answered() != was_answered) {
    return;
  }
  const StrangerKind kind = was_answered ? StrangerKind::kCrowded : StrangerKind::kSilent;
  strangers_[kind] += found->is_stranger() ? 1 : 0;
  book_.remove(stranger);
  peers_.erase(found);
}

void Host::serve(PendingPeer& peer) {
  peer.flush();
  mark_if_served(peer);
  peer.read();
  while (peer.is_stranger()) {
    const base::Result<std::optional<Frame>> heard = peer.next();
    if (!heard.ok()) {
      reject(peer, heard.status());
    } else if (heard->has_value()) {
      handle(peer, **heard);
    } else {
      break;
    }
  }
  if (peer.was_answered()) {
    book_.answered(peer.id());
  }
  if (peer.rank() && peer.is_gone()) {
    register_.leave(*peer.rank());
  }
}

// Called before reading: a joiner leaves as soon as it has received everything.
void Host::mark_if_served(const PendingPeer& peer) {
  if (peer.rank() && gather_ && peer.has_sent_all() && !peer.is_gone()) {
    register_.mark_served(*peer.rank());
  }
}

void Host::handle(PendingPeer& peer, const Frame& frame) {
  const base::Result<Hello> hello = parse_hello(frame.body);
  if (frame.type != FrameType::kHello || !hello.ok()) {
    refuse(peer, {true, "a rank that comes to a rendezvous says hello first"});
  } else if (const std::optional<Refusal> objection = register_.objection(*hello)) {
    refuse(peer, *objection);
  } else {
    admit(peer, *hello);
  }
}

void Host::admit(PendingPeer& peer, const Hello& hello) {
  // The rank has given up its earlier connection, if any.
  remove_peers([&](const PendingPeer& other) { return other.rank() == hello.rank; });
  register_.enter(hello, clock_.now());
  peer.set_rank(hello.rank);
  book_.remove(peer.id());
  peer.send(std::make_shared<const Frame>(encode_welcome()));
  if (gather_) {
    send_gather(peer);
  }
}

// Rejects a rank that cannot take part. It has proved the key (if there is one), so it may learn
// why.
void Host::refuse(PendingPeer& peer, const Refusal& refusal) {
  last_refusal_ = refusal.reason;
  peer.refuse(refusal, clock_.now() + kStrangerPatience);
}

// Rejects a stranger. Never final: the refusal is not authenticated.
void Host::reject(PendingPeer& peer, const base::Status& why) {
  ++strangers_[peer.fault()];
  last_refusal_ = why.message();
  peer.refuse({false, why.message()}, clock_.now() + kRefusedPatience);
}

template <typename Predicate>
void Host::remove_peers(const Predicate& goes) {
  peers_.remove_if([&](const PendingPeer& peer) {
    const bool is_over = goes(peer);
    if (is_over) {
      book_.remove(peer.id());
    }
    return is_over;
  });
}

void Host::remove_gone() {
  const base::Instant now = clock_.now();
  remove_peers([&](const PendingPeer& peer) {
    const bool is_silent = peer.is_stranger() && peer.is_overdue(now) && !peer.is_gone();
    strangers_[StrangerKind::kSilent] += is_silent ? 1 : 0;
    return peer.is_gone() || peer.is_overdue(now);
  });
}

base::Status Host::prepare_gather() {
  base::Result<wire::RunKey> drawn = draw_key();
  if (!drawn.ok()) {
    return drawn.status();
  }
  gather_ = register_.gather();
  gather_->drawn = *drawn;
  for (Frame& frame : encode(*gather_)) {
    frames_.push_back(std::make_shared<const Frame>(std::move(frame)));
  }
  for (PendingPeer& peer : peers_) {
    if (peer.rank()) {
      send_gather(peer);
    }
  }
  return {};
}

void Host::send_gather(PendingPeer& peer) {
  for (const std::shared_ptr<const Frame>& frame : frames_) {
    peer.send(frame);
  }
  mark_if_served(peer);
}

void Host::log_missing_ranks() {
  const base::Instant now = clock_.now();
  if (notice_.is_due(now) && !register_.is_sealed()) {
    observe::log_warn("{}",
                      with_refusals(register_.waiting_text(listening_.text, notice_.waited(now))));
  }
}

// Port scanners are normal; clients that fail to prove the key are worth a warning.
void Host::log_strangers() const {
  if (strangers_.total() == 0) {
    return;
  }
  const bool is_news = strangers_[StrangerKind::kUnproven] + strangers_[StrangerKind::kKeying] != 0;
  observe::log(is_news ? observe::LogLevel::kWarn : observe::LogLevel::kInfo,
               is_news ? observe::LogSubsystem::kInit : observe::LogSubsystem::kBootstrap,
               "all ranks met at {}; of others who came there, {}", listening_.text,
               strangers_.to_string());
}

std::string Host::with_refusals(std::string sentence) const {
  if (!last_refusal_.empty()) {
    sentence += fmt::format(" (the last one refused was told: {})", last_refusal_);
  }
  if (strangers_.total() != 0) {
    sentence += fmt::format(" ({})", strangers_.to_string());
  }
  return sentence;
}

base::Status Host::fail() {
  std::string reason = with_refusals(register_.failure_text(listening_.text));
  const auto notice = std::make_shared<const Frame>(encode_failure(reason));
  remove_peers([](const PendingPeer& peer) { return !peer.rank(); });
  for (PendingPeer& peer : peers_) {
    peer.send(notice);
  }
  const base::Instant end = clock_.now() + kFailureNoticeTime;
  const auto busy = [](const PendingPeer& peer) { return !peer.has_sent_all() && !peer.is_gone(); };
  while (clock_.now() < end && std::any_of(peers_.begin(), peers_.end(), busy)) {
    wait_until(end);
    for (PendingPeer& peer : peers_) {
      peer.flush();
    }
  }
  return {base::StatusCode::kUnavailable, std::move(reason)};
}

// Every rank's connection takes one file descriptor of this process.
base::Status check_open_files(std::uint32_t world) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < world + kSpareFiles) {
    return {
        base::StatusCode::kLimitExceeded,
        fmt::format("the host of a rendezvous of {} ranks must open as many files, but may open "
                    "only {}: run ulimit -n {} before starting it",
                    world, files.rlim_cur, world + 1024)};
  }
  return {};
}

}  // namespace

base::Result<RendezvousResult> host_rendezvous(Listening listening, const Participant& participant,
                                               const Credential& credential, const Blob& own) {
  const base::Status files = check_open_files(participant.world);
  if (!files.ok()) {
    return files;
  }
  return Host(std::move(listening), participant, credential, own).run();
}

}  // namespace spillway::comm
