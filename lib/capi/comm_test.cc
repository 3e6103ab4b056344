// SPDX-License-Identifier: Apache-2.0
//
// Communicators through the C interface and its C++ wrapper; the ranks of a group are threads of
// one process.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <spillway/spillway.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "capi/handles.h"
#include "harness/slowdown.h"

namespace {

using spillway::Communicator;
using spillway::Error;
using spillway::Request;

// A rank that waits for a processor is silent too, so silence must not count as death here.
spillway_comm_config patient_config(const spillway_unique_id& id, int rank, int world) {
  using std::chrono::milliseconds;
  const auto patience = std::chrono::duration_cast<milliseconds>(
      spillway::harness::patience(spillway::harness::kHangs));
  spillway_comm_config config = spillway::default_comm_config();
  config.id = &id;
  config.rank = rank;
  config.world = world;
  config.peer_timeout_ms = 3'600'000;
  config.rendezvous_timeout_ms = static_cast<std::uint32_t>(patience.count());
  return config;
}

// Ids of this file use loopback.
class CApiComm : public testing::Test {
 protected:
  void SetUp() override { ::setenv("SPILLWAY_SOCKET_IFNAME", "=lo", 1); }
  void TearDown() override { ::unsetenv("SPILLWAY_SOCKET_IFNAME"); }

  // Runs `body` at every rank of a new group, each on its own thread.
  static void run_group(int world, const std::function<void(Communicator&)>& body) {
    const spillway_unique_id id = spillway::make_unique_id();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          Communicator communicator(patient_config(id, rank, world));
          body(communicator);
        } catch (const Error& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  // The messages at ranks 0 and 2 for a barrier that ranks 1 and 3 never call. Only rank 0 has a
  // timeout.
  static std::array<std::string, 4> run_barrier_without_1_and_3(std::uint32_t timeout_ms) {
    std::array<std::string, 4> said;
    std::atomic<bool> has_begun{false};
    std::atomic<int> ended{0};
    run_group(4, [&](Communicator& communicator) {
      const std::uint32_t rank = communicator.rank();
      if (rank == 0 || rank == 2) {
        spillway_operation_options options = spillway::default_operation_options();
        options.timeout_ms = rank == 0 ? timeout_ms : 0;
        has_begun.wait(rank == 2);
        const Request request = communicator.start_barrier(&options);
        has_begun = true;
        has_begun.notify_all();
        EXPECT_THROW(request.wait(), Error);
        EXPECT_EQ(request.status(), SPILLWAY_TIMED_OUT);
        said[rank] = request.message();
        ended += 1;
        ended.notify_all();
      }
      for (int seen = ended; seen < 2; seen = ended) {
        ended.wait(seen);
      }
    });
    return said;
  }
};

template <typename T>
T reduced(T a, T b, spillway_reduction op) {
  switch (op) {
    case SPILLWAY_SUM:
      return a + b;
    case SPILLWAY_AVERAGE:
      return (a + b) / 2;
    case SPILLWAY_MIN:
      return std::min(a, b);
    case SPILLWAY_PRODUCT:
      return a * b;
    default:
      return std::max(a, b);
  }
}

constexpr spillway_reduction kReductions[] = {SPILLWAY_SUM, SPILLWAY_AVERAGE, SPILLWAY_MIN,
                                              SPILLWAY_MAX, SPILLWAY_PRODUCT};

// Rank r sends 2 and 6 alternately, rotated by r.
template <typename T>
void expect_reductions(Communicator& communicator) {
  constexpr std::size_t kCount = 1001;
  std::vector<T> send(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    send[i] = static_cast<T>((i + communicator.rank()) % 2 == 0 ? 2 : 6);
  }
  for (const spillway_reduction op : kReductions) {
    std::vector<T> receive(kCount);
    communicator.all_reduce(send, std::span(receive), op);
    EXPECT_EQ(receive, std::vector<T>(kCount, reduced<T>(2, 6, op))) << op;
  }
}

// Integers only; bytes have no average.
template <typename T>
void expect_bit_reductions(Communicator& communicator) {
  const T own = communicator.rank() == 0 ? 100 : 6;
  const std::vector<std::pair<spillway_reduction, T>> wanted = {
      {SPILLWAY_SUM, static_cast<T>(106)},    {SPILLWAY_PRODUCT, static_cast<T>(600)},
      {SPILLWAY_MAX, static_cast<T>(100)},    {SPILLWAY_BIT_AND, static_cast<T>(4)},
      {SPILLWAY_BIT_OR, static_cast<T>(102)}, {SPILLWAY_BIT_XOR, static_cast<T>(98)}};
  for (const auto& [op, want] : wanted) {
    std::vector<T> buffer(1001, own);
    communicator.all_reduce(std::span(buffer), op);
    EXPECT_EQ(buffer, std::vector<T>(1001, want)) << op;
  }
}

// A rank's input to an all-reduce; the sum differs from every rank's part.
std::vector<float> waves(std::size_t count, std::uint32_t rank) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::sin(0.37F * static_cast<float>(i) + static_cast<float>(rank));
  }
  return values;
}

