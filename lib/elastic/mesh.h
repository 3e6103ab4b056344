// SPDX-License-Identifier: Apache-2.0
//
// The streams between a job's members, one to each other member: TCP, authenticated and sealed like
// those of a rendezvous. When a process ends, its streams close and all other members know at once.
//
//   dialling ──► shaking ──► greeting ──► proving ──► open ──► (lost)   the dialling side
//                shaking ──► greeting ──► proving ──► open              the dialled side
//                              └────────► asking                        a tool that asks
//
// The handshake proves the job's credential, which all members share. It does not prove which
// member the peer is: otherwise any ticket holder could vote with a dead member's id. So each side
// then proves that its id is its own (mesh_message.h), and no peer has an effect before that proof.
//
// If two members know each other, the one with the smaller id dials. A newcomer dials one member,
// which announces it to all others. An ended stream is never reopened while the view has its peer:
// the peer counts as lost, and is told so if it comes back. A member that closes a stream before
// any proof, because too many strangers are connected, is dialled again.
//
// Limits: kMaxStreams streams whose peers have proved the job's credential. net/stranger_table.h
// bounds the unproven ones (strangers), with a share per address. A stream without a hello within
// kHelloTimeout is closed, as is a tool's stream that is idle for so long after an answer.
// While a tool waits for an answer its stream stays open, however long a change takes
// (membership::Member answers every request in time). A member with more than kMaxBacklog unread
// bytes counts as lost. At most kMaxDials dials are in progress; the others wait. Cards of
// processes that are no members are dropped with their streams. One thread: the job's.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/units.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/socket.h"
#include "elastic/mesh_message.h"
#include "net/stranger_table.h"
#include "net/system_call.h"

namespace spillway::elastic {

class MeshListener {
 public:
  virtual ~MeshListener() = default;
  virtual void on_connected(const MemberCard& member) = 0;
  virtual void on_lost(membership::MemberId member) = 0;
  virtual void on_member_message(membership::MemberId from, base::ByteView message) = 0;
  // For a newcomer: a member has admitted it.
  virtual void on_welcome(const MemberWelcome& welcome) = 0;
  // For a newcomer: no member has admitted it, and why.
  virtual void on_refused(const std::string& why) = 0;
  // True if the process belongs to the job: its card is then kept when its stream ends.
  virtual bool is_member(membership::MemberId member) const = 0;
  // The job's key, for an admitted newcomer.
  virtual wire::RunKey key() const = 0;
  // The listener answers later, with reply().
  virtual void on_question(std::uint64_t asker, const std::string& question) = 0;
};

class Mesh {
 public:
  static constexpr std::size_t kMaxStreams = 2 * membership::kMaxMembers;
  static constexpr std::size_t kMaxMessageBytes = 16 * 1024 * 1024;
  static constexpr std::size_t kMaxBacklog = 4 * kMaxMessageBytes;
  static constexpr base::Duration kHelloTimeout = base::seconds(5);
  static constexpr std::size_t kMaxDials = 64;
  // The most memory that a stranger takes: one read, kept by its FrameReader.
  static constexpr std::size_t kStrangerBytes = 128 * 1024;

  struct Config {
    launch::Nonce job{};
    comm::Credential credential{};  // shared by all members of the job
    Standing standing = Standing::kMember;
    net::SocketAddress listen{};  // its port may be 0
    MemberKey key{};              // of this process, with its id
    std::string name{};
  };
  static base::Result<std::unique_ptr<Mesh>> open(const Config& config, MeshListener& listener);
  ~Mesh();

  const MemberCard& own() const { return own_; }
  std::size_t most_strangers() const { return strangers_.most(); }
  // Null for an unknown member.
  const MemberCard* find(membership::MemberId member) const;
  std::vector<MemberCard> roster() const;  // includes this member
  bool has_stream_to(membership::MemberId member) const { return open_.contains(member); }

  // Adds a member; turn() dials it if this one has the smaller id.
  void add_member(const MemberCard& member);
  // Dials any member of the job, and cancels an earlier dial that has no answer yet. If two members
  // admitted the same newcomer, each would expect the other to dial.
  void dial_any_member(const net::SocketAddress& address);
  // Turns a newcomer into a member.
  void become_member() { config_.standing = Standing::kMember; }

  // Does nothing if there is no stream to the member.
  void send(membership::MemberId to, base::ByteView message);
  void close(membership::MemberId member);
  void reply(std::uint64_t asker, std::string_view text);

  // Waits for events on the streams or `wake`, at most until `until`, and reports them to the
  // listener.
  void turn(base::Instant until, int wake);

 private:
  class Stream;
  struct Dial {
    comm::StreamAddress address{};
    membership::MemberId expected = 0;  // 0: any member of the job
    base::Instant at{};
    base::Instant leave_by{};  // zero until the first attempt
  };
  Mesh(const Config& config, net::UniqueFd listening, const net::SocketAddress& address,
       MeshListener& listener);

  void dial(Dial dial);
  void redial();
  void start_waiting_dials();
  std::size_t dials_under_way() const;
  void forget(membership::MemberId member);
  void accept_all();
  bool make_room(const std::string& source);
  void note_stranger(const Stream& stream);
  void begin_stream(std::unique_ptr<Stream> stream);
  void serve(Stream& stream, short events);
  void handle_frames(Stream& stream);
  void handle_frame(Stream& stream, const comm::Frame& frame);
  MemberHello own_hello() const;
  void handle_hello(Stream& stream, const comm::Frame& frame);
  void handle_proof(Stream& stream);
  void refuse(Stream& stream, const std::string& why);
  std::string objection_to(const MemberHello& hello, const Stream& stream) const;
  void note_ended(membership::MemberId member);
  void handle_welcome(const comm::Frame& frame);
  void handle_roster(const comm::Frame& frame);
  void announce(const MemberCard& newcomer);
  void drop_ended();
  Stream* stream_to(membership::MemberId member);

  Config config_;
  net::UniqueFd listening_;
  MemberCard own_;
  MeshListener& listener_;
  base::MonotonicClock clock_;
  std::uint64_t next_stream_ = 1;
  std::unordered_map<std::uint64_t, std::unique_ptr<Stream>> streams_;  // by number
  net::StrangerTable strangers_{
      net::StrangerTable::most_of(net::StrangerTable::files_of_process(), comm::kStrangerBytes)};
  base::Instant closed_until_{};  // no accept before then
  std::vector<Dial> redials_{};   // to members that turned this one away
  std::deque<Dial> waiting_{};    // until earlier dials are done
  std::unordered_map<membership::MemberId, std::uint64_t> open_;  // stream numbers
  std::unordered_map<membership::MemberId, MemberCard> known_;  // members, and peers with a stream
  // Peers whose stream ended while the view had them. At most kMaxMembers.
  std::unordered_set<membership::MemberId> ended_;
};

}  // namespace spillway::elastic
