// SPDX-License-Identifier: Apache-2.0
#include "elastic/job.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <future>
#include <numeric>
#include <thread>

#include "comm/job_testing.h"
#include "elastic/job_query.h"
#include "elastic/mesh.h"
#include "elastic/mesh_message.h"
#include "net/stranger_table.h"
#include "observe/observe_testing.h"

namespace spillway::elastic {
namespace {

using comm::testing_job::test_patience_duration;

// A member as a thread of this process. One that dies drops all it has without a goodbye.
struct TestMember {
  std::shared_ptr<comm::Communicator> communicator;
  std::unique_ptr<Job> job;
  Change change;

  // The epoch's communicator.
  void connect() {
    std::vector<std::uint16_t> ranks(change.world);
    std::iota(ranks.begin(), ranks.end(), std::uint16_t{0});
    base::Result<std::unique_ptr<comm::Communicator>> made = job->communicator(0, ranks);
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

// A member that waits for a processor is silent too; a dead one closes its streams.
membership::MemberConfig with_patience(membership::MemberConfig config) {
  config.silence = base::seconds(3600);
  config.answer_limit = test_patience_duration();
  config.quorum_limit = test_patience_duration();
  return config;
}

// Founds a job with `processes` members, the last of them standbys, and runs `body` at each.
void with_job(std::uint16_t processes, JobConfig config,
              const std::function<void(TestMember&, std::uint16_t)>& body,
              std::string_view secret = {}) {
  if (!secret.empty()) {
    config.communicator.secret = launch::Secret(secret);
  }
  config.membership = with_patience(config.membership);
  comm::testing_job::run_job(
      processes, 0,
      [&](comm::Communicator& founding) {
        TestMember member;
        base::Result<std::unique_ptr<Job>> job = Job::found(founding, config);
        ASSERT_TRUE(job.ok()) << job.status().message();
        member.job = std::move(job).value();
        member.change = *member.job->first_change();
        body(member, founding.rank());
      },
      secret);
}

// Runs the first epoch's sums up to `steps`, or until one fails.
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
        return;  // dies in the middle of the job
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

// Moves rank 1 with steps of this length. Returns false if a rank heard of it too late to finish
// its step.
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

// Ranks are told two steps ahead; on a busy machine steps must be longer for that.
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
    // The given ticket names a lost member; the file names a living one.
    const observe::TemporaryFolder folder;
    config.ticket_file = folder.file("ticket");
    ASSERT_TRUE(ticket.get().write_to(config.ticket_file).ok());
    Ticket gone = ticket.get();
    gone.addresses = {gone.addresses.front().with_port(1)};
    auto job = Job::join(gone, config);
    has_joined = !job.ok();  // else the others would train forever
    ASSERT_TRUE(job.ok()) << job.status().message();
    member.job = std::move(job).value();
    EXPECT_FALSE(member.job->first_change().has_value());
    // It knows the ranks once one of them has taken its hello.
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
    // No rank dies until the newcomer is known.
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

// A ticket names several members, and any living one suffices.
TEST(Job, IsFoundByAnyMemberThatItsTicketNames) {
  with_job(3, {}, [&](TestMember& member, std::uint16_t founder) {
    if (founder == 0) {
      Ticket ticket = member.job->ticket();
      EXPECT_EQ(ticket.addresses.size(), 3U);
      ticket.addresses = {ticket.addresses[0].with_port(1), ticket.addresses[2]};
      const auto told = ask_job(ticket, {}, "status", test_patience_duration());
      ASSERT_TRUE(told.ok()) << told.status().message();
      EXPECT_NE(told->find("\"rank\":2"), std::string::npos) << *told;
      const auto newcomer = Job::join(ticket, {.membership = with_patience({})});
      EXPECT_TRUE(newcomer.ok()) << newcomer.status().message();
    }
    EXPECT_EQ(member.job->finish(test_patience_duration()), std::optional(true));
  });
}

// A tool waits for a change as long as its steps take, even beyond a stranger's limit.
TEST(Job, AnswersAToolBehindAStepThatIsLongerThanAGreeting) {
  JobConfig config;
  config.standbys = 1;
  with_job(2, config, [&](TestMember& member, std::uint16_t founder) {
    if (founder == 1) {
      member.park(/*has_state=*/false, 0);
      EXPECT_TRUE(member.change.is_done) << member.change.why;
      return;
    }
    EXPECT_EQ(member.job->step(0, base::milliseconds(1)), Verdict::kGo);
    std::thread asking([&] {
      const auto answer = ask_job(member.job->ticket(), {}, "end", test_patience_duration());
      ASSERT_TRUE(answer.ok()) << answer.status().message();
      EXPECT_TRUE(answer->starts_with("done: ")) << *answer;
    });
    std::this_thread::sleep_for(std::chrono::nanoseconds(Mesh::kHelloTimeout.count()) +
                                std::chrono::seconds(1));  // step 0
    std::uint64_t step = 1;
    while (member.job->step(step, base::milliseconds(1)) == Verdict::kGo) {
      ++step;
    }
    member.park(/*has_state=*/true, step);
    EXPECT_EQ(member.change.outcome, membership::Outcome::kEnds);
    asking.join();
  });
}

// The parts are ranks 0 and 2, and 1 and 3: sealed frames of one part must neither open nor be
// replayable in the other.
TEST(Job, PartsOfAPartitionShareNoKey) {
  std::array<wire::RunKey, 4> parts;  // by founder
  std::array<wire::RunKey, 4> all;
  JobConfig config;
  config.channels = 2;
  with_job(4, config, [&](TestMember& member, std::uint16_t founder) {
    const auto first = static_cast<std::uint16_t>(founder % 2);
    const std::array<std::uint16_t, 2> part = {first, static_cast<std::uint16_t>(first + 2)};
    const std::array<std::uint16_t, 2> twice = {founder, founder};
    EXPECT_FALSE(member.job->communicator(1, twice).ok());
    member.connect();
    all[founder] = member.communicator->job_roots()->key;
    member.communicator = member.job->communicator(1, part).value();
    parts[founder] = member.communicator->job_roots()->key;
    float sum = 0;
    EXPECT_TRUE(member.sum_of_ones(sum).ok());
    EXPECT_EQ(sum, 2.0F);
    EXPECT_EQ(member.job->finish(test_patience_duration()), std::optional(true));
  });
  EXPECT_EQ(parts[0], parts[2]);
  EXPECT_EQ(parts[1], parts[3]);
  EXPECT_NE(parts[0], parts[1]);
  EXPECT_EQ(all[0], all[1]);
  EXPECT_NE(all[0], parts[0]);
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
          stranger.communicator.secret = launch::Secret(kOther);
          EXPECT_FALSE(Job::join(ticket, stranger).ok());
          EXPECT_EQ(member.job->finish(test_patience_duration()), std::optional(true));
        } else {
          member.park(/*has_state=*/false, 0);
          EXPECT_TRUE(member.change.is_done);
        }
      },
      kSecret);
}

// A stranger needs no key to connect. All strangers together get only a share of the descriptors,
// and a holder of the ticket is still answered.
TEST(Job, StrangersThatConnectHoldAShareOfTheDescriptors) {
  JobConfig config;
  config.standbys = 1;
  with_job(2, config, [&](TestMember& member, std::uint16_t founder) {
    if (founder != 0) {
      member.park(/*has_state=*/false, 0);
      EXPECT_TRUE(member.change.is_done);
      return;
    }
    const std::size_t most =
        net::StrangerTable::most_of(net::StrangerTable::files_of_process(), Mesh::kStrangerBytes);
    const Ticket& ticket = member.job->ticket();
    const comm::StreamAddress address =
        comm::stream_address_of(ticket.addresses.front(), ticket.addresses.front().to_string());
    std::vector<net::UniqueFd> flood;
    for (std::size_t i = 0; i < most + 1; ++i) {
      base::Result<net::UniqueFd> stranger = comm::connect_to(address, test_patience_duration());
      ASSERT_TRUE(stranger.ok()) << stranger.status().message();
      flood.push_back(std::move(stranger).value());
    }
    const auto told = ask_job(ticket, {}, "status", test_patience_duration());
    ASSERT_TRUE(told.ok()) << told.status().message();
    std::size_t held = 0;
    std::uint8_t byte = 0;
    for (const net::UniqueFd& stranger : flood) {
      const ssize_t got = ::recv(stranger.get(), &byte, 1, MSG_DONTWAIT);
      held += got < 0 && errno == EAGAIN ? 1 : 0;
    }
    EXPECT_LE(held, most / net::StrangerTable::kSourceShare);
    EXPECT_EQ(member.job->finish(test_patience_duration()), std::optional(true));
  });
}

TEST(Ticket, IsWrittenAndReadAgain) {
  Ticket ticket{.addresses = {net::SocketAddress::parse("10.0.0.3:41234").value()},
                .job = {1, 2, 3, 0xFF}};
  for (const char* more : {"[fe80::1]:9", "10.0.0.4:41234", ""}) {
    const auto parsed = parse_ticket(ticket.to_string());
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->addresses, ticket.addresses);
    EXPECT_EQ(parsed->job, ticket.job);
    if (*more != 0) {
      ticket.addresses.push_back(net::SocketAddress::parse(more).value());
    }
  }
}

