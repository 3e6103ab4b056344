// SPDX-License-Identifier: Apache-2.0
//
// A message whose packets are cut, corrupted, duplicated, lost, or mixed with foreign and forged
// ones.
//
// The input is a list of four-byte commands (what, which packet, where, with what). The report must
// add up, and every value must be finite and bounded. If all packets also arrive whole, the message
// must decode exactly. Planes that are kept and decoded at the end give the same values.
#include <algorithm>
#include <cmath>
#include <vector>

#include "codec/sample_data.h"
#include "fuzzing.h"
#include "packetize/depacketizer.h"
#include "packetize/packetizer.h"

using namespace spillway::packetize;
namespace base = spillway::base;
namespace codec = spillway::codec;
namespace wire = spillway::wire;
using spillway::fuzzing::require;

namespace {

constexpr std::size_t kLength = 3000;  // three rows of 1024, the last one padded
constexpr Job kJob{.id = 1, .epoch = 2, .seed = 3};
constexpr wire::MessageId kMessage{.operation = 4, .signature = 5, .piece = 6, .source = 7};

struct Sender {
  std::vector<float> tensor = codec::gaussian_values(kLength, 1);
  PacketPlan plan =
      PacketPlan::make(kLength, {.mtu = 600}, {.precision = 12, .row_log2 = 10}).value();
  wire::PacketAuth auth = seeded_auth(kJob);
  PacketBuffer packets = Packetizer(plan).packetize(tensor, kJob, {.message = kMessage}, auth);
  PacketBuffer foreign = Packetizer(plan).packetize(
      tensor, kJob, {.message = {.operation = 99, .signature = 5, .piece = 6, .source = 7}}, auth);
  std::vector<float> exact = decode_all();

  std::vector<float> decode_all() const {
    std::vector<float> out(kLength);
    Depacketizer receiver(plan, kJob, kMessage, out);
    for (std::size_t i = 0; i < packets.size(); ++i) {
      receiver.add(packets[i], auth);
    }
    receiver.finish();
    return out;
  }
};

const Sender& sender() {
  static const Sender made;
  return made;
}

std::vector<float> decode_kept(const PacketPlan& plan, const KeptPlanes& kept) {
  std::vector<float> out(kLength);
  Depacketizer receiver(plan, kJob, kMessage, out);
  for (std::size_t packet = 0; packet < plan.packet_count(); ++packet) {
    if (kept.bytes[packet] > 0) {
      receiver.add_planes(packet_header(plan, packet, kept.rows[plan.place(packet).row]),
                          kept.planes_of(plan, packet));
    }
  }
  receiver.finish();
  return out;
}

// Estimates for lost packets stay below the packets of a row times the largest norm.
constexpr float kBound = 1e4F;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Sender& from = sender();
  std::vector<float> out(kLength);
  Depacketizer receiver(from.plan, kJob, kMessage, out);
  KeptPlanes kept = KeptPlanes::make(from.plan);
  Depacketizer keeper(from.plan, kJob, kMessage, kept);
  const auto take = [&](base::ByteView packet) {
    require(receiver.add(packet, from.auth) == keeper.add(packet, from.auth));
  };
  bool repeated_whole = false;
  for (std::size_t at = 0; at + 4 <= size; at += 4) {
    const std::uint8_t what = data[at];
    const base::ByteView whole = from.packets[data[at + 1] % from.packets.size()];
    std::vector<std::uint8_t> packet(whole.begin(), whole.end());
    const std::size_t where = (std::size_t{data[at + 2]} * 256 + data[at + 3]) % packet.size();
    switch (what % 6) {
      case 0:
        take(packet);
        break;
      case 1:
        packet.resize(where);
        take(packet);
        break;
      case 2:
        packet[where] ^= static_cast<std::uint8_t>(1U << (what / 6 % 8));
        take(packet);
        break;
      case 3:
        take(from.foreign[data[at + 1] % from.foreign.size()]);
        break;
      case 4:
        take({data + at, size - at});
        break;
      default:
        for (std::size_t i = 0; i < from.packets.size(); ++i) {
          take(from.packets[i]);
        }
        repeated_whole = true;
    }
  }
  const DeliveryReport report = receiver.finish();
  require(keeper.finish().coordinates_by_planes == report.coordinates_by_planes);
  require(decode_kept(from.plan, kept) == out);
  require(report.whole + report.trimmed + report.missing == report.expected);
  require(report.coordinates() == 3 * 1024);
  require(
      std::all_of(out.begin(), out.end(), [](float value) { return std::fabs(value) < kBound; }));
  if (repeated_whole) {
    require(out == from.exact);
  }
  return 0;
}
