// SPDX-License-Identifier: Apache-2.0
//
// The streams between a job's members, one to each other member: TCP, proved and sealed as those of
// a rendezvous. A process that ends closes its streams, and every other member knows at once.
//
//   dialling ──► shaking ──► greeting ──► open ──► (lost)      who dials
//                shaking ──► greeting ──► open                 who is dialled
//                              └────────► asking               a tool that asks
//
// Of two members that know of each other the one with the smaller id dials; a newcomer dials one
// member, which makes it known to all others. A stream that has ended is not made again: whoever is
// behind it counts as gone, and is told so if it comes back. A member that turns this one away
// before anything is proved, because too many strangers are there, is dialled again.
//
// Limits: kMaxStreams of those that have proved to know the job's credential; strangers, who have
// not, are bounded by net/stranger_book.h, a share for each address. A stream that has not greeted
// within kGreetingPatience is closed, and so is a tool's that was answered and asks nothing more;
// while it waits for an answer it stays, however long a change takes (membership::Member gives
// every request an answer in time). A member that does not read, so that more than kMaxBacklog
// bytes wait for it, counts as lost. kMaxDials are under way at a time, the others wait. Cards of
// processes that are no members go with their streams. One thread: the job's.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/units.h"
#include "net/stranger_book.h"
#include "net/system_call.h"
#include "runtime/job/mesh_message.h"
#include "runtime/rendezvous/handshake.h"
#include "runtime/rendezvous/socket.h"

namespace spillway::runtime {

class MeshListener {
 public:
  virtual ~MeshListener() = default;
  virtual void on_connected(const MemberCard& member) = 0;
  virtual void on_lost(membership::MemberId member) = 0;
  virtual void on_speech(membership::MemberId from, base::ByteView speech) = 0;
  // At a newcomer: a member has let it in.
  virtual void on_welcome(const MemberWelcome& welcome) = 0;
  // At a newcomer: nobody has, and this is why.
  virtual void on_refused(const std::string& why) = 0;
  // Whether it has a place in the job: then it stays known when its stream has ended.
  virtual bool is_member(membership::MemberId member) const = 0;
  // The job's, for a newcomer that was let in.
  virtual wire::RunKey key() const = 0;
  // Whoever asks is answered later, with reply().
  virtual void on_question(std::uint64_t asker, const std::string& question) = 0;
};

class Mesh {
 public:
  static constexpr std::size_t kMaxStreams = 2 * membership::kMaxMembers;
  static constexpr std::size_t kMaxSpeechBytes = 16 * 1024 * 1024;
  static constexpr std::size_t kMaxBacklog = 4 * kMaxSpeechBytes;
  static constexpr base::Duration kGreetingPatience = base::seconds(5);
  static constexpr std::size_t kMaxDials = 64;
  // That a stranger takes at most: one read, which the reader of frames keeps.
  static constexpr std::size_t kStrangerBytes = 128 * 1024;

  struct Config {
    Nonce job{};
    Credential credential{};  // that all of the job have
    Standing standing = Standing::kMember;
    net::SocketAddress listen{};  // its port may be 0
    membership::MemberId id = 0;
    std::string name{};
  };
  static base::Result<std::unique_ptr<Mesh>> open(const Config& config, MeshListener& listener);
  ~Mesh();

  const MemberCard& own() const { return own_; }
  std::size_t most_strangers() const { return strangers_.most(); }
  // Null for who is not known.
  const MemberCard* find(membership::MemberId member) const;
  std::vector<MemberCard> roster() const;  // this one's included
  bool has_stream_to(membership::MemberId member) const { return open_.contains(member); }

  // Makes a member known; turn() dials it if that is this one's to do.
  void introduce(const MemberCard& member);
  // Dials any member of the job, and gives up an earlier dial that was not answered yet: two
  // members that let a newcomer in would each expect the other one to dial.
  void dial_anybody(const net::SocketAddress& address);
  // From now on a member like the others.
  void settle() { config_.standing = Standing::kMember; }

  // Lost if there is no stream to it: then nothing happens.
  void speak(membership::MemberId to, base::ByteView speech);
  void hang_up(membership::MemberId member);
  void reply(std::uint64_t asker, std::string_view text);

  // Waits for something to happen at a stream or at `wake`, until `until` at most, and tells the
  // listener of it.
  void turn(base::Instant until, int wake);

 private:
  class Stream;
  struct Dial {
    Door door{};
    membership::MemberId expected = 0;  // 0: anybody of the job
    base::Instant at{};
    base::Instant leave_by{};  // none yet: its time begins when it is dialled
  };
  Mesh(const Config& config, net::UniqueFd listening, const net::SocketAddress& address,
       MeshListener& listener);

  void dial(Dial dial);
  void redial();
  void dial_those_that_wait();
  std::size_t dials_under_way() const;
  void forget(membership::MemberId member);
  void accept_all();
  bool make_room(const std::string& source);
  void note_stranger(const Stream& stream);
  void begin_stream(std::unique_ptr<Stream> stream);
  void serve(Stream& stream, short events);
  void hear_all(Stream& stream);
  void hear(Stream& stream, const Frame& frame);
  void hear_hello(Stream& stream, const Frame& frame);
  void hear_welcome(const Frame& frame);
  void hear_roster(const Frame& frame);
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
  net::StrangerBook strangers_{
      net::StrangerBook::most_of(net::StrangerBook::files_of_process(), kStrangerBytes)};
  base::Instant closed_until_{};  // nobody is accepted before
  std::vector<Dial> redials_{};   // of members that turned this one away
  std::deque<Dial> waiting_{};    // until others are through
  std::unordered_map<membership::MemberId, std::uint64_t> open_;  // numbers of streams
  std::unordered_map<membership::MemberId, MemberCard> known_;    // members, and who has a stream
};

}  // namespace spillway::runtime
