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
// behind it counts as gone, and is told so if it comes back.
//
// Limits: kMaxStreams; who has not greeted within kGreetingPatience is hung up on; a member that
// does not read, so that more than kMaxBacklog bytes wait for it, counts as lost. One thread: the
// job's.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/units.h"
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
  // Null for who is not known.
  const MemberCard* find(membership::MemberId member) const;
  std::vector<MemberCard> roster() const;  // this one's included

  // Makes a member known; dials it if that is this one's to do.
  void introduce(const MemberCard& member);
  // Somebody of the job; this one, if that is known.
  void dial(const net::SocketAddress& address, membership::MemberId expected = 0);
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
  Mesh(const Config& config, net::UniqueFd listening, const net::SocketAddress& address,
       MeshListener& listener);

  void accept_all();
  void begin_stream(std::unique_ptr<Stream> stream);
  void serve(Stream& stream, short events);
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
  std::unordered_map<membership::MemberId, std::uint64_t> open_;        // numbers of streams
  std::unordered_map<membership::MemberId, MemberCard> known_;          // ever
};

}  // namespace spillway::runtime
