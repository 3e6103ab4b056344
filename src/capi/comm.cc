// SPDX-License-Identifier: Apache-2.0
//
// spillway_unique_id_* and spillway_comm_* of include/spillway/spillway.h.
#include "capi/comm.h"

#include <cstddef>
#include <cstring>

#include "capi/comm_config.h"
#include "capi/last_error.h"
#include "capi/sized_struct.h"
#include "runtime/interfaces.h"
#include "runtime/unique_id.h"

using spillway::capi::fail;
using spillway::capi::guarded;
using spillway::runtime::Communicator;
using spillway::runtime::CommunicatorOptions;
using spillway::runtime::Environment;
using spillway::runtime::UniqueId;

namespace {

spillway_status missing(const char* argument) {
  return fail(SPILLWAY_INVALID_ARGUMENT, std::string(argument) + " is NULL");
}

// At an address of this host that others can reach.
spillway::base::Result<UniqueId> make_unique_id() {
  const auto choice =
      spillway::runtime::interface_choice(Environment::of_process(), /*one_machine=*/false);
  if (!choice.ok()) {
    return choice.status();
  }
  const auto interfaces = spillway::runtime::interfaces_of_host();
  if (!interfaces.ok()) {
    return interfaces.status();
  }
  const auto interface = spillway::runtime::choose_interface(*interfaces, *choice);
  if (!interface.ok()) {
    return interface.status();
  }
  return spillway::runtime::create_unique_id(interface->address);
}

}  // namespace

spillway_status spillway_unique_id_create(spillway_unique_id* id) {
  if (id == nullptr) {
    return missing("id");
  }
  return guarded([&] {
    const spillway::base::Result<UniqueId> made = make_unique_id();
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
    spillway::runtime::discard_unique_id(given);
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
    const spillway::base::Result<CommunicatorOptions> options =
        spillway::capi::communicator_options_from(config, Environment::of_process());
    if (!options.ok()) {
      return fail(options.status());
    }
    spillway::base::Result<std::unique_ptr<Communicator>> made = Communicator::create(*options);
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