// Squared error divided by energy, for a sum of the waves of `ranks` ranks.
double error_of_waves(const std::vector<float>& sum, std::uint32_t ranks) {
  std::vector<double> exact(sum.size());
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::vector<float> part = waves(sum.size(), rank);
    std::transform(exact.begin(), exact.end(), part.begin(), exact.begin(), std::plus<>());
  }
  double error = 0.0;
  double energy = 0.0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    error += (sum[i] - exact[i]) * (sum[i] - exact[i]);
    energy += exact[i] * exact[i];
  }
  return error / energy;
}

// The same for half-precision numbers, given as bits.
template <typename T>
void expect_half_reductions(Communicator& communicator, T two, T six, const std::vector<T>& want) {
  const std::vector<T> send(5, communicator.rank() == 0 ? two : six);
  for (const spillway_reduction op : kReductions) {
    std::vector<T> receive(5);
    communicator.all_reduce(send, std::span(receive), op);
    EXPECT_EQ(receive, std::vector<T>(5, want[op])) << op;
  }
}

TEST_F(CApiComm, EveryTypeAndReduction) {
  run_group(2, [](Communicator& communicator) {
    expect_reductions<float>(communicator);
    expect_reductions<double>(communicator);
    expect_reductions<std::int32_t>(communicator);
    expect_reductions<std::int64_t>(communicator);
    expect_bit_reductions<std::int64_t>(communicator);
    expect_bit_reductions<std::int32_t>(communicator);
    expect_bit_reductions<std::int8_t>(communicator);
    expect_bit_reductions<std::uint8_t>(communicator);
    using spillway::Bfloat16;
    using spillway::Float16;  // 2, 6: 8, 4, 2, 6, 12
    expect_half_reductions(
        communicator, Float16{0x4000}, Float16{0x4600},
        {Float16{0x4800}, Float16{0x4400}, Float16{0x4000}, Float16{0x4600}, Float16{0x4A00}});
    expect_half_reductions(
        communicator, Bfloat16{0x4000}, Bfloat16{0x40C0},
        {Bfloat16{0x4100}, Bfloat16{0x4080}, Bfloat16{0x4000}, Bfloat16{0x40C0}, Bfloat16{0x4140}});
  });
}

TEST_F(CApiComm, OperationsThatMoveElements) {
  run_group(3, [](Communicator& communicator) {
    const auto rank = static_cast<std::int32_t>(communicator.rank());
    const std::vector<std::int32_t> own = {rank, 10 + rank};
    const std::vector<std::int32_t> all = {0, 10, 1, 11, 2, 12};

    std::vector<std::int32_t> gathered(6);
    communicator.all_gather(own, std::span(gathered));
    EXPECT_EQ(gathered, all);

    std::vector<std::int32_t> at_root(rank == 1 ? 6 : 0);
    communicator.gather(own, std::span(at_root), 1);
    EXPECT_EQ(at_root, rank == 1 ? all : std::vector<std::int32_t>());

    std::vector<std::int32_t> part(2);
    communicator.scatter(rank == 2 ? all : std::vector<std::int32_t>(), std::span(part), 2);
    EXPECT_EQ(part, own);

    std::vector<std::int32_t> told = rank == 0 ? std::vector{7, 8} : std::vector{0, 0};
    communicator.broadcast(std::span(told), 0);
    EXPECT_EQ(told, (std::vector{7, 8}));

    const std::vector<std::int32_t> for_each = {rank * 3, rank * 3 + 1, rank * 3 + 2};
    std::vector<std::int32_t> from_each(3);
    communicator.all_to_all(for_each, std::span(from_each));
    EXPECT_EQ(from_each, (std::vector{rank, 3 + rank, 6 + rank}));
    communicator.barrier();
  });
}

TEST_F(CApiComm, OperationsThatReduceToSomePlace) {
  run_group(3, [](Communicator& communicator) {
    std::vector<double> numbers(9);
    std::iota(numbers.begin(), numbers.end(), 0.0);
    std::vector<double> part(3);
    communicator.reduce_scatter(numbers, std::span(part));
    const double first = 3.0 * communicator.rank();
    EXPECT_EQ(part, (std::vector{3 * first, 3 * (first + 1), 3 * (first + 2)}));

    std::vector<double> sum(communicator.rank() == 2 ? 9 : 0);
    communicator.reduce(numbers, std::span(sum), 2, SPILLWAY_MAX);
    EXPECT_TRUE(communicator.rank() != 2 || sum == numbers);
  });
}