TEST(Ticket, OfAnyOtherTextIsAnError) {
  for (const char* text :
       {"", "/", "10.0.0.3:41234", "10.0.0.3:41234/12", "10.0.0.3/00000000000000000000000000000000",
        "10.0.0.3:0/00000000000000000000000000000000",
        "10.0.0.3:1/0000000000000000000000000000000g",
        "10.0.0.3:1,/00000000000000000000000000000000",
        ",10.0.0.3:1/00000000000000000000000000000000",
        "10.0.0.3:1,10.0.0.3:0/00000000000000000000000000000000",
        "1.1.1.1:1,1.1.1.1:2,1.1.1.1:3,1.1.1.1:4/00000000000000000000000000000000"}) {
    const auto parsed = parse_ticket(text);
    EXPECT_FALSE(parsed.ok()) << text;
  }
}

TEST(MeshMessage, IsReadAsItWasWritten) {
  const MemberHello hello{.job = {7},
                          .standing = elastic::Standing::kNewcomer,
                          .key = {9, 8, 7},
                          .version = "0.1",
                          .card = {.id = 42,
                                   .address = net::SocketAddress::parse("127.0.0.1:99").value(),
                                   .name = "host:1"}};
  const auto heard = parse_member_hello(encode(hello).body);
  ASSERT_TRUE(heard.ok());
  EXPECT_EQ(heard->card, hello.card);
  EXPECT_EQ(heard->standing, hello.standing);
  EXPECT_EQ(heard->key, hello.key);
  const MemberWelcome welcome{.key = {}, .cards = {hello.card, hello.card}};
  const auto welcomed = parse_member_welcome(encode(welcome).body);
  ASSERT_TRUE(welcomed.ok());
  EXPECT_EQ(welcomed->cards, welcome.cards);
}

