// SPDX-License-Identifier: Apache-2.0
//
// spillway_job_* of include/spillway/spillway.h.
#include <fmt/format.h>
#include <spillway/spillway.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "capi/handles.h"
#include "elastic/job.h"
#include "launch/launch.h"

struct spillway_job {
  std::unique_ptr<spillway::elastic::Job> job;
  std::optional<spillway::elastic::Change> last{};  // last change that the caller got
};

namespace spillway::capi {
namespace {

static_assert(SPILLWAY_MAX_CHANNELS == elastic::kMaxChannels);

constexpr double kPercent = 100.0;

spillway_job_config default_job_config() {
  const membership::MemberConfig made;
  spillway_job_config config{};
  config.size = sizeof(config);
  config.channels = 1;
  config.min_ranks = made.size.min_ranks;
  config.may_grow = made.size.may_grow ? 1 : 0;
  config.park_limit_ms = static_cast<std::uint32_t>(made.park_limit.count() / 1'000'000);
  config.straggler_percent = static_cast<std::uint32_t>(made.straggler_factor * kPercent);
  return config;
}

base::Status check(const spillway_job_config& config) {
  if (config.channels == 0 || config.channels > SPILLWAY_MAX_CHANNELS) {
    return base::invalid_argument(
        fmt::format("a job has 1 to {} channels, not {}", SPILLWAY_MAX_CHANNELS, config.channels));
  }
  if (config.standbys >= launch::kMaxRanks || config.min_ranks == 0) {
    return base::invalid_argument("standbys must be fewer than ranks can be, min_ranks 1 or more");
  }
  if (config.straggler_percent <= kPercent) {
    return base::invalid_argument(
        "straggler_percent must be above 100: half of the ranks take longer than the median");
  }
  return {};
}

base::Result<elastic::JobConfig> job_config_from(const spillway_job_config* given) {
  const base::Result<spillway_job_config> config =
      read_sized(given, default_job_config(), "spillway_job_config");
  if (!config.ok()) {
    return config.status();
  }
  if (base::Status status = check(*config); !status.ok()) {
    return status;
  }
  const base::Environment environment = base::Environment::of_process();
  spillway_comm_config comm = default_comm_config();
  if (config->comm != nullptr) {
    const base::Result<spillway_comm_config> read =
        read_sized(config->comm, comm, "spillway_comm_config");
    if (!read.ok()) {
      return read.status();
    }
    comm = *read;
    comm.id = nullptr;
    comm.rank = comm.world = -1;
  }
  const base::Result<comm::CommunicatorConfig> communicator =
      communicator_config_from(&comm, environment);
  if (!communicator.ok()) {
    return communicator.status();
  }
  const base::Result<launch::Timeouts> timeouts =
      launch::timeouts_from(environment, {communicator->peer_timeout, std::nullopt});
  if (!timeouts.ok()) {
    return timeouts.status();
  }
  elastic::JobConfig made;
  made.standbys = static_cast<std::uint16_t>(config->standbys);
  made.channels = static_cast<std::uint16_t>(config->channels);
  made.communicator = *communicator;
  made.membership.silence =
      config->silence_ms == 0 ? timeouts->peer : base::milliseconds(config->silence_ms);
  made.membership.park_limit = base::milliseconds(config->park_limit_ms);
  made.membership.size.may_shrink = config->may_shrink != 0;
  made.membership.size.min_ranks = config->min_ranks;
  made.membership.size.may_grow = config->may_grow != 0;
  made.membership.straggler_factor = config->straggler_percent / kPercent;
  made.membership.replace_stragglers = config->replace_stragglers != 0;
  made.ticket_file =
      config->ticket_file != nullptr ? config->ticket_file : environment.text("SPILLWAY_JOB_FILE");
  return made;
}

spillway_job_change change_from(const elastic::Change& change) {
  spillway_job_change made{};
  made.ends = change.outcome == membership::Outcome::kEnds ? 1 : 0;
  made.epoch = change.epoch;
  made.rank = change.rank ? static_cast<std::int32_t>(*change.rank) : -1;
  made.world = change.world;
  made.step = change.step;
  made.sources = static_cast<std::uint32_t>(change.sources.size());
  made.is_done = change.is_done ? 1 : 0;
  made.interrupted_ns = change.interrupted_ns;
  made.parked_ns = change.parked_ns;
  made.decided_ns = change.decided_ns;
  std::memcpy(made.why, change.why.data(), std::min(change.why.size(), sizeof(made.why) - 1));
  return made;
}

spillway_status tell(spillway_job& job, const elastic::Change& change, spillway_job_change* out) {
  const base::Status status = write_sized(change_from(change), out, "spillway_job_change");
  if (!status.ok()) {
    return fail(status);
  }
  job.last = change;
  return SPILLWAY_OK;
}

spillway_status put_text(const std::string& text, char* out, std::size_t size) {
  if (text.size() >= size) {
    return fail(SPILLWAY_LIMIT_EXCEEDED,
                fmt::format("the text has {} bytes: give room for one more", text.size()));
  }
  std::memcpy(out, text.c_str(), text.size() + 1);
  return SPILLWAY_OK;
}

template <typename Make>
spillway_status make_job(const spillway_job_config* config, spillway_job** job, Make&& make) {
  return guarded([&] {
    const base::Result<elastic::JobConfig> read = job_config_from(config);
    if (!read.ok()) {
      return fail(read.status());
    }
    base::Result<std::unique_ptr<elastic::Job>> made = make(*read);
    if (!made.ok()) {
      return fail(made.status());
    }
    *job = new spillway_job{std::move(made).value(), {}};
    (*job)->last = (*job)->job->first_change();
    return SPILLWAY_OK;
  });
}

// The named ranks, checked against the last change; all of its ranks if none are named.
base::Result<std::vector<std::uint16_t>> ranks_of(const spillway_job& job, const uint32_t* ranks,
                                                  uint32_t count) {
  if (!job.last || !job.last->rank) {
    return base::invalid_argument("a standby has no communicators: it waits in spillway_job_park");
  }
  std::vector<std::uint16_t> chosen(count == 0 ? job.last->world : count);
  if (count == 0) {
    std::iota(chosen.begin(), chosen.end(), std::uint16_t{0});
    return chosen;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (ranks[i] >= job.last->world) {
      return base::invalid_argument(
          fmt::format("there is no rank {} of {}", ranks[i], job.last->world));
    }
    chosen[i] = static_cast<std::uint16_t>(ranks[i]);
  }
  return chosen;
}

}  // namespace
}  // namespace spillway::capi