TEST_F(CApiComm, SendAndReceiveBothWays) {
  run_group(2, [](Communicator& communicator) {
    const std::uint32_t other = 1 - communicator.rank();
    const std::vector<float> mine(70'000, 1.0F + static_cast<float>(communicator.rank()));
    std::vector<float> theirs(mine.size());
    const Request request = communicator.start_receive(std::span(theirs), other);
    communicator.send(std::span(mine), other);
    request.wait();
    EXPECT_EQ(theirs, std::vector<float>(mine.size(), 1.0F + static_cast<float>(other)));
  });
}

spillway_operation_options tagged(std::uint32_t tag) {
  spillway_operation_options options = spillway::default_operation_options();
  options.tag = tag;
  return options;
}

// Includes large messages: the first is received only after the second.
TEST_F(CApiComm, TagsAreReceivedInAnotherOrderThanTheyWereSent) {
  for (const std::size_t count : {std::size_t{5}, std::size_t{300'000}}) {
    run_group(2, [count](Communicator& communicator) {
      const spillway_operation_options one = tagged(1);
      const spillway_operation_options last = tagged(SPILLWAY_MAX_TAG);
      if (communicator.rank() == 0) {
        const std::vector<float> first(count, 1.0F);
        const std::vector<float> second(count, 2.0F);
        const std::vector<float> third(count, 3.0F);
        const Request a = communicator.start_send(std::span(first), 1, &one);
        const Request b = communicator.start_send(std::span(second), 1, &last);
        const Request c = communicator.start_send(std::span(third), 1, &one);
        a.wait(), b.wait(), c.wait();
      } else {
        std::vector<float> got(count);
        communicator.receive(std::span(got), 0, &last);
        EXPECT_EQ(got, std::vector<float>(count, 2.0F));
        communicator.receive(std::span(got), 0, &one);
        EXPECT_EQ(got, std::vector<float>(count, 1.0F));
        communicator.receive(std::span(got), SPILLWAY_ANY_RANK, &one);
        EXPECT_EQ(got, std::vector<float>(count, 3.0F));
      }
    });
  }
}

TEST_F(CApiComm, AReceiveFromAnyRankSaysFromWhich) {
  run_group(3, [](Communicator& communicator) {
    if (communicator.rank() != 0) {
      const std::vector<std::int8_t> mine(1000, static_cast<std::int8_t>(communicator.rank()));
      communicator.send(std::span(mine), 0);
      communicator.send(std::span(mine), 0);
      return;
    }
    std::array<int, 3> heard{};
    for (int i = 0; i < 4; ++i) {
      std::vector<std::int8_t> got(1000);
      const Request request = communicator.start_receive(std::span(got), SPILLWAY_ANY_RANK);
      request.wait();
      const std::uint32_t source = request.report().source;
      ASSERT_TRUE(source == 1 || source == 2) << source;
      EXPECT_EQ(got, std::vector<std::int8_t>(1000, static_cast<std::int8_t>(source)));
      ++heard[source];
    }
    EXPECT_EQ(heard, (std::array<int, 3>{0, 2, 2}));
  });
}

TEST_F(CApiComm, SendsAndReceivesOfNothingMatchNothing) {
  run_group(2, [](Communicator& communicator) {
    const std::uint32_t other = 1 - communicator.rank();
    communicator.send(std::span<float>(), other);
    std::vector<float> buffer(3, static_cast<float>(communicator.rank()));
    const Request sent = communicator.start_send(std::span(buffer), other);
    std::vector<float> got(3);
    communicator.receive(std::span(got), other);
    communicator.receive(std::span<float>(), other);
    sent.wait();
    EXPECT_EQ(got, std::vector<float>(3, static_cast<float>(other)));
  });
}

TEST_F(CApiComm, ASendThatDoesNotFitItsReceiveIsAMismatch) {
  run_group(2, [](Communicator& communicator) {
    std::vector<std::int32_t> numbers(10);
    std::vector<float> floats(10);
    const Request request = communicator.rank() == 0
                                ? communicator.start_send(std::span(numbers), 1)
                                : communicator.start_receive(std::span(floats), SPILLWAY_ANY_RANK);
    EXPECT_THROW(request.wait(), Error);
    EXPECT_EQ(request.status(), SPILLWAY_MISMATCH) << request.message();
    EXPECT_NE(request.message().find("receive of 10 float32"), std::string::npos);
    EXPECT_NE(request.message().find("send of 10 int32"), std::string::npos) << request.message();
  });
}

TEST_F(CApiComm, AReceiveFailsWhenNobodyIsLeftToSend) {
  for (const std::uint32_t from : {std::uint32_t{1}, SPILLWAY_ANY_RANK}) {
    run_group(2, [from](Communicator& communicator) {
      communicator.barrier();
      if (communicator.rank() == 0) {
        std::vector<float> got(3);
        const Request request = communicator.start_receive(std::span(got), from);
        EXPECT_THROW(request.wait(), Error);
        EXPECT_EQ(request.status(), SPILLWAY_PEER_FAILED);
        EXPECT_NE(request.message().find("rank 1 closed"), std::string::npos) << request.message();
      }
    });
  }
}

// Rank 2 must have called before rank 0's timeout. If it waits for a processor, both retry.
TEST_F(CApiComm, ABarrierHasATimeoutOfItsOwnAndNamesWhoIsMissing) {
  std::array<std::string, 4> said;
  const auto is_right = [&said] {
    return said[0].find("waits for rank 1, 3") != std::string::npos &&
           said[2].find("rank 1 was") != std::string::npos;
  };
  for (std::uint32_t timeout_ms = 200; timeout_ms < 60'000 && !is_right(); timeout_ms *= 2) {
    said = run_barrier_without_1_and_3(timeout_ms);
  }
  EXPECT_TRUE(is_right()) << said[0] << "; " << said[2];
}

TEST_F(CApiComm, ReportsCountWhatCame) {
  run_group(3, [](Communicator& communicator) {
    std::vector<float> buffer(100'000, 1.0F);
    const Request request = communicator.start_all_reduce(std::span(buffer));
    request.wait();
    const spillway_operation_report report = request.report();
    EXPECT_EQ(report.peers, 3U);
    EXPECT_GT(report.duration_ns, 0U);
    EXPECT_GT(report.packets_sent, 0U);
    EXPECT_GT(report.wire_bytes_sent, 0U);
    EXPECT_EQ(report.packets_missing + report.packets_trimmed, 0U);
    std::uint64_t whole = 0;
    const std::vector<spillway_peer_report> peers = request.peers();
    ASSERT_EQ(peers.size(), 3U);
    for (const spillway_peer_report& peer : peers) {
      EXPECT_EQ(peer.size, sizeof peer);
      whole += peer.packets_whole;
    }
    EXPECT_EQ(whole, report.packets_whole);
    EXPECT_EQ(peers[communicator.rank()].packets_whole, 0U);
    EXPECT_EQ(request.message(), "");
  });
}

TEST_F(CApiComm, ReportsOfTolerantAllReducesSayWhoIsInEachShard) {
  run_group(3, [](Communicator& communicator) {
    std::vector<float> buffer(10'000, 1.0F);
    spillway_operation_options options = spillway::default_operation_options();
    options.tolerant = 1;
    options.feedback_tensor = 5;
    const Request request =
        communicator.start_all_reduce(std::span(buffer), SPILLWAY_SUM, &options);
    request.wait();
    const spillway_operation_report report = request.report();
    ASSERT_EQ(report.shards, 3U);
    std::uint64_t elements = 0;
    for (std::uint32_t shard = 0; shard < report.shards; ++shard) {
      const spillway_shard_report part = request.shard_report(shard);
      EXPECT_EQ(part.first, elements);
      EXPECT_EQ(part.contributors, 3U);
      EXPECT_LT(part.owner, 3U);
      elements += part.count;
    }
    EXPECT_EQ(elements, buffer.size());
    EXPECT_THROW(request.shard_report(3), Error);
    EXPECT_EQ(report.absent_elements, 0U);
    EXPECT_EQ(report.absent_ranges, 0U);
    EXPECT_THROW(request.absent_range(0), Error);
  });
}

TEST_F(CApiComm, HalvesOfAnAllReduceTakeCodecs) {
  for (const spillway_codec codec : {SPILLWAY_CODEC_PLANES, SPILLWAY_CODEC_ENTROPY}) {
    run_group(3, [&](Communicator& communicator) {
      constexpr std::size_t kCount = 10'000;
      spillway_operation_options options = spillway::default_operation_options();
      options.tolerant = 1;
      options.codec = codec;
      options.loss_bound_ppm = 0;
      const std::vector<float> own = waves(3 * kCount, communicator.rank());
      std::vector<float> part(kCount);
      const Request request = communicator.start_reduce_scatter(std::span(own), std::span(part),
                                                                SPILLWAY_SUM, &options);
      request.wait();
      EXPECT_EQ(request.report().codec, static_cast<std::uint32_t>(codec));
      EXPECT_EQ(request.report().contributors, 3U);
      std::vector<float> whole(3 * kCount);
      communicator.all_gather(std::span<const float>(part), std::span(whole), &options);
      EXPECT_LT(error_of_waves(whole, 3), 1e-6);
    });
  }
}

TEST_F(CApiComm, NumbersThatCanBeAddedGiveAllRanksTheSameSums) {
  for (const spillway_codec codec : {SPILLWAY_CODEC_LEVELS, SPILLWAY_CODEC_BLOCKS}) {
    std::mutex mutex;
    std::set<std::vector<float>> results;
    run_group(3, [&](Communicator& communicator) {
      std::vector<float> buffer = waves(30'000, communicator.rank());
      spillway_operation_options options = spillway::default_operation_options();
      options.tolerant = 1;
      options.codec = codec;
      options.precision = 8;
      options.loss_bound_ppm = 0;
      options.algorithm = SPILLWAY_ALGORITHM_SWITCH;
      const Request request =
          communicator.start_all_reduce(std::span(buffer), SPILLWAY_SUM, &options);
      request.wait();
      EXPECT_EQ(request.report().codec, static_cast<std::uint32_t>(codec));
      EXPECT_EQ(request.report().algorithm, static_cast<std::uint32_t>(SPILLWAY_ALGORITHM_SWITCH));
      EXPECT_EQ(request.report().contributors, 3U);
      EXPECT_EQ(request.report().absent_elements, 0U);
      // No switch adds on loopback.
      EXPECT_GT(request.report().parts_alone, 0U);
      EXPECT_EQ(request.report().parts_alone, request.report().packets_whole);
      EXPECT_EQ(request.report().parts_added, 0U);
      const std::lock_guard lock(mutex);
      results.insert(buffer);
    });
    ASSERT_EQ(results.size(), 1U) << codec;
    const double least = codec == SPILLWAY_CODEC_BLOCKS ? 1e-10 : 1e-3;
    EXPECT_LT(error_of_waves(*results.begin(), 3), least) << codec;
  }
}

TEST_F(CApiComm, AnOlderCallersReportIsFilledAsFarAsItGoes) {
  run_group(2, [](Communicator& communicator) {
    spillway_request* raw = nullptr;
    ASSERT_EQ(spillway_barrier(communicator.get(), nullptr, &raw), SPILLWAY_OK);
    ASSERT_EQ(spillway_request_wait(raw, -1), SPILLWAY_OK);
    spillway_operation_report report{};
    report.size = offsetof(spillway_operation_report, packets_whole);
    report.duration_ns = UINT64_MAX;
    report.peers = 77;
    EXPECT_EQ(spillway_request_report(raw, &report), SPILLWAY_OK);
    EXPECT_NE(report.duration_ns, UINT64_MAX);
    EXPECT_EQ(report.peers, 77U);
    report.size = 1;
    EXPECT_EQ(spillway_request_report(raw, &report), SPILLWAY_INVALID_ARGUMENT);
    spillway_request_free(raw);
  });
}

TEST_F(CApiComm, OptionsOfAnOlderCallerHaveDefaultsBehindThem) {
  run_group(2, [](Communicator& communicator) {
    spillway_operation_options options = spillway::default_operation_options();
    options.priority = 7;
    options.algorithm = SPILLWAY_ALGORITHM_RING;
    options.size = offsetof(spillway_operation_options, tolerant);
    options.tolerant = 1;  // beyond the size that the caller names
    std::vector<std::int32_t> buffer(1000, 1);
    const Request request =
        communicator.start_all_reduce(std::span(buffer), SPILLWAY_SUM, &options);
    request.wait();
    EXPECT_EQ(request.report().algorithm, static_cast<std::uint32_t>(SPILLWAY_ALGORITHM_RING));
    EXPECT_EQ(buffer, std::vector<std::int32_t>(1000, 2));
  });
}

TEST_F(CApiComm, AWaitMayEndBeforeTheOperation) {
  run_group(2, [](Communicator& communicator) {
    std::vector<float> buffer(10, 1.0F);
    if (communicator.rank() == 0) {
      const Request request = communicator.start_all_reduce(std::span(buffer));
      EXPECT_FALSE(request.wait_for(20));
      EXPECT_FALSE(request.is_done());
      EXPECT_EQ(request.status(), SPILLWAY_IN_PROGRESS);
      EXPECT_THROW(request.report(), Error);
      communicator.send(std::span(buffer), 1);
      request.wait();
    } else {
      std::vector<float> signal(10);
      communicator.receive(std::span(signal), 0);
      communicator.all_reduce(std::span(buffer));
    }
    EXPECT_EQ(buffer, std::vector<float>(10, 2.0F));
  });
}

TEST_F(CApiComm, CallbacksHaveReturnedWhenAWaitHas) {
  struct Told {
    int calls = 0;
    spillway_status status = SPILLWAY_INTERNAL;
    std::string message = "?";
  };
  run_group(2, [](Communicator& communicator) {
    Told told;
    spillway_operation_options options = spillway::default_operation_options();
    options.context = &told;
    options.callback = [](void* context, spillway_status status, const char* message) {
      Told& noted = *static_cast<Told*>(context);
      noted = {noted.calls + 1, status, message};
    };
    std::vector<float> buffer(10, 1.0F);
    for (int call = 1; call <= 100; ++call) {
      communicator.all_reduce(std::span(buffer), SPILLWAY_AVERAGE, &options);
      ASSERT_EQ(told.calls, call);
    }
    EXPECT_EQ(told.status, SPILLWAY_OK);
    EXPECT_EQ(told.message, "");
  });
}

TEST_F(CApiComm, AHundredOperationsAtOnceInTwoCommunicators) {
  run_group(2, [](Communicator& first) {
    // The first communicator broadcasts the second's id.
    spillway_unique_id id{};
    if (first.rank() == 0) {
      id = spillway::make_unique_id();
    }
    std::array<std::int32_t, sizeof(id.bytes) / 4> words{};
    std::memcpy(words.data(), id.bytes, sizeof(id.bytes));
    first.broadcast(std::span<std::int32_t>(words), 0);
    std::memcpy(id.bytes, words.data(), sizeof(id.bytes));
    spillway_comm_config config = patient_config(id, static_cast<int>(1 - first.rank()), 2);
    config.name = "second";
    Communicator second(config);

    std::vector<std::vector<float>> buffers(200, std::vector<float>(3000, 1.0F));
    std::vector<Request> requests;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      Communicator& communicator = i % 2 == 0 ? first : second;
      requests.push_back(communicator.start_all_reduce(std::span(buffers[i])));
    }
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      requests[i].wait();
      ASSERT_EQ(buffers[i], std::vector<float>(3000, 2.0F)) << i;
    }
  });
}

TEST_F(CApiComm, AnAbortNamesItsRankElsewhere) {
  run_group(3, [](Communicator& communicator) {
    std::vector<float> buffer(1000);
    const Request request = communicator.start_all_reduce(std::span(buffer));
    if (communicator.rank() == 1) {
      communicator.abort("enough");
    }
    std::vector<float> more(1000);
    const Request second = communicator.start_all_reduce(std::span(more));
    const spillway_status expected =
        communicator.rank() == 1 ? SPILLWAY_ABORTED : SPILLWAY_PEER_FAILED;
    try {
      second.wait();
      ADD_FAILURE() << "an operation of an aborted group ended well";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), expected) << error.what();
      const std::string part = communicator.rank() == 1 ? "enough" : "rank 1";
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_EQ(second.status(), expected);
    EXPECT_NE(second.message(), "");
    EXPECT_EQ(spillway_comm_error(communicator.get()), expected);
  });
}

TEST_F(CApiComm, RanksThatDisagreeAreToldSo) {
  run_group(2, [](Communicator& communicator) {
    std::vector<float> buffer(communicator.rank() == 0 ? 1000 : 500);
    const Request request = communicator.start_all_reduce(std::span(buffer));
    EXPECT_THROW(request.wait(), Error);
    EXPECT_EQ(request.status(), SPILLWAY_MISMATCH);
  });
}

TEST_F(CApiComm, AnOperationThatNobodyJoinsTimesOut) {
  const spillway_unique_id id = spillway::make_unique_id();
  std::vector<std::thread> threads;
  std::atomic<bool> has_ended{false};
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      spillway_comm_config config = patient_config(id, rank, 2);
      config.operation_timeout_ms = 100;
      Communicator communicator(config);
      if (rank == 0) {
        const Request request = communicator.start_barrier();
        EXPECT_THROW(request.wait(), Error);
        EXPECT_EQ(request.status(), SPILLWAY_TIMED_OUT);
        EXPECT_NE(request.message().find("rank 1"), std::string::npos) << request.message();
        has_ended = true;
        has_ended.notify_all();
      }
      has_ended.wait(false);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_F(CApiComm, RequestsOutliveTheirCommunicator) {
  std::atomic<int> still_there{2};
  run_group(2, [&](Communicator& communicator) {
    std::vector<float> buffer(10);
    spillway_request* request = nullptr;
    if (communicator.rank() == 0) {
      ASSERT_EQ(spillway_all_reduce(communicator.get(), buffer.data(), buffer.data(), 10,
                                    SPILLWAY_FLOAT32, SPILLWAY_SUM, nullptr, &request),
                SPILLWAY_OK);
      { const Communicator gone = std::move(communicator); }
      EXPECT_EQ(spillway_request_status(request), SPILLWAY_ABORTED);
      spillway_request_free(request);
      still_there = 0;
      still_there.notify_all();
    } else {
      still_there.wait(2);
    }
  });
}

TEST_F(CApiComm, AChildOfForkIsRefused) {
  run_group(2, [](Communicator& communicator) {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool refused =
          spillway_barrier(communicator.get(), nullptr, nullptr) == SPILLWAY_INVALID_ARGUMENT &&
          std::string(spillway_last_error()).find("fork") != std::string::npos &&
          spillway_comm_abort(communicator.get(), nullptr) == SPILLWAY_INVALID_ARGUMENT;
      ::_exit(refused ? 0 : 1);
    }
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    communicator.barrier();
  });
}

TEST_F(CApiComm, BadArgumentsAreRefusedWithASentence) {
  run_group(2, [](Communicator& communicator) {
    std::vector<float> buffer(10);
    const auto all_reduce = [&](int type, int op, const spillway_operation_options* options) {
      return spillway_all_reduce(communicator.get(), buffer.data(), buffer.data(), 10,
                                 static_cast<spillway_data_type>(type),
                                 static_cast<spillway_reduction>(op), options, nullptr);
    };
    EXPECT_EQ(all_reduce(8, SPILLWAY_SUM, nullptr), SPILLWAY_INVALID_ARGUMENT);
    EXPECT_EQ(all_reduce(256, SPILLWAY_SUM, nullptr), SPILLWAY_INVALID_ARGUMENT);
    EXPECT_EQ(all_reduce(SPILLWAY_FLOAT32, 8, nullptr), SPILLWAY_INVALID_ARGUMENT);
    EXPECT_NE(std::string(spillway_last_error()).find("reduction 8"), std::string::npos);
    EXPECT_EQ(all_reduce(SPILLWAY_FLOAT32, SPILLWAY_BIT_OR, nullptr), SPILLWAY_INVALID_ARGUMENT);
    EXPECT_EQ(all_reduce(SPILLWAY_INT8, SPILLWAY_AVERAGE, nullptr), SPILLWAY_INVALID_ARGUMENT);
    for (const std::uint32_t from : {2U, 65535U, 65536U}) {
      EXPECT_EQ(spillway_receive(communicator.get(), buffer.data(), 10, SPILLWAY_FLOAT32, from,
                                 nullptr, nullptr),
                SPILLWAY_INVALID_ARGUMENT);
    }
    spillway_operation_options options = spillway::default_operation_options();
    options.priority = 8;
    EXPECT_EQ(all_reduce(SPILLWAY_FLOAT32, SPILLWAY_SUM, &options), SPILLWAY_INVALID_ARGUMENT);
    options = spillway::default_operation_options();
    options.tolerant = 1;
    options.precision = 300;
    EXPECT_EQ(all_reduce(SPILLWAY_FLOAT32, SPILLWAY_SUM, &options), SPILLWAY_INVALID_ARGUMENT);
    options = spillway::default_operation_options();
    options.size = 0;
    EXPECT_EQ(all_reduce(SPILLWAY_FLOAT32, SPILLWAY_SUM, &options), SPILLWAY_INVALID_ARGUMENT);
    EXPECT_EQ(spillway_broadcast(communicator.get(), buffer.data(), buffer.data(), 10,
                                 SPILLWAY_FLOAT32, 65536, nullptr, nullptr),
              SPILLWAY_INVALID_ARGUMENT);
    EXPECT_EQ(spillway_barrier(nullptr, nullptr, nullptr), SPILLWAY_INVALID_ARGUMENT);
    EXPECT_THROW(communicator.all_reduce(std::vector<float>(5), std::span(buffer)), Error);
  });
}

TEST(CApiCommConfig, WhatIsNotSaidIsLeftToTheRuntime) {
  const spillway::base::Environment environment;
  const auto made = spillway::capi::communicator_config_from(nullptr, environment);
  ASSERT_TRUE(made.ok());
  EXPECT_FALSE(made->id || made->mtu || made->trim_bytes || made->threads || made->link_rate ||
               made->peer_timeout || made->rendezvous_patience);
  spillway_comm_config config = spillway::default_comm_config();
  config.trim_bytes = 0;
  config.threads = 0;
  config.peer_timeout_ms = 900;
  const auto said = spillway::capi::communicator_config_from(&config, environment);
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(said->trim_bytes, 0U);
  EXPECT_EQ(said->threads, 0U);
  EXPECT_EQ(said->peer_timeout, spillway::base::milliseconds(900));
}

TEST(CApiCommConfig, ARankByHandNeedsAnIdAndARankCanComeFromTheEnvironment) {
  const spillway::base::Environment environment = {
      {"SPILLWAY_RANK", "2"},
      {"SPILLWAY_WORLD_SIZE", "4"},
      {"SPILLWAY_COMM_ID", "127.0.0.1:5000"},
      {"SPILLWAY_SERVERS", "2"}};  // these servers do not know the id
  spillway_comm_config config = spillway::default_comm_config();
  config.rank = 0;
  EXPECT_FALSE(spillway::capi::communicator_config_from(&config, environment).ok());
  config.world = 1;
  EXPECT_FALSE(spillway::capi::communicator_config_from(&config, environment).ok());
  const spillway_unique_id id{};
  config.id = &id;
  EXPECT_TRUE(spillway::capi::communicator_config_from(&config, environment).ok());
  config.rank = config.world = -1;
  const auto made = spillway::capi::communicator_config_from(&config, environment);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->member.rank, 2U);
  EXPECT_EQ(made->member.world, 4U);
}

TEST(CApiCommConfig, ServersAreTakenWhereTheCallerKnowsOfThem) {
  spillway_comm_config config;
  spillway_comm_config_init(&config);
  EXPECT_EQ(config.size, sizeof(config));
  EXPECT_EQ(config.servers, -1);
  EXPECT_FALSE(spillway::capi::communicator_config_from(&config, {})->servers.has_value());
  config.servers = 3;
  EXPECT_EQ(spillway::capi::communicator_config_from(&config, {})->servers, 3);
  config.servers = -2;
  EXPECT_FALSE(spillway::capi::communicator_config_from(&config, {}).ok());
}

TEST(CApiCommConfig, OverSendIsTakenWhereItIsSaid) {
  using spillway::capi::communicator_config_from;
  spillway_comm_config config = spillway::default_comm_config();
  EXPECT_FALSE(communicator_config_from(&config, {})->trimmed_target.has_value());
  config.trimmed_target_ppm = 100'000;
  EXPECT_EQ(communicator_config_from(&config, {})->trimmed_target, 0.1);
  config.trimmed_target_ppm = -2;
  EXPECT_FALSE(communicator_config_from(&config, {}).ok());
}

TEST(CApiCommConfig, ACallerThatDoesNotKnowOfServersIsNotWrittenBehind) {
  spillway_comm_config config;
  config.servers = 77;  // beyond the struct of such a caller
  (spillway_comm_config_init)(&config);
  EXPECT_EQ(config.size, offsetof(spillway_comm_config, servers));
  EXPECT_EQ(config.servers, 77);
  EXPECT_FALSE(spillway::capi::communicator_config_from(&config, {})->servers.has_value());
}

TEST(CApiOperationOptions, AreSetUpAsFarAsTheCallerKnowsThem) {
  spillway_operation_options options{};
  options.min_planes = 77;  // beyond the struct of this caller
  spillway_operation_options_init_sized(&options, offsetof(spillway_operation_options, min_planes));
  EXPECT_EQ(options.size, offsetof(spillway_operation_options, min_planes));
  EXPECT_EQ(options.precision, 16U);
  EXPECT_EQ(options.min_planes, 77U);
  (spillway_operation_options_init)(&options);
  EXPECT_EQ(options.size, offsetof(spillway_operation_options, tag));
  EXPECT_EQ(options.min_planes, 1U);
}

TEST(CApiLaunch, IsWhatTheLauncherSaid) {
  spillway_launch launch{};
  launch.size = sizeof(launch);
  EXPECT_EQ(spillway_launch_read(&launch), SPILLWAY_UNAVAILABLE);
  ::setenv("SPILLWAY_RANK", "1", 1);
  ::setenv("SPILLWAY_WORLD_SIZE", "2", 1);
  ::setenv("SPILLWAY_COMM_ID", "10.0.0.1:7100", 1);
  EXPECT_EQ(spillway_launch_read(&launch), SPILLWAY_OK);
  EXPECT_EQ(spillway_launch_read(nullptr), SPILLWAY_INVALID_ARGUMENT);
  ::setenv("SPILLWAY_RANK", "2", 1);
  EXPECT_EQ(spillway_launch_read(&launch), SPILLWAY_INVALID_ARGUMENT);
  for (const char* name : {"SPILLWAY_RANK", "SPILLWAY_WORLD_SIZE", "SPILLWAY_COMM_ID"}) {
    ::unsetenv(name);
  }
  EXPECT_EQ(launch.rank, 1U);
  EXPECT_EQ(launch.world, 2U);
  EXPECT_EQ(launch.local_rank, -1);
  EXPECT_STREQ(launch.launcher, "spillway");
  EXPECT_STREQ(launch.host, "10.0.0.1");
  EXPECT_EQ(launch.port, 7101U);
}

// Checks the options' ranges; the messages are those of a failing call.
TEST(CApiOperationOptions, AreCheckedWithoutACommunicator) {
  const auto refused = [](const auto& change) {
    spillway_operation_options options = spillway::default_operation_options();
    options.tolerant = 1;
    change(options);
    return spillway_operation_options_check(&options) == SPILLWAY_INVALID_ARGUMENT
               ? std::string(spillway_last_error())
               : "taken";
  };
  EXPECT_EQ(spillway_operation_options_check(nullptr), SPILLWAY_OK);
  EXPECT_EQ(refused([](auto&) {}), "taken");
  EXPECT_NE(refused([](auto& options) { options.priority = 8; }).find("0 to 7"), std::string::npos);
  EXPECT_NE(refused([](auto& options) { options.tag = SPILLWAY_MAX_TAG + 1; }).find("tag"),
            std::string::npos);
  EXPECT_NE(refused([](auto& options) { options.algorithm = 9; }).find("algorithm 9"),
            std::string::npos);
  for (const std::uint32_t bits : {0U, 33U, 257U, 1U << 31}) {
    EXPECT_NE(refused([&](auto& options) { options.precision = bits; }).find("1 to 32"),
              std::string::npos);
    EXPECT_NE(refused([&](auto& options) { options.gather_precision = bits; }).find("1 to 32"),
              std::string::npos);
    EXPECT_NE(refused([&](auto& options) { options.min_planes = bits; }).find("min_planes"),
              std::string::npos);
  }
  EXPECT_NE(refused([](auto& options) { options.loss_bound_ppm = 1'000'001; }).find("loss bound"),
            std::string::npos);
  EXPECT_NE(refused([](auto& options) { options.importance = 8; }).find("importance"),
            std::string::npos);
  EXPECT_EQ(refused([](auto& options) { options.importance = 7; }), "taken");
  EXPECT_NE(refused([](auto& options) { options.expendable_ppm = 1'000'001; }).find("expendable"),
            std::string::npos);
  EXPECT_NE(refused([](auto& options) { options.codec = 99; }).find("codec 99"), std::string::npos);
  EXPECT_NE(
      refused([](auto& options) { options.codec = SPILLWAY_CODEC_LEVELS; }).find("2, 3, 4 and 8"),
      std::string::npos);
  EXPECT_EQ(refused([](auto& options) { options.codec = SPILLWAY_CODEC_BLOCKS; }), "taken");
  EXPECT_NE(refused([](auto& options) {
              options.algorithm = SPILLWAY_ALGORITHM_SWITCH;
            }).find("levels or blocks"),
            std::string::npos);
  for (const double share : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_NE(refused([&](auto& options) {
                options.least_contributors = share;
              }).find("least_contributors"),
              std::string::npos);
  }
  EXPECT_NE(refused([](auto& options) { options.size = 1; }).find("size"), std::string::npos);
}

TEST(CApiOperationOptions, OfAnExactOperationOnlyWhatItUsesIsLookedAt) {
  spillway_operation_options options = spillway::default_operation_options();
  options.precision = 99;
  EXPECT_EQ(spillway_operation_options_check(&options), SPILLWAY_OK);
}

TEST(CApiCapabilities, AreTheSameTextEveryTime) {
  const std::string text = spillway_capabilities();
  EXPECT_NE(text.find("\"codec\": \"sketch\""), std::string::npos) << text;
  EXPECT_EQ(spillway_capabilities(), text);
}

TEST(CApiCommConfig, FreeingNothingIsFine) {
  spillway_comm_free(nullptr);
  spillway_request_free(nullptr);
  spillway_unique_id_discard(nullptr);
  EXPECT_EQ(spillway_comm_world(nullptr), 0U);
  EXPECT_EQ(spillway_request_test(nullptr), 0);
}

}  // namespace
