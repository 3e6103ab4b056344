// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/outlet.h"

#include <gtest/gtest.h>

#include "net/udp_socket.h"

namespace spillway::fabric {
namespace {

TEST(Writers, AreAQuarterOfTheCoresAndNoMoreThanPorts) {
  EXPECT_EQ(default_writers(4, 1), 0U);
  EXPECT_EQ(default_writers(4, 3), 0U);
  EXPECT_EQ(default_writers(4, 4), 1U);
  EXPECT_EQ(default_writers(4, 16), 4U);
  EXPECT_EQ(default_writers(4, 128), 4U);
  EXPECT_EQ(default_writers(64, 128), 32U);
}

class OutletTest : public testing::Test {
 protected:
  net::UdpSocket from_ =
      net::UdpSocket::open(net::SocketAddress::parse("127.0.0.1:0").value()).value();
  net::UdpSocket to_ =
      net::UdpSocket::open(net::SocketAddress::parse("127.0.0.1:0").value()).value();
};

TEST_F(OutletTest, AWriterThatGoesHasWrittenWhatItWasHanded) {
  to_.size_buffers(4 << 20);
  Outlet outlet(100, to_.local());
  constexpr std::uint8_t kMessages = 200;
  {
    Writer writer;
    outlet.use(writer);
    for (std::uint8_t i = 0; i < kMessages; ++i) {
      outlet.add(from_.fd(), 1, 0, base::Instant())[0] = i;
    }
    outlet.flush(from_.fd());
  }
  EXPECT_EQ(outlet.counters().sent, kMessages);
  EXPECT_EQ(outlet.counters().late.count(), kMessages);
  for (std::uint8_t i = 0; i < kMessages; ++i) {
    std::uint8_t byte = 0;
    ASSERT_EQ(::recv(to_.fd(), &byte, 1, MSG_DONTWAIT), 1);
    EXPECT_EQ(byte, i);
  }
}

TEST_F(OutletTest, WithoutAWriterAFlushIsWritten) {
  Outlet outlet(100, to_.local());
  outlet.add(from_.fd(), 3, 0, base::Instant());
  EXPECT_EQ(outlet.counters().sent, 0U);
  outlet.flush(from_.fd());
  outlet.wait_until_written();
  EXPECT_EQ(outlet.counters().sent, 1U);
}

}  // namespace
}  // namespace spillway::fabric