using spillway::capi::fail;
using spillway::capi::guarded;
using spillway::capi::missing;

void spillway_job_config_init_sized(spillway_job_config* config, size_t size) {
  spillway::capi::init_sized(spillway::capi::default_job_config(), config, size);
}

spillway_status spillway_job_found(spillway_comm* comm, const spillway_job_config* config,
                                   spillway_job** job) {
  if (comm == nullptr || job == nullptr) {
    return missing(comm == nullptr ? "comm" : "job");
  }
  return spillway::capi::make_job(config, job, [&](const spillway::elastic::JobConfig& read) {
    return spillway::elastic::Job::found(*comm->communicator, read);
  });
}

spillway_status spillway_job_join(const char* ticket, const spillway_job_config* config,
                                  spillway_job** job) {
  if (ticket == nullptr || job == nullptr) {
    return missing(ticket == nullptr ? "ticket" : "job");
  }
  return spillway::capi::make_job(
      config, job,
      [&](const spillway::elastic::JobConfig& read)
          -> spillway::base::Result<std::unique_ptr<spillway::elastic::Job>> {
        const auto parsed = spillway::elastic::parse_ticket(ticket);
        return parsed.ok() ? spillway::elastic::Job::join(*parsed, read) : parsed.status();
      });
}

void spillway_job_free(spillway_job* job) {
  delete job;
}

spillway_status spillway_job_ticket(const spillway_job* job, char* text, size_t size) {
  if (job == nullptr || text == nullptr) {
    return missing(job == nullptr ? "job" : "text");
  }
  return guarded(
      [&] { return spillway::capi::put_text(job->job->ticket().to_string(), text, size); });
}

spillway_status spillway_job_first_change(const spillway_job* job, spillway_job_change* change) {
  if (job == nullptr) {
    return missing("job");
  }
  return guarded([&] {
    const auto first = job->job->first_change();
    if (!first) {
      return fail(SPILLWAY_UNAVAILABLE, "this process joined later: it begins with parking");
    }
    const auto status = spillway::capi::write_sized(spillway::capi::change_from(*first), change,
                                                    "spillway_job_change");
    return status.ok() ? SPILLWAY_OK : fail(status);
  });
}

