// SPDX-License-Identifier: Apache-2.0
//
// The operations of include/spillway/spillway.h. Each call becomes a collective::Operation, the one
// description for all layers below; Communicator::submit() checks it. Arguments are accepted or
// refused with a message.
#include <fmt/format.h>
#include <spillway/spillway.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "base/status.h"
#include "capi/handles.h"
#include "collective/capabilities.h"
#include "comm/communicator.h"
#include "gpu/cuda_tensor.h"

namespace spillway::capi {
namespace {

using collective::Algorithm;
using collective::Codec;
using collective::DataType;
using collective::Kind;
using collective::Operation;
using collective::ReduceOp;

static_assert(SPILLWAY_FLOAT32 == static_cast<int>(DataType::kFloat32) &&
              SPILLWAY_FLOAT64 == static_cast<int>(DataType::kFloat64) &&
              SPILLWAY_FLOAT16 == static_cast<int>(DataType::kFloat16) &&
              SPILLWAY_BFLOAT16 == static_cast<int>(DataType::kBfloat16) &&
              SPILLWAY_INT32 == static_cast<int>(DataType::kInt32) &&
              SPILLWAY_INT64 == static_cast<int>(DataType::kInt64) &&
              SPILLWAY_INT8 == static_cast<int>(DataType::kInt8) &&
              SPILLWAY_UINT8 == static_cast<int>(DataType::kUint8) && collective::kDataTypes == 8);
static_assert(SPILLWAY_SUM == static_cast<int>(ReduceOp::kSum) &&
              SPILLWAY_AVERAGE == static_cast<int>(ReduceOp::kAverage) &&
              SPILLWAY_MIN == static_cast<int>(ReduceOp::kMin) &&
              SPILLWAY_MAX == static_cast<int>(ReduceOp::kMax) &&
              SPILLWAY_PRODUCT == static_cast<int>(ReduceOp::kProduct) &&
              SPILLWAY_BIT_AND == static_cast<int>(ReduceOp::kBitAnd) &&
              SPILLWAY_BIT_OR == static_cast<int>(ReduceOp::kBitOr) &&
              SPILLWAY_BIT_XOR == static_cast<int>(ReduceOp::kBitXor) &&
              collective::kReduceOps == 8);
enum class Memory : std::uint8_t { kHost, kCuda };
constexpr std::size_t kMemories = 2;
static_assert(SPILLWAY_MEMORY_HOST == static_cast<int>(Memory::kHost) &&
              SPILLWAY_MEMORY_CUDA == static_cast<int>(Memory::kCuda));
static_assert(SPILLWAY_MAX_TAG == collective::kMaxTag);
static_assert(SPILLWAY_ALGORITHM_AUTOMATIC == static_cast<int>(Algorithm::kAutomatic) &&
              SPILLWAY_ALGORITHM_DIRECT == static_cast<int>(Algorithm::kDirect) &&
              SPILLWAY_ALGORITHM_RING == static_cast<int>(Algorithm::kRing) &&
              SPILLWAY_ALGORITHM_TREE == static_cast<int>(Algorithm::kTree) &&
              SPILLWAY_ALGORITHM_SERVERS == static_cast<int>(Algorithm::kServers) &&
              SPILLWAY_ALGORITHM_HIERARCHICAL == static_cast<int>(Algorithm::kHierarchical) &&
              SPILLWAY_ALGORITHM_SWITCH == static_cast<int>(Algorithm::kSwitch) &&
              collective::kAlgorithms == 7);
static_assert(SPILLWAY_CODEC_PLANES == static_cast<int>(Codec::kPlanes) &&
              SPILLWAY_CODEC_LEVELS == static_cast<int>(Codec::kLevels) &&
              SPILLWAY_CODEC_BLOCKS == static_cast<int>(Codec::kBlocks) &&
              SPILLWAY_CODEC_ENTROPY == static_cast<int>(Codec::kEntropy) &&
              SPILLWAY_CODEC_SKETCH == static_cast<int>(Codec::kSketch) &&
              collective::kCodecs == 5);

// Narrows a number to the core's type. A number that does not fit becomes the largest value, which
// is outside every range, so validate() refuses it.
template <typename Narrow>
Narrow narrowed(std::uint32_t number) {
  return static_cast<Narrow>(std::min<std::uint32_t>(number, std::numeric_limits<Narrow>::max()));
}

// Larger than any device's number.
constexpr std::uint32_t kNoDevice = 1U << 16;

// The source of a receive: any rank, or one by its number.
std::uint32_t other_end(std::uint32_t from) {
  constexpr std::uint32_t kNoRank = collective::kAnyRank - 1;
  return from == SPILLWAY_ANY_RANK ? from : std::min(from, kNoRank);
}

// Converts a number to an enumerator; there are `count` of them.
template <typename Enum>
base::Status read_enum(unsigned number, std::size_t count, const char* what, Enum& out) {
  if (number >= count) {
    return base::invalid_argument(
        fmt::format("{} {} is unknown; see spillway.h", what, static_cast<int>(number)));
  }
  out = static_cast<Enum>(number);
  return {};
}

spillway_operation_options default_options() {
  const Operation operation;
  const collective::Tolerance tolerance;
  spillway_operation_options options{};
  options.size = sizeof(options);
  options.priority = operation.priority;
  options.precision = tolerance.precision;
  options.gather_precision = tolerance.gather_precision;
  options.loss_bound_ppm = tolerance.loss_bound_ppm;
  options.min_planes = tolerance.min_planes;
  options.importance = SPILLWAY_IMPORTANCE_BY_ENERGY;
  options.expendable_ppm = SPILLWAY_EXPENDABLE_AS_LOST;
  return options;
}

// The caller's options, with defaults for the rest.
base::Result<spillway_operation_options> read_options(const spillway_operation_options* given) {
  return read_sized(given, default_options(), "spillway_operation_options");
}

void take_importance(const spillway_operation_options& options, collective::Tolerance& tolerance) {
  if (options.importance != SPILLWAY_IMPORTANCE_BY_ENERGY) {
    tolerance.importance = narrowed<std::uint8_t>(options.importance);
  }
  if (options.expendable_ppm != SPILLWAY_EXPENDABLE_AS_LOST) {
    tolerance.expendable_ppm = options.expendable_ppm;
  }
}

base::Result<collective::Tolerance> tolerance_from(const spillway_operation_options& options) {
  collective::Tolerance tolerance{
      .precision = narrowed<std::uint8_t>(options.precision),
      .gather_precision = narrowed<std::uint8_t>(options.gather_precision),
      .loss_bound_ppm = options.loss_bound_ppm,
      .min_planes = narrowed<std::uint8_t>(options.min_planes),
      .feedback_tensor = options.feedback_tensor,
      .least_contributors = options.least_contributors,
      .predicts_scale = options.predicts_scale != 0};
  take_importance(options, tolerance);
  if (base::Status status = read_enum(options.codec, collective::kCodecs, "codec", tolerance.codec);
      !status.ok()) {
    return status;
  }
  return tolerance;
}

base::Status apply_options(const spillway_operation_options& options, Operation& operation) {
  operation.priority = narrowed<std::uint8_t>(options.priority);
  operation.tag = options.tag;
  operation.timeout = base::milliseconds(options.timeout_ms);
  if (options.tolerant != 0) {
    const base::Result<collective::Tolerance> tolerance = tolerance_from(options);
    if (!tolerance.ok()) {
      return tolerance.status();
    }
    operation.tolerance = *tolerance;
  }
  return read_enum(options.algorithm, collective::kAlgorithms, "algorithm", operation.algorithm);
}

// Sets operation.device if the caller's memory is on a GPU.
base::Status apply_memory(const spillway_operation_options& options, Operation& operation) {
  Memory memory = Memory::kHost;
  if (base::Status status = read_enum(options.memory, kMemories, "memory", memory);
      !status.ok() || memory == Memory::kHost) {
    return status;
  }
  base::Result<std::shared_ptr<collective::DeviceTensor>> tensor = gpu::CudaTensor::make(
      static_cast<int>(std::min(options.device, kNoDevice)), operation, options.stream);
  if (tensor.ok()) {
    operation.device = std::move(tensor).value();
  }
  return tensor.status();
}

// The operation that a C function's arguments describe, without its options. `root` is also the
// peer of a send or receive.
base::Result<Operation> described(Kind kind, const void* send, void* receive, std::size_t count,
                                  spillway_data_type type, spillway_reduction op = SPILLWAY_SUM,
                                  std::uint32_t root = 0) {
  Operation operation;
  operation.kind = kind;
  operation.count = count;
  operation.root = narrowed<std::uint16_t>(root);
  operation.input = send;
  operation.output = receive;
  if (base::Status status = read_enum(type, collective::kDataTypes, "data type", operation.type);
      !status.ok()) {
    return status;
  }
  if (base::Status status = read_enum(op, collective::kReduceOps, "reduction", operation.op);
      !status.ok()) {
    return status;
  }
  return operation;
}

// Waits for the operation if the caller takes no request.
spillway_status hand_over(std::unique_ptr<spillway_request> made, spillway_request** request) {
  if (request != nullptr) {
    *request = made.release();
    return SPILLWAY_OK;
  }
  const base::Status status = *made->wait(std::nullopt);
  return status.ok() ? SPILLWAY_OK : fail(status);
}

spillway_status start(spillway_comm* comm, const Operation& operation,
                      const spillway_operation_options& options, spillway_request** request) {
  auto made = std::make_unique<spillway_request>();
  made->process = ::getpid();
  comm::Request::Callback on_done;
  if (options.callback != nullptr) {
    made->callback = std::make_shared<CallbackCall>(options.callback, options.context);
    on_done = [callback = made->callback](const base::Status& status) { callback->run(status); };
  }
  auto submitted = comm->communicator->submit(operation, std::move(on_done));
  if (!submitted.ok()) {
    return fail(submitted.status());
  }
  made->request = std::move(submitted).value();
  return hand_over(std::move(made), request);
}

// `arguments` are those of described().
template <typename... Arguments>
spillway_status submit(spillway_comm* comm, const spillway_operation_options* given,
                       spillway_request** request, Arguments... arguments) {
  if (comm == nullptr) {
    return missing("comm");
  }
  return guarded([&] {
    base::Result<Operation> operation = described(arguments...);
    if (!operation.ok()) {
      return fail(operation.status());
    }
    const base::Result<spillway_operation_options> options = read_options(given);
    if (!options.ok()) {
      return fail(options.status());
    }
    if (base::Status status = apply_options(*options, operation.value()); !status.ok()) {
      return fail(status);
    }
    if (base::Status status = apply_memory(*options, operation.value()); !status.ok()) {
      return fail(status);
    }
    return start(comm, *operation, *options, request);
  });
}

// Checks the options as an all-reduce of floats in a world of one would.
base::Status check_options(const spillway_operation_options* given) {
  const base::Result<spillway_operation_options> options = read_options(given);
  if (!options.ok()) {
    return options.status();
  }
  Operation operation;
  if (base::Status status = apply_options(*options, operation); !status.ok()) {
    return status;
  }
  return validate(operation, {.rank = 0, .world = 1});
}

}  // namespace
}  // namespace spillway::capi

