// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/job.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <numeric>
#include <thread>

#include "runtime/job/handle.h"
#include "runtime/job/mesh_message.h"
#include "runtime/job/question.h"
#include "runtime/job_testing.h"

namespace spillway::runtime {
namespace {

using testing_job::test_patience_duration;

// Members as threads of this process. One that dies lets go of all it has without a word.
struct TestMember {
  std::shared_ptr<Communicator> communicator;
  std::unique_ptr<Job> job;
  Change change;

  // The epoch's communicator.
  void connect() {
    std::vector<std::uint16_t> ranks(change.world);
    std::iota(ranks.begin(), ranks.end(), std::uint16_t{0});
    base::Result<std::unique_ptr<Communicator>> made = job->communicator(0, ranks);
    ASSERT_TRUE(made.ok()) << made.status().message();
    communicator = std::move(made).value();
    job->watch(communicator);
  }
  void park(bool has_state, std::uint64_t step) {
    communicator.reset();
    const auto parked = job->park({.has_state = has_state, .step = step, .is_warm = true},
                                  test_patience_duration());
    ASSERT_TRUE(parked.ok()) << parked.status().message();
    ASSERT_TRUE(parked->has_value()) << "no decision in time";
    change = **parked;
  }
  base::Status sum_of_ones(float& sum) {
    const float one = 1.0F;
    collective::Operation operation;
    operation.count = 1;
    operation.input = &one;
    operation.output = &sum;
    const auto request = communicator->submit(operation);
    return request.ok() ? *(*request)->wait(std::nullopt) : request.status();
  }
};

// A member that waits for a processor is silent, too; one that dies closes its streams.
membership::MemberConfig with_patience(membership::MemberConfig config) {
  config.silence = base::seconds(3600);
  config.answer_limit = test_patience_duration();
  config.quorum_limit = test_patience_duration();
  return config;
}

// Founds a job with so many processes, of which the last are standbys, and runs `body` at each.
void with_job(std::uint16_t processes, JobConfig config,
              const std::function<void(TestMember&, std::uint16_t)>& body,
              std::string_view secret = {}) {
  if (!secret.empty()) {
    config.communicator.secret = Secret(secret);
  }
  config.membership = with_patience(config.membership);
  testing_job::run_job(
      processes, 0,
      [&](Communicator& founding) {
        TestMember member;
        base::Result<std::unique_ptr<Job>> job = Job::found(founding, config);
        ASSERT_TRUE(job.ok()) << job.status().message();
        member.job = std::move(job).value();
        member.change = *member.job->first_change();
        body(member, founding.rank());
      },
      secret);
}

// The first epoch's sums, up to `steps`, or until one fails.
std::uint64_t train(TestMember& member, std::uint64_t from, std::uint64_t steps) {
  for (std::uint64_t step = from; step < steps; ++step) {
    float sum = 0;
    if (member.job->step(step, base::milliseconds(1)) == Verdict::kStop ||
        !member.sum_of_ones(sum).ok()) {
      return step;
    }
    EXPECT_EQ(sum, static_cast<float>(member.change.world));
  }
  return steps;
}

TEST(Job, AStandbyTakesTheDeadRanksPlace) {
  std::atomic<int> ended{0};
  JobConfig config;
  config.standbys = 1;
  with_job(4, config, [&](TestMember& member, std::uint16_t founder) {
    if (founder == 3) {
      EXPECT_FALSE(member.change.rank.has_value());
      member.park(/*has_state=*/false, 0);
      EXPECT_EQ(member.change.rank, std::uint16_t{1});
    } else {
      member.connect();
      const std::uint64_t reached = train(member, 0, founder == 1 ? 5 : 1000);
      if (founder == 1) {
        return;  // gone, in the middle of the job
      }
      EXPECT_LT(reached, 1000U);
      member.park(/*has_state=*/true, reached);
      EXPECT_EQ(member.change.rank, founder);
    }
    EXPECT_EQ(member.change.epoch, 2U);
    EXPECT_EQ(member.change.world, 3);
    EXPECT_NE(member.change.why.find("rank 1"), std::string::npos) << member.change.why;
    EXPECT_EQ(member.change.sources.size(), 2U);
    member.connect();
    EXPECT_EQ(train(member, member.change.step, member.change.step + 20), member.change.step + 20);
    EXPECT_EQ(member.job->finish(test_patience_duration()), std::optional(true));
    ++ended;
  });
  EXPECT_EQ(ended, 3);
}

TEST(Job, GoesOnWithFewerWhereItMay) {
  JobConfig config;
  config.membership.size.may_shrink = true;
  with_job(3, config, [&](TestMember& member, std::uint16_t founder) {
    member.connect();
    const std::uint64_t reached = train(member, 0, founder == 0 ? 3 : 1000);
    if (founder == 0) {
      return;
    }
    member.park(/*has_state=*/true, reached);
    EXPECT_EQ(member.change.world, 2);
    EXPECT_EQ(member.change.rank, static_cast<std::uint16_t>(founder - 1));
    member.connect();
    train(member, member.change.step, member.change.step + 5);
    EXPECT_EQ(member.job->finish(test_patience_duration()), std::optional(true));
  });
}

TEST(Job, EndsWithASentenceWhereNobodyIsLeftToTakeThePlace) {
  with_job(3, {}, [&](TestMember& member, std::uint16_t founder) {
    member.connect();
    const std::uint64_t reached = train(member, 0, founder == 2 ? 3 : 1000);
    if (founder == 2) {
      return;
    }
    member.park(/*has_state=*/true, reached);
    EXPECT_EQ(member.change.outcome, membership::Outcome::kEnds);
    EXPECT_NE(member.change.why.find("rank 2"), std::string::npos) << member.change.why;
  });
}

// Moves rank 1, with steps that take so long. False: somebody heard of it too late to end its step.
bool moves_without_interruption(base::Duration step_time) {
  std::atomic<bool> is_interrupted{false};
  JobConfig config;
  config.standbys = 1;
  with_job(3, config, [&](TestMember& member, std::uint16_t founder) {
    std::thread asking;
    if (founder == 0) {
      asking = std::thread([&] {
        const auto answer = ask_job(member.job->ticket(), {}, "move 1", test_patience_duration());
        ASSERT_TRUE(answer.ok()) << answer.status().message();
        EXPECT_TRUE(answer->starts_with("done: ")) << *answer;
      });
    }
    std::uint64_t step = 0;
    if (founder == 2) {
      member.park(/*has_state=*/false, 0);
    } else {
      member.connect();
      while (member.job->step(step, base::milliseconds(1)) == Verdict::kGo) {
        float sum = 0;
        if (!member.sum_of_ones(sum).ok()) {
          is_interrupted = true;
          break;
        }
        ++step;
        std::this_thread::sleep_for(std::chrono::nanoseconds(step_time.count()));
      }
      member.park(/*has_state=*/true, step);
      EXPECT_TRUE(member.change.step == step || is_interrupted);
    }
    if (founder == 1) {
      EXPECT_FALSE(member.change.rank.has_value());
      member.park(/*has_state=*/false, 0);  // until the job is done
      EXPECT_TRUE(member.change.is_done) << member.change.why;
    } else {
      EXPECT_EQ(member.change.rank, founder == 0 ? std::uint16_t{0} : std::uint16_t{1});
      member.connect();
      train(member, member.change.step, member.change.step + 3);
      EXPECT_EQ(member.job->finish(test_patience_duration()), std::optional(true));
    }
    if (asking.joinable()) {
      asking.join();
    }
  });
  return !is_interrupted;
}

// Ranks are told of it two steps ahead; on a busy machine steps must be longer for that.
TEST(Job, MovesARankWhenItIsAskedTo) {
  base::Duration step_time = base::milliseconds(30);
  while (!moves_without_interruption(step_time)) {
    step_time = step_time * 4;
    ASSERT_LT(step_time, test_patience_duration());
  }
}

TEST(Job, AProcessThatComesLaterIsAStandby) {
  std::promise<Ticket> told;
  std::shared_future<Ticket> ticket = told.get_future().share();
  std::atomic<bool> has_joined{false};
  std::thread newcomer([&] {
    TestMember member;
    JobConfig config;
    config.membership = with_patience({});
    auto job = Job::join(ticket.get(), config);
    has_joined = !job.ok();  // nobody trains for ever
    ASSERT_TRUE(job.ok()) << job.status().message();
    member.job = std::move(job).value();
    EXPECT_FALSE(member.job->first_change().has_value());
    // It knows of the ranks once one of them has taken its hello.
    while (!has_joined) {
      const auto status = member.job->ask("status", test_patience_duration());
      has_joined = status.ok() && status->find("\"epoch\":1,") != std::string::npos;
    }
    member.park(/*has_state=*/false, 0);
    EXPECT_EQ(member.change.rank, std::uint16_t{2});
    member.connect();
    train(member, member.change.step, member.change.step + 5);
    EXPECT_EQ(member.job->finish(test_patience_duration()), std::optional(true));
  });
  with_job(3, {}, [&](TestMember& member, std::uint16_t founder) {
    member.connect();
    if (founder == 0) {
      told.set_value(member.job->ticket());
    }
    std::uint64_t step = 0;
    // Until the newcomer is known nobody dies.
    while (!has_joined) {
      step = train(member, step, step + 1);
    }
    if (founder == 2) {
      return;
    }
    const std::uint64_t reached = train(member, step, step + 10'000'000);
    member.park(/*has_state=*/true, reached);
    EXPECT_EQ(member.change.world, 3) << member.change.why;
    member.connect();
    train(member, member.change.step, member.change.step + 5);
    EXPECT_EQ(member.job->finish(test_patience_duration()), std::optional(true));
  });
  newcomer.join();
}

TEST(Job, AnswersOnlyWhoKnowsItsSecret) {
  constexpr std::string_view kSecret = "sixteen bytes or more";
  constexpr std::string_view kOther = "another secret of the same kind";
  const auto bytes = [](std::string_view text) {
    return base::ByteView(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  };
  JobConfig config;
  config.standbys = 1;
  with_job(
      2, config,
      [&](TestMember& member, std::uint16_t founder) {
        if (founder == 0) {
          const Ticket& ticket = member.job->ticket();
          const auto told = ask_job(ticket, bytes(kSecret), "status", test_patience_duration());
          ASSERT_TRUE(told.ok()) << told.status().message();
          EXPECT_NE(told->find("\"epoch\":1"), std::string::npos) << *told;
          EXPECT_FALSE(ask_job(ticket, bytes(kOther), "status", test_patience_duration()).ok());
          EXPECT_FALSE(ask_job(ticket, {}, "status", test_patience_duration()).ok());
          const auto refused = ask_job(ticket, bytes(kSecret), "dance", test_patience_duration());
          EXPECT_TRUE(refused.ok() && refused->starts_with("refused: "));
          JobConfig stranger;
          stranger.communicator.secret = Secret(kOther);
          EXPECT_FALSE(Job::join(ticket, stranger).ok());
          EXPECT_EQ(member.job->finish(test_patience_duration()), std::optional(true));
        } else {
          member.park(/*has_state=*/false, 0);
          EXPECT_TRUE(member.change.is_done);
        }
      },
      kSecret);
}

TEST(Ticket, IsWrittenAndReadAgain) {
  const Ticket ticket{.address = net::SocketAddress::parse("10.0.0.3:41234").value(),
                      .job = {1, 2, 3, 0xFF}};
  const auto parsed = parse_ticket(ticket.to_string());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->address, ticket.address);
  EXPECT_EQ(parsed->job, ticket.job);
}

TEST(Ticket, OfAnyOtherTextIsAnError) {
  for (const char* text :
       {"", "/", "10.0.0.3:41234", "10.0.0.3:41234/12", "10.0.0.3/00000000000000000000000000000000",
        "10.0.0.3:0/00000000000000000000000000000000",
        "10.0.0.3:1/0000000000000000000000000000000g"}) {
    const auto parsed = parse_ticket(text);
    EXPECT_FALSE(parsed.ok()) << text;
  }
}

TEST(MeshMessage, IsReadAsItWasWritten) {
  const MemberHello hello{.job = {7},
                          .standing = runtime::Standing::kNewcomer,
                          .version = "0.1",
                          .card = {.id = 42,
                                   .address = net::SocketAddress::parse("127.0.0.1:99").value(),
                                   .name = "host:1"}};
  const auto heard = parse_member_hello(encode(hello).body);
  ASSERT_TRUE(heard.ok());
  EXPECT_EQ(heard->card, hello.card);
  EXPECT_EQ(heard->standing, hello.standing);
  const MemberWelcome welcome{.key = {}, .cards = {hello.card, hello.card}};
  const auto welcomed = parse_member_welcome(encode(welcome).body);
  ASSERT_TRUE(welcomed.ok());
  EXPECT_EQ(welcomed->cards, welcome.cards);
}

TEST(MeshMessage, CutAnywhereIsAnError) {
  const MemberCard card{
      .id = 42, .address = net::SocketAddress::parse("127.0.0.1:99").value(), .name = "host:1"};
  const Frame hello = encode(MemberHello{.job = {}, .version = "0.1", .card = card});
  const Frame welcome = encode(MemberWelcome{.key = {}, .cards = {card}});
  for (std::size_t bytes = 0; bytes < hello.body.size(); ++bytes) {
    EXPECT_FALSE(parse_member_hello(base::ByteView(hello.body).first(bytes)).ok());
  }
  for (std::size_t bytes = 0; bytes < welcome.body.size(); ++bytes) {
    EXPECT_FALSE(parse_member_welcome(base::ByteView(welcome.body).first(bytes)).ok());
  }
}

TEST(JobHandle, HoldsACardPerChannel) {
  const std::vector<Blob> cards = {{1, 2, 3}, {}, {4}};
  const auto handle = encode_handle(cards);
  ASSERT_TRUE(handle.ok());
  EXPECT_EQ(parse_handle(*handle).value(), cards);
  EXPECT_FALSE(parse_handle(membership::Handle(handle->begin(), handle->end() - 1)).ok());
  EXPECT_FALSE(encode_handle({Blob(membership::kMaxHandleBytes)}).ok());
}

}  // namespace
}  // namespace spillway::runtime
