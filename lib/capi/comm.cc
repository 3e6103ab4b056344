// SPDX-License-Identifier: Apache-2.0
#include "capi/handles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>

#include "comm/rendezvous/rendezvous.h"

namespace spillway::capi {
namespace {

constexpr std::int64_t kNanosecondsPerMillisecond = 1'000'000;

std::uint32_t in_milliseconds(base::Duration duration) {
  return static_cast<std::uint32_t>(duration.count() / kNanosecondsPerMillisecond);
}

// 0, as in a zeroed struct, leaves the choice to the runtime.
std::optional<base::Duration> duration_of(std::uint32_t ms) {
  return ms == 0 ? std::nullopt : std::optional(base::milliseconds(ms));
}

base::Status check(const spillway_comm_config& config) {
  if ((config.rank < 0) != (config.world < 0) || config.rank < -1 || config.world < -1) {
    return base::invalid_argument(
        fmt::format("rank {} of {}: set both, or both to -1 for what the environment says",
                    config.rank, config.world));
  }
  if (config.rank >= 0 && config.id == nullptr) {
    return base::invalid_argument(
        "a rank given by hand needs an id (spillway_unique_id_create) by which the ranks meet; "
        "without one, leave rank and world at -1 and set SPILLWAY_RANK, SPILLWAY_WORLD_SIZE and "
        "SPILLWAY_COMM_ID");
  }
  if (config.trim_bytes < -1 || config.threads < -1 || config.servers < -1) {
    return base::invalid_argument("trim_bytes, threads and servers are -1, 0 or more");
  }
  if (config.servers >= static_cast<std::int32_t>(launch::kMaxRanks)) {
    return base::invalid_argument(fmt::format("{} servers are too many: there may be {} ranks",
                                              config.servers, launch::kMaxRanks));
  }
  if (config.link_rate > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return base::invalid_argument(
        fmt::format("no link has a rate of {} bits per second", config.link_rate));
  }
  if (config.trimmed_target_ppm < -1) {
    return base::invalid_argument("trimmed_target_ppm is -1, 0 or more");
  }
  if (config.secret == nullptr && config.secret_size != 0) {
    return base::invalid_argument("secret_size is set but secret is NULL");
  }
  return {};
}

base::Result<comm::RankOfWorld> member_from(const spillway_comm_config& config,
                                            const base::Environment& environment) {
  if (config.rank >= 0) {
    return comm::RankOfWorld{static_cast<std::uint32_t>(config.rank),
                             static_cast<std::uint32_t>(config.world)};
  }
  // Ignores SPILLWAY_SERVERS: those servers do not know this id.
  const base::Result<launch::Launch> launch =
      launch::launch_from_environment(environment, /*servers=*/0);
  if (!launch.ok()) {
    return launch.status();
  }
  return comm::RankOfWorld{launch->rank, launch->world};
}

void take_network(const spillway_comm_config& config, comm::CommunicatorConfig& made) {
  if (config.link_rate != 0) {
    made.link_rate = base::bits_per_second(static_cast<std::int64_t>(config.link_rate));
  }
  if (config.mtu != 0) {
    made.mtu = config.mtu;
  }
  if (config.trim_bytes >= 0) {
    made.trim_bytes = static_cast<unsigned>(config.trim_bytes);
  }
  if (config.threads >= 0) {
    made.threads = static_cast<unsigned>(config.threads);
  }
  if (config.trimmed_target_ppm >= 0) {
    made.trimmed_target = config.trimmed_target_ppm / 1e6;
  }
}

base::Status take_identity(const spillway_comm_config& config, const base::Environment& environment,
                           comm::CommunicatorConfig& made) {
  if (config.id == nullptr) {
    return {};
  }
  const base::Result<comm::RankOfWorld> member = member_from(config, environment);
  if (!member.ok()) {
    return member.status();
  }
  made.member = *member;
  std::memcpy(made.id.emplace().bytes.data(), config.id->bytes, sizeof(config.id->bytes));
  return {};
}

}  // namespace

spillway_comm_config default_comm_config() {
  const comm::CommunicatorConfig made;
  spillway_comm_config config{};
  config.size = sizeof(config);
  config.rank = -1;
  config.world = -1;
  config.trim_bytes = -1;
  config.threads = -1;
  config.servers = -1;
  config.trimmed_target_ppm = -1;
  config.operation_timeout_ms = in_milliseconds(made.operation_timeout);
  return config;
}

base::Result<comm::CommunicatorConfig> communicator_config_from(
    const spillway_comm_config* given, const base::Environment& environment) {
  const base::Result<spillway_comm_config> config =
      read_sized(given, default_comm_config(), "spillway_comm_config");
  if (!config.ok()) {
    return config.status();
  }
  if (base::Status status = check(*config); !status.ok()) {
    return status;
  }
  comm::CommunicatorConfig made;
  if (base::Status status = take_identity(*config, environment, made); !status.ok()) {
    return status;
  }
  take_network(*config, made);
  if (config->servers >= 0) {
    made.servers = static_cast<std::uint16_t>(config->servers);
  }
  if (config->name != nullptr) {
    made.name = config->name;
  }
  if (config->secret != nullptr) {
    made.secret = launch::Secret(base::ByteView(config->secret, config->secret_size));
  }
  made.peer_timeout = duration_of(config->peer_timeout_ms);
  made.rendezvous_patience = duration_of(config->rendezvous_timeout_ms);
  made.operation_timeout =
      duration_of(config->operation_timeout_ms).value_or(made.operation_timeout);
  return made;
}

namespace {

template <std::size_t kSize>
void copy_text(const std::string& text, char (&out)[kSize]) {
  std::memcpy(out, text.data(), std::min(text.size(), kSize - 1));
}

spillway_launch launch_from(const launch::LaunchOutline& outline) {
  const launch::RankPosition& position = outline.position;
  spillway_launch launch{};
  launch.rank = position.rank;
  launch.world = position.world;
  launch.local_rank = position.is_local_known ? position.local_rank : -1;
  launch.local_world = position.is_local_known ? position.local_world : -1;
  launch.port = outline.store.port;
  copy_text(outline.launcher, launch.launcher);
  copy_text(outline.store.host, launch.host);
  return launch;
}

base::Status read_launch(spillway_launch* given) {
  const base::Result<std::optional<launch::LaunchOutline>> outline =
      launch::outline_of_launch(base::Environment::of_process());
  if (!outline.ok()) {
    return outline.status();
  }
  if (!outline->has_value()) {
    return {base::StatusCode::kUnavailable, "no launcher has set a rank"};
  }
  return write_sized(launch_from(**outline), given, "spillway_launch");
}

}  // namespace
}  // namespace spillway::capi

