// SPDX-License-Identifier: Apache-2.0
#include "net/metrics_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

namespace spillway::net {
namespace {

std::string ask(const SocketAddress& server, const std::string& request) {
  const UniqueFd fd(::socket(server.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), server.data(), server.size()), 0);
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
  ask(at, "GET /metrics " + std::string(100'000, 'x'));  // hung up on; what follows still works
  EXPECT_TRUE(ask(at, "GET /metrics HTTP/1.1\r\n\r\n").ends_with("asked 2"));
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
