// SPDX-License-Identifier: Apache-2.0
#include "net/metrics_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <vector>

namespace spillway::net {
namespace {

UniqueFd connect_client(const SocketAddress& server) {
  UniqueFd fd(::socket(server.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), server.data(), server.size()), 0);
  return fd;
}

std::string ask(const SocketAddress& server, const std::string& request) {
  const UniqueFd fd = connect_client(server);
  ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
  ::shutdown(fd.get(), SHUT_WR);
  std::string answer;
  std::array<char, 1024> part{};
  for (ssize_t got = 0; (got = ::recv(fd.get(), part.data(), part.size(), 0)) > 0;) {
    answer.append(part.data(), static_cast<std::size_t>(got));
  }
  return answer;
}

TEST(MetricsServer, AnswersForMetricsAndNothingElse) {
  int asked = 0;
  const auto server = MetricsServer::start(SocketAddress::parse("127.0.0.1:0").value(),
                                           [&asked] { return "asked " + std::to_string(++asked); });
  ASSERT_TRUE(server.ok()) << server.status().message();
  const SocketAddress at = (*server)->address();
  EXPECT_NE(at.port(), 0);
  const std::string answer = ask(at, "GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.0 200 OK\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\nasked 1"));
  EXPECT_TRUE(ask(at, "GET /other HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 404"));
  EXPECT_TRUE(ask(at, "POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 400"));
  EXPECT_TRUE(ask(at, "GET /metrics").starts_with("HTTP/1.0 400"));
  EXPECT_TRUE(ask(at, "").starts_with("HTTP/1.0 400"));
  ask(at, "GET /metrics " + std::string(100'000, 'x'));  // hangs up; later requests work
  EXPECT_TRUE(ask(at, "GET /metrics HTTP/1.1\r\n\r\n").ends_with("asked 2"));
}

bool is_open(const UniqueFd& fd) {
  char byte = 0;
  return ::recv(fd.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

TEST(MetricsServer, ClientsThatSayNothingKeepNobodyWaitingAndTheOldestGoes) {
  const auto server =
      MetricsServer::start(SocketAddress::parse("127.0.0.1:0").value(), [] { return "fine"; });
  ASSERT_TRUE(server.ok()) << server.status().message();
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < MetricsServer::kMaxConnections + 4; ++i) {
    silent.push_back(connect_client((*server)->address()));
  }
  EXPECT_TRUE(ask((*server)->address(), "GET /metrics HTTP/1.0\r\n\r\n").ends_with("fine"));
  EXPECT_FALSE(is_open(silent.front()));
}

// A flood from one address does not displace other clients.
TEST(MetricsServer, AnotherAddressKeepsItsPlace) {
  const auto server =
      MetricsServer::start(SocketAddress::parse("127.0.0.1:0").value(), [] { return "fine"; });
  ASSERT_TRUE(server.ok()) << server.status().message();
  const UniqueFd waits(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress elsewhere = SocketAddress::parse("127.0.0.2:0").value();
  ASSERT_EQ(::bind(waits.get(), elsewhere.data(), elsewhere.size()), 0);
  const SocketAddress at = (*server)->address();
  ASSERT_EQ(::connect(waits.get(), at.data(), at.size()), 0);
  std::vector<UniqueFd> flood;
  for (std::size_t i = 0; i < 2 * MetricsServer::kMaxConnections; ++i) {
    flood.push_back(connect_client(at));
  }
  EXPECT_TRUE(ask(at, "GET /metrics HTTP/1.0\r\n\r\n").ends_with("fine"));
  EXPECT_TRUE(is_open(waits));
}

TEST(MetricsServer, ABytePerReadDoesNotProlongARequest) {
  constexpr int kPollMs = 10;  // between two bytes
  const auto server =
      MetricsServer::start(SocketAddress::parse("127.0.0.1:0").value(), [] { return ""; });
  ASSERT_TRUE(server.ok()) << server.status().message();
  const UniqueFd slow = connect_client((*server)->address());
  std::size_t said = 0;
  pollfd closed{slow.get(), POLLIN, 0};
  while (said < MetricsServer::kMaxRequestBytes && ::poll(&closed, 1, kPollMs) == 0) {
    said += ::send(slow.get(), "x", 1, MSG_NOSIGNAL) == 1 ? 1 : 0;
  }
  EXPECT_LT(said, MetricsServer::kMaxRequestBytes);
}

TEST(MetricsServer, AnAddressThatIsTakenIsASentence) {
  const auto first =
      MetricsServer::start(SocketAddress::parse("127.0.0.1:0").value(), [] { return ""; });
  ASSERT_TRUE(first.ok());
  const auto second = MetricsServer::start((*first)->address(), [] { return ""; });
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("choose another port"), std::string::npos);
}

}  // namespace
}  // namespace spillway::net