// spillway_launch_read, spillway_unique_id_* and spillway_comm_* of include/spillway/spillway.h.
using spillway::base::Environment;
using spillway::capi::fail;
using spillway::capi::guarded;
using spillway::capi::missing;
using spillway::comm::Communicator;
using spillway::comm::CommunicatorConfig;
using spillway::comm::UniqueId;

spillway_status spillway_launch_read(spillway_launch* launch) {
  return guarded([&] {
    const spillway::base::Status status = spillway::capi::read_launch(launch);
    return status.ok() ? SPILLWAY_OK : fail(status);
  });
}

spillway_status spillway_unique_id_create(spillway_unique_id* id) {
  if (id == nullptr) {
    return missing("id");
  }
  return guarded([&] {
    const spillway::base::Result<UniqueId> made = spillway::comm::create_reachable_unique_id();
    if (!made.ok()) {
      return fail(made.status());
    }
    std::memcpy(id->bytes, made->bytes.data(), sizeof(id->bytes));
    return SPILLWAY_OK;
  });
}

void spillway_unique_id_discard(const spillway_unique_id* id) {
  if (id != nullptr) {
    UniqueId given;
    std::memcpy(given.bytes.data(), id->bytes, sizeof(id->bytes));
    spillway::comm::discard_unique_id(given);
  }
}

void spillway_comm_config_init_sized(spillway_comm_config* config, size_t size) {
  spillway::capi::init_sized(spillway::capi::default_comm_config(), config, size);
}

void(spillway_comm_config_init)(spillway_comm_config* config) {
  constexpr std::size_t kFirstSize = offsetof(spillway_comm_config, servers);
  spillway_comm_config_init_sized(config, kFirstSize);
}

spillway_status spillway_comm_create(const spillway_comm_config* config, spillway_comm** comm) {
  if (comm == nullptr) {
    return missing("comm");
  }
  return guarded([&] {
    const spillway::base::Result<CommunicatorConfig> read =
        spillway::capi::communicator_config_from(config, Environment::of_process());
    if (!read.ok()) {
      return fail(read.status());
    }
    spillway::base::Result<std::unique_ptr<Communicator>> made = Communicator::create(*read);
    if (!made.ok()) {
      return fail(made.status());
    }
    *comm = new spillway_comm{std::move(made).value()};
    return SPILLWAY_OK;
  });
}

void spillway_comm_free(spillway_comm* comm) {
  delete comm;
}

uint32_t spillway_comm_rank(const spillway_comm* comm) {
  return comm == nullptr ? 0 : comm->communicator->rank();
}

uint32_t spillway_comm_world(const spillway_comm* comm) {
  return comm == nullptr ? 0 : comm->communicator->world();
}

spillway_status spillway_comm_abort(spillway_comm* comm, const char* why) {
  if (comm == nullptr) {
    return missing("comm");
  }
  return guarded([&] {
    const spillway::base::Status status =
        comm->communicator->abort(why == nullptr ? "no reason was given" : why);
    return status.ok() ? SPILLWAY_OK : fail(status);
  });
}

spillway_status spillway_comm_error(const spillway_comm* comm) {
  if (comm == nullptr) {
    return missing("comm");
  }
  return guarded([&] {
    const spillway::base::Status health = comm->communicator->health();
    return health.ok() ? SPILLWAY_OK : fail(health);
  });
}
