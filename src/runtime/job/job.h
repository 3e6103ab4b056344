// SPDX-License-Identifier: Apache-2.0
//
// One process's place in a job that outlives its processes: who its members are may change between
// two steps, and each time is an epoch with communicators of its own.
//
//   auto job = Job::found(communicator, config);      // all ranks together; the last are standbys
//   for (step = ...) {
//     if (job->step(step, work) == Verdict::kStop)    // somebody is gone, or a change was asked
//     for
//       change = job->park(position, limit);          // training stands still; what was agreed on
//     comm = job->communicator(channel, ranks);       // of the new epoch, at once: nobody is asked
//   }
//
// What is watched (watch()) is aborted the moment training must stop, so that nobody waits in an
// operation for a rank that is gone. Members agree by membership::Member, over streams of their own
// (mesh.h); sockets for the next epoch are open before anyone knows that there will be one, and
// their addresses come with the decision, so that connecting takes no round trip.
//
// Threads: one of its own, for streams and agreement. The application calls step(), park() and
// communicator() from one thread at a time; the rest from any. Every wait has a limit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "membership/member.h"
#include "runtime/communicator.h"
#include "runtime/job/ticket.h"

namespace spillway::runtime {

// Communicators of an epoch: the application's groups, a hook's, ...
inline constexpr std::uint16_t kMaxChannels = 8;

struct JobConfig {
  std::uint16_t standbys = 0;  // of the founders, the last so many
  std::uint16_t channels = 1;
  CommunicatorConfig communicator{};  // of every epoch's; who it is and where to meet aside
  membership::MemberConfig membership{};
  std::string ticket_file{};  // where whoever is rank 0 writes its ticket; empty: nowhere
};

enum class Verdict : std::uint8_t {
  kGo,
  kStop,  // park()
};

// What was agreed on, as this process has to know it.
struct Change {
  membership::Outcome outcome = membership::Outcome::kGoesOn;
  std::uint32_t epoch = 0;
  std::optional<std::uint16_t> rank{};  // nothing: it is a standby, or no longer a member
  std::uint16_t world = 0;
  std::uint64_t step = 0;                // at whose beginning all go on
  std::vector<std::uint32_t> sources{};  // ranks that have that step's state
  std::string why{};
  bool is_done = false;  // it ends because all steps are done
  // When this process was told to stop, stood still, and knew what was decided: wall-clock time.
  std::int64_t interrupted_ns = 0;
  std::int64_t parked_ns = 0;
  std::int64_t decided_ns = 0;
};

class Job {
 public:
  // Called by all ranks of a communicator; returns when each knows of each. Epoch 1's members are
  // its ranks but the standbys, and first_change() tells of it.
  static base::Result<std::unique_ptr<Job>> found(Communicator& communicator,
                                                  const JobConfig& config);
  // A process that comes later, and becomes a standby.
  static base::Result<std::unique_ptr<Job>> join(const Ticket& ticket, const JobConfig& config);
  ~Job();

  const Ticket& ticket() const;
  // Of a founder; nothing at who joined later.
  std::optional<Change> first_change() const;

  // A step is about to begin; the one before took `work` of this rank's own time.
  Verdict step(std::uint64_t step, base::Duration work);
  // Whether training must stop at once.
  bool is_interrupted() const;
  // Aborted when it must, until it is gone.
  void watch(std::weak_ptr<Communicator> communicator);

  // Training stands still. What was decided; nothing where that takes longer than `limit`, and then
  // it may be called again. A standby is told only when it is called in or let go.
  base::Result<std::optional<Change>> park(const membership::Position& position,
                                           base::Duration limit);
  // Of the epoch that the last change told of, among these of its ranks, this one included; all of
  // them call it with the same, and once for each channel.
  base::Result<std::unique_ptr<Communicator>> communicator(std::uint16_t channel,
                                                           std::span<const std::uint16_t> ranks);

  // This process's part ends. Nothing is waited for.
  void leave();
  // All steps are done here. True: at every rank; false: training must stop, because somebody is
  // gone who was not done. Nothing after `limit`.
  std::optional<bool> finish(base::Duration limit);
  // As a tool asks: "status" (one object of JSON), "move RANK...", "remove RANK...", "grow COUNT",
  // "end".
  base::Result<std::string> ask(const std::string& question, base::Duration limit);

 private:
  class Impl;
  explicit Job(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::runtime