spillway_status spillway_job_step(spillway_job* job, uint64_t step, uint64_t work_us,
                                  int* must_stop) {
  if (job == nullptr || must_stop == nullptr) {
    return missing(job == nullptr ? "job" : "must_stop");
  }
  return guarded([&] {
    const auto verdict =
        job->job->step(step, spillway::base::microseconds(static_cast<std::int64_t>(work_us)));
    *must_stop = verdict == spillway::elastic::Verdict::kStop ? 1 : 0;
    return SPILLWAY_OK;
  });
}

int spillway_job_interrupted(const spillway_job* job) {
  return job != nullptr && job->job->is_interrupted() ? 1 : 0;
}

spillway_status spillway_job_park(spillway_job* job, const spillway_job_position* position,
                                  uint32_t timeout_ms, spillway_job_change* change) {
  if (job == nullptr || position == nullptr) {
    return missing(job == nullptr ? "job" : "position");
  }
  return guarded([&] {
    spillway_job_position defaults{};
    defaults.size = sizeof(defaults);
    const auto read = spillway::capi::read_sized(position, defaults, "spillway_job_position");
    if (!read.ok()) {
      return fail(read.status());
    }
    const auto parked = job->job->park(
        {.has_state = read->has_state != 0, .step = read->step, .is_warm = read->is_warm != 0},
        spillway::base::milliseconds(timeout_ms));
    if (!parked.ok()) {
      return fail(parked.status());
    }
    if (!parked->has_value()) {
      return fail(SPILLWAY_IN_PROGRESS, "the members have not agreed yet");
    }
    return spillway::capi::tell(*job, **parked, change);
  });
}

spillway_status spillway_job_sources(const spillway_job* job, uint32_t* ranks, uint32_t count) {
  if (job == nullptr || ranks == nullptr) {
    return missing(job == nullptr ? "job" : "ranks");
  }
  if (job->last) {
    std::copy_n(job->last->sources.begin(), std::min<std::size_t>(count, job->last->sources.size()),
                ranks);
  }
  return SPILLWAY_OK;
}

spillway_status spillway_job_comm(spillway_job* job, uint32_t channel, const uint32_t* ranks,
                                  uint32_t count, spillway_comm** comm) {
  if (job == nullptr || comm == nullptr || (ranks == nullptr && count > 0)) {
    return missing(job == nullptr ? "job" : comm == nullptr ? "comm" : "ranks");
  }
  return guarded([&] {
    const auto chosen = spillway::capi::ranks_of(*job, ranks, count);
    if (!chosen.ok()) {
      return fail(chosen.status());
    }
    auto made =
        job->job->communicator(static_cast<std::uint16_t>(std::min(channel, 65535U)), *chosen);
    if (!made.ok()) {
      return fail(made.status());
    }
    auto shared = std::shared_ptr<spillway::comm::Communicator>(std::move(made).value());
    job->job->watch(shared);
    *comm = new spillway_comm{std::move(shared)};
    return SPILLWAY_OK;
  });
}

spillway_status spillway_job_finish(spillway_job* job, uint32_t timeout_ms, int* is_done) {
  if (job == nullptr || is_done == nullptr) {
    return missing(job == nullptr ? "job" : "is_done");
  }
  return guarded([&] {
    const auto known = job->job->finish(spillway::base::milliseconds(timeout_ms));
    if (!known) {
      return fail(SPILLWAY_IN_PROGRESS, "other ranks are not done yet");
    }
    *is_done = *known ? 1 : 0;
    return SPILLWAY_OK;
  });
}

spillway_status spillway_job_leave(spillway_job* job) {
  if (job == nullptr) {
    return missing("job");
  }
  return guarded([&] {
    job->job->leave();
    return SPILLWAY_OK;
  });
}

spillway_status spillway_job_ask(spillway_job* job, const char* question, uint32_t timeout_ms,
                                 char* answer, size_t size) {
  if (job == nullptr || question == nullptr || answer == nullptr) {
    return missing(job == nullptr ? "job" : question == nullptr ? "question" : "answer");
  }
  return guarded([&] {
    const auto text = job->job->ask(question, spillway::base::milliseconds(timeout_ms));
    return text.ok() ? spillway::capi::put_text(*text, answer, size) : fail(text.status());
  });
}