TEST(MeshMessage, NamesCannotDriveATerminal) {
  const MemberCard card{.id = 42,
                        .address = net::SocketAddress::parse("127.0.0.1:99").value(),
                        .name = "\x1b[2Jhost\n\xff:1"};
  const auto heard =
      parse_member_hello(encode(MemberHello{.job = {}, .version = "\a", .card = card}).body);
  ASSERT_TRUE(heard.ok());
  EXPECT_EQ(heard->card.name, "\\x1b[2Jhost\\x0a\\xff:1");
  EXPECT_EQ(heard->version, "\\x07");
}

TEST(MeshMessage, CutAnywhereIsAnError) {
  const MemberCard card{
      .id = 42, .address = net::SocketAddress::parse("127.0.0.1:99").value(), .name = "host:1"};
  const comm::Frame hello = encode(MemberHello{.job = {}, .version = "0.1", .card = card});
  const comm::Frame welcome = encode(MemberWelcome{.key = {}, .cards = {card}});
  for (std::size_t bytes = 0; bytes < hello.body.size(); ++bytes) {
    EXPECT_FALSE(parse_member_hello(base::ByteView(hello.body).first(bytes)).ok());
  }
  for (std::size_t bytes = 0; bytes < welcome.body.size(); ++bytes) {
    EXPECT_FALSE(parse_member_welcome(base::ByteView(welcome.body).first(bytes)).ok());
  }
}

TEST(JobHandle, HoldsACardPerChannel) {
  const std::vector<comm::Blob> cards = {{1, 2, 3}, {}, {4}};
  const auto handle = encode_handle(cards);
  ASSERT_TRUE(handle.ok());
  EXPECT_EQ(parse_handle(*handle).value(), cards);
  EXPECT_FALSE(parse_handle(membership::Handle(handle->begin(), handle->end() - 1)).ok());
  EXPECT_FALSE(encode_handle({comm::Blob(membership::kMaxHandleBytes)}).ok());
}

}  // namespace
}  // namespace spillway::elastic