using spillway::capi::guarded;
using spillway::capi::submit;
using spillway::collective::Kind;

void spillway_operation_options_init_sized(spillway_operation_options* options, size_t size) {
  spillway::capi::init_sized(spillway::capi::default_options(), options, size);
}

void(spillway_operation_options_init)(spillway_operation_options* options) {
  constexpr std::size_t kFirstSize =
      offsetof(spillway_operation_options, context) + sizeof(options->context);
  spillway_operation_options_init_sized(options, kFirstSize);
}

spillway_status spillway_operation_options_check(const spillway_operation_options* options) {
  return guarded([&] {
    const spillway::base::Status status = spillway::capi::check_options(options);
    return status.ok() ? SPILLWAY_OK : spillway::capi::fail(status);
  });
}

const char* spillway_capabilities(void) {
  static const std::string text = spillway::collective::capabilities_json();
  return text.c_str();
}

spillway_status spillway_cuda_check(uint32_t device) {
  return guarded([&] {
    const int ordinal = static_cast<int>(std::min(device, spillway::capi::kNoDevice));
    const spillway::base::Status status = spillway::gpu::CudaCoder::of(ordinal).status();
    return status.ok() ? SPILLWAY_OK : spillway::capi::fail(status);
  });
}

spillway_status spillway_all_reduce(spillway_comm* comm, const void* send, void* receive,
                                    size_t count, spillway_data_type type, spillway_reduction op,
                                    const spillway_operation_options* options,
                                    spillway_request** request) {
  return submit(comm, options, request, Kind::kAllReduce, send, receive, count, type, op);
}

