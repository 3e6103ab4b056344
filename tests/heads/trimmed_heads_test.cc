// SPDX-License-Identifier: Apache-2.0
//
// A gradient on its way through the kernel switch: encoded, packetized, trimmed by the program to
// the fabric's trim size, decoded. The result must match the same trim in user space, to the bit,
// and be as good as the encoding promises.
#include <gtest/gtest.h>
#include <linux/bpf.h>

#include <bpf/bpf.h>

#include <cstring>
#include <vector>

#include "codec/sample_data.h"
#include "packetize/depacketizer.h"
#include "packetize/packetizer.h"
#include "switch/dataplane/frame.h"
#include "switch/dataplane/port_config.h"
#include "switch/kernel/measure/live_switch.h"
#include "switch/kernel/measure/probe_frames.h"
#include "switch/kernel/switch_object.h"

namespace spillway {
namespace {

constexpr std::uint32_t kLoopback = 1;
constexpr std::uint32_t kPort = 0;
constexpr std::size_t kHeaders = 42;  // Ethernet, IPv4, UDP
constexpr packetize::Job kJob{.id = 11, .epoch = 3, .seed = 0x5EED};
constexpr wire::MessageId kMessage{.operation = 1, .signature = 2, .piece = 3, .source = 4};

// A port whose data queues are full, so that every packet that can be trimmed is.
class FullPort {
 public:
  explicit FullPort(kernel::SwitchObject object, std::uint32_t trim_bytes)
      : object_(std::move(object)), maps_(object_.maps().value()) {
    spillway_station station = {};
    std::memcpy(station.address, kernel::kProbeReceiver, sizeof(kernel::kProbeReceiver));
    EXPECT_TRUE(maps_.write_station(station, kPort).ok());
    EXPECT_TRUE(maps_.write_interface(kPort, kLoopback).ok());
    spillway_switch_port switch_port = {};
    switch_port.config = dataplane::default_port_config(SPILLWAY_PORT_TRIM);
    switch_port.config.trim_bytes = trim_bytes;
    switch_port.config.control_queue_bytes = SPILLWAY_MAX_QUEUE_BYTES;
    EXPECT_TRUE(maps_.write_port(kPort, switch_port).ok());
    spillway_port_slot slot = {};
    slot.port.state.bytes[0] = switch_port.config.queue_bytes;
    slot.port.state.occupied = 1;
    slot.port.drained_ns = ~0ULL;  // it never drains
    EXPECT_EQ(::bpf_map_update_elem(maps_.fd(kernel::MapName::kSlots), &kPort, &slot, 0), 0);
  }

  // The UDP payload after the switch.
  std::vector<std::uint8_t> pass(base::ByteView payload) const {
    const kernel::Frame frame = kernel::frame_of({.traffic_class = 1 << 2}, payload);
    const auto run = kernel::run_program(object_.program_fd(kernel::Program::kXdp), frame);
    EXPECT_TRUE(run.ok()) << run.status().message();
    EXPECT_EQ(run->verdict, std::uint32_t{XDP_REDIRECT});
    // The lengths in the headers must match the frame: an ordinary socket relies on them.
    const std::uint32_t udp_length = spillway_load_be16(&run->frame[38]);
    EXPECT_EQ(udp_length, run->frame.size() - 34);
    EXPECT_EQ(spillway_load_be16(&run->frame[16]), run->frame.size() - 14);
    return {run->frame.begin() + kHeaders, run->frame.end()};
  }

 private:
  kernel::SwitchObject object_;
  kernel::SwitchMaps maps_;
};

struct Expectation {
  unsigned mtu;
  unsigned trim;
  double
      error;  // NMSE of a gradient of which only heads arrive (`spillway bench codec --part error`)
};

TEST(TrimmedHeads, DecodeAsWellAsTheEncodingPromises) {
  for (const Expectation& expected : std::initializer_list<Expectation>{{1500, 206, 0.461},
                                                                        {1500, 256, 0.227},
                                                                        {4096, 206, 0.565},
                                                                        {4096, 256, 0.540},
                                                                        {9000, 206, 0.565},
                                                                        {9000, 256, 0.540}}) {
    SCOPED_TRACE(testing::Message() << "MTU " << expected.mtu << ", trim " << expected.trim);
    base::Result<kernel::SwitchObject> object =
        kernel::SwitchObject::load({.programs = {kernel::Program::kXdp}});
    if (!object.ok()) {
      ASSERT_NE(object.status().message().find("CAP_BPF"), std::string::npos)
          << object.status().message();
      GTEST_SKIP() << "no right to load programs";
    }
    const FullPort port(std::move(object).value(), expected.trim);
    const std::vector<float> tensor = codec::gaussian_values(1 << 18, expected.trim);
    const packetize::PacketPlan plan =
        packetize::PacketPlan::make(tensor.size(),
                                    {.mtu = expected.mtu, .trim_bytes = expected.trim}, {})
            .value();
    const wire::PacketAuth auth = packetize::seeded_auth(kJob);
    const packetize::PacketBuffer packets =
        packetize::Packetizer(plan).packetize(tensor, kJob, {.message = kMessage}, auth);
    std::vector<float> through_kernel(tensor.size());
    std::vector<float> through_user_space(tensor.size());
    packetize::Depacketizer from_kernel(plan, kJob, kMessage, through_kernel,
                                        codec::Estimate::kUnbiased);
    packetize::Depacketizer from_user_space(plan, kJob, kMessage, through_user_space,
                                            codec::Estimate::kUnbiased);
    for (std::size_t i = 0; i < packets.size(); ++i) {
      from_kernel.add(port.pass(packets[i]), auth);
      from_user_space.add(
          packets[i].first(std::min<std::size_t>(packets[i].size(), expected.trim - kHeaders)),
          auth);
    }
    const packetize::DeliveryReport report = from_kernel.finish();
    from_user_space.finish();
    EXPECT_EQ(report.missing, 0U);
    EXPECT_GT(report.trimmed, report.expected * 9 / 10);
    EXPECT_EQ(through_kernel, through_user_space);
    EXPECT_NEAR(codec::nmse(through_kernel, tensor), expected.error, 0.03 * expected.error);
  }
}

}  // namespace
}  // namespace spillway
