// SPDX-License-Identifier: Apache-2.0
//
// The operations of include/spillway/spillway.h: every function says what it is, and submit() does
// the rest.
#include <unistd.h>

#include <cstddef>

#include "capi/comm.h"
#include "capi/last_error.h"
#include "capi/operation_call.h"
#include "capi/request.h"
#include "capi/sized_struct.h"

using spillway::capi::CallbackCall;
using spillway::capi::fail;
using spillway::capi::OperationCall;
using spillway::collective::Kind;

namespace {

std::shared_ptr<CallbackCall> callback_of(const spillway_operation_options& options) {
  return options.callback == nullptr
             ? nullptr
             : std::make_shared<CallbackCall>(options.callback, options.context);
}

// Waits for it if the caller does not want to.
spillway_status hand_over(std::unique_ptr<spillway_request> made, spillway_request** request) {
  if (request != nullptr) {
    *request = made.release();
    return SPILLWAY_OK;
  }
  const spillway::base::Status status = *made->wait(std::nullopt);
  return status.ok() ? SPILLWAY_OK : fail(status);
}

spillway_status start(spillway_comm* comm, const OperationCall& call,
                      const spillway_operation_options& options, spillway_request** request) {
  auto operation = spillway::capi::operation_options_from(call, options);
  if (!operation.ok()) {
    return fail(operation.status());
  }
  auto made = std::make_unique<spillway_request>();
  made->process = ::getpid();
  made->callback = callback_of(options);
  if (made->callback) {
    operation.value().on_done = [callback = made->callback](const spillway::base::Status& status) {
      callback->run(status);
    };
  }
  auto submitted = comm->communicator->submit(*operation);
  if (!submitted.ok()) {
    return fail(submitted.status());
  }
  made->operation = std::move(submitted).value();
  return hand_over(std::move(made), request);
}

spillway_status submit(spillway_comm* comm, const OperationCall& call,
                       const spillway_operation_options* given, spillway_request** request) {
  if (comm == nullptr) {
    return fail(SPILLWAY_INVALID_ARGUMENT, "comm is NULL");
  }
  return spillway::capi::guarded([&] {
    const auto options = spillway::capi::read_options(given);
    return options.ok() ? start(comm, call, *options, request) : fail(options.status());
  });
}

}  // namespace

void spillway_operation_options_init_sized(spillway_operation_options* options, size_t size) {
  spillway::capi::init_sized(spillway::capi::default_operation_options(), options, size);
}

void(spillway_operation_options_init)(spillway_operation_options* options) {
  constexpr std::size_t kFirstSize =
      offsetof(spillway_operation_options, context) + sizeof(options->context);
  spillway_operation_options_init_sized(options, kFirstSize);
}

spillway_status spillway_all_reduce(spillway_comm* comm, const void* send, void* receive,
                                    size_t count, spillway_data_type type, spillway_reduction op,
                                    const spillway_operation_options* options,
                                    spillway_request** request) {
  return submit(comm, {Kind::kAllReduce, send, receive, count, type, op}, options, request);
}

spillway_status spillway_reduce_scatter(spillway_comm* comm, const void* send, void* receive,
                                        size_t count, spillway_data_type type,
                                        spillway_reduction op,
                                        const spillway_operation_options* options,
                                        spillway_request** request) {
  return submit(comm, {Kind::kReduceScatter, send, receive, count, type, op}, options, request);
}

spillway_status spillway_all_gather(spillway_comm* comm, const void* send, void* receive,
                                    size_t count, spillway_data_type type,
                                    const spillway_operation_options* options,
                                    spillway_request** request) {
  return submit(comm, {Kind::kAllGather, send, receive, count, type}, options, request);
}

spillway_status spillway_broadcast(spillway_comm* comm, const void* send, void* receive,
                                   size_t count, spillway_data_type type, uint32_t root,
                                   const spillway_operation_options* options,
                                   spillway_request** request) {
  return submit(comm, {Kind::kBroadcast, send, receive, count, type, SPILLWAY_SUM, root}, options,
                request);
}

spillway_status spillway_reduce(spillway_comm* comm, const void* send, void* receive, size_t count,
                                spillway_data_type type, spillway_reduction op, uint32_t root,
                                const spillway_operation_options* options,
                                spillway_request** request) {
  return submit(comm, {Kind::kReduce, send, receive, count, type, op, root}, options, request);
}

spillway_status spillway_gather(spillway_comm* comm, const void* send, void* receive, size_t count,
                                spillway_data_type type, uint32_t root,
                                const spillway_operation_options* options,
                                spillway_request** request) {
  return submit(comm, {Kind::kGather, send, receive, count, type, SPILLWAY_SUM, root}, options,
                request);
}

spillway_status spillway_scatter(spillway_comm* comm, const void* send, void* receive, size_t count,
                                 spillway_data_type type, uint32_t root,
                                 const spillway_operation_options* options,
                                 spillway_request** request) {
  return submit(comm, {Kind::kScatter, send, receive, count, type, SPILLWAY_SUM, root}, options,
                request);
}

spillway_status spillway_all_to_all(spillway_comm* comm, const void* send, void* receive,
                                    size_t count, spillway_data_type type,
                                    const spillway_operation_options* options,
                                    spillway_request** request) {
  return submit(comm, {Kind::kAllToAll, send, receive, count, type}, options, request);
}

spillway_status spillway_barrier(spillway_comm* comm, const spillway_operation_options* options,
                                 spillway_request** request) {
  return submit(comm, {Kind::kBarrier}, options, request);
}

spillway_status spillway_send(spillway_comm* comm, const void* send, size_t count,
                              spillway_data_type type, uint32_t to,
                              const spillway_operation_options* options,
                              spillway_request** request) {
  return submit(comm, {Kind::kSend, send, nullptr, count, type, SPILLWAY_SUM, to}, options,
                request);
}

spillway_status spillway_receive(spillway_comm* comm, void* receive, size_t count,
                                 spillway_data_type type, uint32_t from,
                                 const spillway_operation_options* options,
                                 spillway_request** request) {
  return submit(comm, {Kind::kReceive, nullptr, receive, count, type, SPILLWAY_SUM, from}, options,
                request);
}