spillway_status spillway_reduce_scatter(spillway_comm* comm, const void* send, void* receive,
                                        size_t count, spillway_data_type type,
                                        spillway_reduction op,
                                        const spillway_operation_options* options,
                                        spillway_request** request) {
  return submit(comm, options, request, Kind::kReduceScatter, send, receive, count, type, op);
}

spillway_status spillway_all_gather(spillway_comm* comm, const void* send, void* receive,
                                    size_t count, spillway_data_type type,
                                    const spillway_operation_options* options,
                                    spillway_request** request) {
  return submit(comm, options, request, Kind::kAllGather, send, receive, count, type);
}

spillway_status spillway_broadcast(spillway_comm* comm, const void* send, void* receive,
                                   size_t count, spillway_data_type type, uint32_t root,
                                   const spillway_operation_options* options,
                                   spillway_request** request) {
  return submit(comm, options, request, Kind::kBroadcast, send, receive, count, type, SPILLWAY_SUM,
                root);
}

spillway_status spillway_reduce(spillway_comm* comm, const void* send, void* receive, size_t count,
                                spillway_data_type type, spillway_reduction op, uint32_t root,
                                const spillway_operation_options* options,
                                spillway_request** request) {
  return submit(comm, options, request, Kind::kReduce, send, receive, count, type, op, root);
}

