// SPDX-License-Identifier: Apache-2.0
//
// One process's membership in an elastic job. The members may change between two steps; each change
// starts an epoch with its own communicators.
//
//   auto job = Job::found(communicator, config);      // by all ranks; the last become standbys
//   for (step = ...) {
//     if (job->step(step, work) == Verdict::kStop)    // a rank is lost, or a change was requested
//       change = job->park(position, limit);          // waits while stopped; returns the decision
//     comm = job->communicator(channel, ranks);       // for the new epoch, without a round trip
//   }
//
// Watched communicators (watch()) are aborted the moment training must stop, so no rank waits in an
// operation for a lost rank. Members agree through membership::Member, over their own streams
// (mesh.h). Each process opens its sockets for the next epoch in advance, and the decision carries
// their addresses, so connecting takes no round trip.
//
// Threads: the job has its own thread for streams and agreement. The application calls step(),
// park() and communicator() from one thread at a time, the rest from any. Every wait has a limit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "comm/communicator.h"
#include "elastic/job_query.h"
#include "elastic/membership/member.h"

namespace spillway::elastic {

// Communicators per epoch: the application's groups, a hook's, and so on.
inline constexpr std::uint16_t kMaxChannels = 8;

struct JobConfig {
  std::uint16_t standbys = 0;  // number of founders, from the last, that become standbys
  std::uint16_t channels = 1;
  comm::CommunicatorConfig
      communicator{};  // for every epoch; its identity and meeting place are ignored
  membership::MemberConfig membership{};
  std::string ticket_file{};  // rank 0 of each epoch writes its ticket here; empty: no file
};

enum class Verdict : std::uint8_t {
  kGo,
  kStop,  // call park()
};

// A decision of the members, as this process sees it.
struct Change {
  membership::Outcome outcome = membership::Outcome::kContinues;
  std::uint32_t epoch = 0;
  std::optional<std::uint16_t> rank{};  // unset: a standby, or no longer a member
  std::uint16_t world = 0;
  std::uint64_t step = 0;                // the step at which all ranks resume
  std::vector<std::uint32_t> sources{};  // ranks that have that step's state
  std::string why{};
  bool is_done = false;  // the job ends because all steps are done
  // Wall-clock times: told to stop, parked, and informed of the decision.
  std::int64_t interrupted_ns = 0;
  std::int64_t parked_ns = 0;
  std::int64_t decided_ns = 0;
};

class Job {
 public:
  // All ranks of a communicator must call it; it returns once each has a stream to every other. All
  // but the standbys become the ranks of epoch 1, which first_change() describes.
  static base::Result<std::unique_ptr<Job>> found(comm::Communicator& communicator,
                                                  const JobConfig& config);
  // For a process that comes later. It becomes a standby.
  static base::Result<std::unique_ptr<Job>> join(const Ticket& ticket, const JobConfig& config);
  ~Job();

  const Ticket& ticket() const;
  // Set only for founders.
  std::optional<Change> first_change() const;

  // Announces that a step begins. `work`: this rank's own time for the step before.
  Verdict step(std::uint64_t step, base::Duration work);
  // True if training must stop at once.
  bool is_interrupted() const;
  // The communicator is aborted when training must stop. The job does not keep it alive.
  void watch(std::weak_ptr<comm::Communicator> communicator);

  // Call it once training has stopped. Returns the decision, or nullopt after `limit`; then it may
  // be called again. A standby gets a result only when it becomes a rank or is dismissed.
  base::Result<std::optional<Change>> park(const membership::Position& position,
                                           base::Duration limit);
  // A communicator of the last change's epoch, among the named ranks, which must include this one.
  // All of them must call it with the same ranks. Each channel works once per epoch.
  base::Result<std::unique_ptr<comm::Communicator>> communicator(
      std::uint16_t channel, std::span<const std::uint16_t> ranks);

  // Leaves the job. Waits for no other member.
  void leave();
  // Announces that this rank has done all steps. True: so have all ranks. False: training must
  // stop, because a rank left before it was done. nullopt after `limit`.
  std::optional<bool> finish(base::Duration limit);
  // Questions as a tool asks them: "status" (answered by a JSON object), "move RANK...", "remove
  // RANK...", "grow COUNT", "end".
  base::Result<std::string> ask(const std::string& question, base::Duration limit);

 private:
  class Impl;
  explicit Job(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::elastic
