// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "elastic/job_query.h"
#include "observe/observe_testing.h"

namespace spillway::elastic {

namespace {

JobReport three_ranks_and_a_standby() {
  return {.job = "3f09",
          .epoch = 4,
          .rank = 1,
          .step = 70,
          .members = {{0, 0xa, "host0:7", "10.0.0.1:9"},
                      {1, 0xb, "host1:7", "10.0.0.2:9"},
                      {2, 0xc, "ho\"st", "10.0.0.3:9"},
                      {std::nullopt, 0xd, "host3:7", "10.0.0.4:9", true}},
          .stragglers = {"rank 2 takes 3.0 times as long as the median"},
          .changes = 3,
          .interruptions = 2,
          .stopping = base::milliseconds(1500),
          .deciding = base::milliseconds(250)};
}

TEST(JobReport, IsToldToMonitoring) {
  const std::string text = metrics_text(three_ranks_and_a_standby());
  for (const char* line :
       {"# TYPE spillway_job_epoch gauge\n", "spillway_job_epoch{job=\"3f09\"} 4\n",
        "spillway_job_rank{job=\"3f09\"} 1\n", "spillway_job_step{job=\"3f09\"} 70\n",
        "spillway_job_members{job=\"3f09\",standing=\"rank\"} 3\n",
        "spillway_job_members{job=\"3f09\",standing=\"standby\"} 1\n",
        "spillway_job_stragglers{job=\"3f09\"} 1\n", "# TYPE spillway_job_changes_total counter\n",
        "spillway_job_changes_total{job=\"3f09\"} 3\n",
        "spillway_job_interruptions_total{job=\"3f09\"} 2\n",
        "spillway_job_pause_seconds_total{job=\"3f09\",phase=\"stop\"} 1.5\n",
        "spillway_job_pause_seconds_total{job=\"3f09\",phase=\"decide\"} 0.25\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "is not in\n" << text;
  }
  JobReport standby = three_ranks_and_a_standby();
  standby.rank.reset();
  EXPECT_NE(metrics_text(standby).find("spillway_job_rank{job=\"3f09\"} -1\n"), std::string::npos);
}

TEST(JobReport, IsToldToTools) {
  const std::string text = status_json(three_ranks_and_a_standby());
  EXPECT_NE(text.find("{\"rank\":2,\"id\":\"000000000000000c\",\"name\":\"ho\\\"st\","),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("{\"rank\":null,\"id\":\"000000000000000d\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"10.0.0.4:9\",\"waits\":true}"), std::string::npos) << text;
}

TEST(JobQuestion, SaysWhatIsWantedOrHowToSayIt) {
  EXPECT_EQ(parse_request("move 2 3")->ranks, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(parse_request("grow 2")->places, 2U);
  EXPECT_EQ(parse_request("grow 2")->kind, membership::RequestKind::kGrow);
  EXPECT_EQ(parse_request("end")->kind, membership::RequestKind::kEnd);
  const auto refusal = [](const char* question) {
    return parse_request(question).status().message();
  };
  EXPECT_EQ(refusal("grow"), "\"grow\": say by how many ranks, as in \"grow 2\"");
  EXPECT_EQ(refusal("grow 2 3"), "\"grow 2 3\": say by how many ranks, as in \"grow 2\"");
  EXPECT_EQ(refusal("remove x"), "\"remove x\": name the ranks, as in \"remove 2\"");
  EXPECT_EQ(parse_request("end")->why, "");
  EXPECT_EQ(parse_request("end  the disk is full")->why, "the disk is full");
  EXPECT_EQ(refusal("dance"),
            "\"dance\" is no question that a job answers; ask status, move, remove, grow or end");
}

// ------------------------------------------------------------------ tickets

constexpr const char* kTicketText = "10.0.0.3:41234/000102030405060708090a0b0c0d0e0f";

TEST(Ticket, IsReadAsItWasWritten) {
  const base::Result<Ticket> ticket = parse_ticket(kTicketText);
  ASSERT_TRUE(ticket.ok());
  const observe::TemporaryFolder folder;
  ASSERT_TRUE(ticket->write_to(folder.file("job")).ok());
  EXPECT_EQ(*ticket_text_in(folder.file("job")), kTicketText);
  EXPECT_NE(ticket->write_to("/nowhere/job").message().find("SPILLWAY_JOB_FILE"),
            std::string::npos);
}

TEST(Ticket, IsForItsOwnerAlone) {
  const observe::TemporaryFolder folder;
  ASSERT_TRUE(parse_ticket(kTicketText)->write_to(folder.file("job")).ok());
  struct stat file {};
  ASSERT_EQ(::stat(folder.file("job").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777U, 0600U);
  ASSERT_EQ(::chmod(folder.file("job").c_str(), 0644), 0);
  EXPECT_NE(ticket_text_in(folder.file("job")).status().message().find("chmod 600"),
            std::string::npos);
}

TEST(Ticket, HasANameThatDoesNotGiveItAway) {
  const Ticket ticket = *parse_ticket(kTicketText);
  EXPECT_EQ(ticket.name().size(), 16U);
  EXPECT_EQ(ticket.name(), parse_ticket(kTicketText)->name());
  EXPECT_EQ(ticket.to_string().find(ticket.name()), std::string::npos);
  Ticket other = ticket;
  other.job[0] ^= 1;
  EXPECT_NE(other.name(), ticket.name());
}

}  // namespace

}  // namespace spillway::elastic
