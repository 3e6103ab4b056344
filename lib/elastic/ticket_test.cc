// SPDX-License-Identifier: Apache-2.0
#include "elastic/ticket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "observe/observe_testing.h"

namespace spillway::runtime {
namespace {

constexpr const char* kTicketText = "10.0.0.3:41234/000102030405060708090a0b0c0d0e0f";

TEST(Ticket, IsReadAsItWasWritten) {
  const base::Result<Ticket> ticket = parse_ticket(kTicketText);
  ASSERT_TRUE(ticket.ok());
  const TemporaryFolder folder;
  ASSERT_TRUE(ticket->write_to(folder.file("job")).ok());
  EXPECT_EQ(*ticket_text_in(folder.file("job")), kTicketText);
  EXPECT_NE(ticket->write_to("/nowhere/job").message().find("SPILLWAY_JOB_FILE"),
            std::string::npos);
}

TEST(Ticket, IsForItsOwnerAlone) {
  const TemporaryFolder folder;
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
}  // namespace spillway::runtime
