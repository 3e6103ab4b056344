// SPDX-License-Identifier: Apache-2.0
//
// The engine's checks and limits. Its work with a network is tested where there is one: in
// sim/stacks.
#include "collective/engine.h"

#include <gtest/gtest.h>

#include <new>

namespace spillway::collective {
namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30;

class Listener final : public EngineListener {
 public:
  void on_complete(std::uint64_t token, const base::Status& status,
                   const OperationReport& /*report*/) override {
    token_ = token;
    status_ = status;
    ++completions_;
  }
  std::uint64_t token_ = 0;
  base::Status status_;
  int completions_ = 0;
};

// A pool without memory for another job.
class ExhaustedPool final : public ComputePool {
 public:
  void submit(ComputeJob& /*job*/) override { throw std::bad_alloc(); }
};

struct OneEngine {
  explicit OneEngine(const Group& group, unsigned mtu = 1500) {
    EngineConfig config;
    config.group = group;
    config.job = job;
    config.packet_limits = {.mtu = mtu, .trim_bytes = 206};
    engine = Engine::make(config, pool, listener).value();
  }

  packetize::Job job{.id = 7, .epoch = 1, .seed = 42};
  ExhaustedPool pool;
  Listener listener;
  std::unique_ptr<Engine> engine;
};

// Its buffers point somewhere: nobody looks at them here.
Operation all_reduce_of(std::size_t bytes) {
  static float somewhere = 0.0F;
  Operation operation;
  operation.count = bytes / sizeof(float);
  operation.input = &somewhere;
  operation.output = &somewhere;
  return operation;
}

TEST(Engine, AdmitsLargeTensorsExactAndTolerant) {
  for (const std::uint16_t world : {2, 3, 8, 16}) {
    for (const unsigned mtu : {1500U, 9000U}) {
      OneEngine one({.rank = 0, .world = world}, mtu);
      Operation operation = all_reduce_of(64 * kGiB);
      EXPECT_TRUE(one.engine->admit(operation).ok());
      operation.tolerance = Tolerance{.precision = 32, .gather_precision = 32};
      const base::Status status = one.engine->admit(operation);
      EXPECT_TRUE(status.ok()) << world << " ranks, MTU " << mtu << ": " << status.message();
    }
  }
}

TEST(Engine, RefusesAtTheCallWhatItCouldNotCarryOut) {
  OneEngine one({.rank = 0, .world = 8});
  Operation operation = all_reduce_of(120 * kGiB);
  operation.tolerance = Tolerance{.least_contributors = 0.5};
  const base::Status status = one.engine->admit(operation);
  EXPECT_EQ(status.code(), base::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("split it"), std::string::npos) << status.message();
  operation = all_reduce_of(std::size_t{1} << 50);
  EXPECT_NE(one.engine->admit(operation).message().find("split it"), std::string::npos);
}

TEST(Engine, RunningOutOfMemoryIsAnErrorOfTheOperation) {
  OneEngine one({.rank = 0, .world = 1});
  transport::Endpoint endpoint{transport::EndpointConfig{}};
  const Operation operation = all_reduce_of(4);
  ASSERT_TRUE(one.engine->submit(operation, 17, endpoint, base::Instant()).ok());
  EXPECT_EQ(one.listener.completions_, 1);
  EXPECT_EQ(one.listener.token_, 17U);
  EXPECT_EQ(one.listener.status_.code(), base::StatusCode::kLimitExceeded);
  EXPECT_NE(one.listener.status_.message().find("memory"), std::string::npos);
  EXPECT_TRUE(one.engine->is_idle());
}

TEST(Engine, PostedReceivesDoNotKeepOperationsOfTheGroupFromBeginning) {
  OneEngine one({.rank = 0, .world = 2});
  transport::Endpoint endpoint{transport::EndpointConfig{}};
  ASSERT_TRUE(endpoint.add_peer(1, base::Instant()).ok());
  Operation receive = all_reduce_of(4);
  receive.kind = Kind::kReceive;
  receive.root = 1;
  for (std::uint64_t token = 0; token < 1000; ++token) {
    ASSERT_TRUE(one.engine->submit(receive, token, endpoint, base::Instant()).ok());
  }
  Operation barrier;
  barrier.kind = Kind::kBarrier;
  ASSERT_TRUE(one.engine->submit(barrier, 1000, endpoint, base::Instant()).ok());
  EXPECT_EQ(one.engine->waiting(), 0U);
}

TEST(Engine, HoldsSendsBackUntilThereIsRoom) {
  OneEngine one({.rank = 0, .world = 3});
  transport::EndpointConfig config;
  transport::Endpoint endpoint{config};
  ASSERT_TRUE(endpoint.add_peer(1, base::Instant()).ok());
  ASSERT_TRUE(endpoint.add_peer(2, base::Instant()).ok());
  Operation send = all_reduce_of(4);
  send.kind = Kind::kSend;
  send.root = 1;
  const std::size_t most = EngineLimits().pair_messages;
  for (std::uint64_t token = 0; token < 3 * most; ++token) {
    ASSERT_TRUE(one.engine->submit(send, token, endpoint, base::Instant()).ok());
  }
  EXPECT_EQ(one.engine->running(), most);
  EXPECT_EQ(one.engine->waiting(), 2 * most);
  // A send to another rank need not wait for that one.
  send.root = 2;
  ASSERT_TRUE(one.engine->submit(send, 0, endpoint, base::Instant()).ok());
  EXPECT_EQ(one.engine->running(), most + 1);
  one.engine->fail({base::StatusCode::kAborted, "enough"}, 0, wire::FailureCause::kAborted,
                   endpoint, base::Instant());
  EXPECT_EQ(one.listener.completions_, static_cast<int>(3 * most + 1));
  EXPECT_TRUE(one.engine->is_idle());
}

}  // namespace
}  // namespace spillway::collective