spillway_status spillway_gather(spillway_comm* comm, const void* send, void* receive, size_t count,
                                spillway_data_type type, uint32_t root,
                                const spillway_operation_options* options,
                                spillway_request** request) {
  return submit(comm, options, request, Kind::kGather, send, receive, count, type, SPILLWAY_SUM,
                root);
}

spillway_status spillway_scatter(spillway_comm* comm, const void* send, void* receive, size_t count,
                                 spillway_data_type type, uint32_t root,
                                 const spillway_operation_options* options,
                                 spillway_request** request) {
  return submit(comm, options, request, Kind::kScatter, send, receive, count, type, SPILLWAY_SUM,
                root);
}

spillway_status spillway_all_to_all(spillway_comm* comm, const void* send, void* receive,
                                    size_t count, spillway_data_type type,
                                    const spillway_operation_options* options,
                                    spillway_request** request) {
  return submit(comm, options, request, Kind::kAllToAll, send, receive, count, type);
}

spillway_status spillway_barrier(spillway_comm* comm, const spillway_operation_options* options,
                                 spillway_request** request) {
  return submit(comm, options, request, Kind::kBarrier, nullptr, nullptr, 0, SPILLWAY_FLOAT32);
}

spillway_status spillway_send(spillway_comm* comm, const void* send, size_t count,
                              spillway_data_type type, uint32_t to,
                              const spillway_operation_options* options,
                              spillway_request** request) {
  return submit(comm, options, request, Kind::kSend, send, nullptr, count, type, SPILLWAY_SUM, to);
}

spillway_status spillway_receive(spillway_comm* comm, void* receive, size_t count,
                                 spillway_data_type type, uint32_t from,
                                 const spillway_operation_options* options,
                                 spillway_request** request) {
  return submit(comm, options, request, Kind::kReceive, nullptr, receive, count, type, SPILLWAY_SUM,
                spillway::capi::other_end(from));
}
