// SPDX-License-Identifier: Apache-2.0
//
// The kernels on a GPU against the scalar oracle, byte for byte: golden packets, every kind of row
// and packet, and ten thousand random rows. Skipped, with the reason, if there is no GPU:
//
//   ctest --preset release -L cuda
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "collective/reduction.h"
#include "gpu/cuda_tensor.h"
#include "gpu/device_coder.h"
#include "gpu/level_testing.h"
#include "gpu/message_testing.h"
#include "packetize/packet_plan.h"
#include "packetize/packetizer.h"
#include "wire/data_packet.h"

namespace spillway::gpu {
namespace {

constexpr std::uint64_t kTestKey = 0xFEDCBA9876543210;

// A coder, a stream, and memory for one message on it.
class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    const base::Result<DeviceHandle> device = Device::open(0);
    if (!device.ok()) {
      GTEST_SKIP() << device.status().message();
    }
    device_ = *device;
    coder_ = std::make_unique<PlaneCoder>(PlaneCoder::make(device_).value());
    stream_ = std::make_unique<OwnedStream>(OwnedStream::make(device_).value());
  }

  DeviceMemory memory(std::size_t bytes) { return DeviceMemory::make(device_, bytes).value(); }

  template <typename T>
  DeviceMemory upload(const std::vector<T>& content) {
    DeviceMemory to = memory(content.size() * sizeof(T));
    EXPECT_TRUE(stream_->copy_to_device(to.get(), content.data(), to.size()).ok());
    EXPECT_TRUE(stream_->wait().ok());
    return to;
  }

  template <typename T>
  void download(const DeviceMemory& from, std::vector<T>& content) {
    EXPECT_TRUE(stream_->copy_to_host(content.data(), from.get(), content.size() * sizeof(T)).ok());
    EXPECT_TRUE(stream_->wait().ok());
  }

  // In slices of `slice` rows.
  template <typename T>
  CodedMessage encode(const packetize::PacketPlan& plan, std::uint64_t key,
                      const std::vector<T>& tensor, Element element, std::size_t slice) {
    CodedMessage message;
    message.payload.assign(packetize::plane_memory_bytes(plan), 0);
    message.rows.resize(plan.layout().row_count());
    const DeviceMemory values = upload(tensor);
    const DeviceMemory payload = upload(message.payload);
    const DeviceMemory rows = upload(message.rows);
    for (std::size_t first = 0; first < message.rows.size(); first += slice) {
      const RowSlice these{first, std::min(slice, message.rows.size() - first)};
      const base::Status status =
          coder_->encode(plan, key, these, {values.get(), element},
                         {.payload = payload.get(), .rows = rows.get()}, stream_->get());
      EXPECT_TRUE(status.ok()) << status.message();
    }
    download(payload, message.payload);
    download(rows, message.rows);
    return message;
  }

  template <typename T>
  void decode(const packetize::PacketPlan& plan, std::uint64_t key, const CodedMessage& message,
              codec::Estimate estimate, Element element, Store store, std::vector<T>& tensor) {
    const DeviceMemory payload = upload(message.payload);
    const DeviceMemory rows = upload(message.rows);
    const DeviceMemory received = upload(message.received);
    const DeviceMemory values = upload(tensor);
    const base::Status status =
        coder_->decode(plan, key, all_rows(plan), {payload.get(), rows.get(), received.get()},
                       estimate, store, {values.get(), element}, stream_->get());
    EXPECT_TRUE(status.ok()) << status.message();
    download(values, tensor);
  }

  DeviceHandle device_;
  std::unique_ptr<PlaneCoder> coder_;
  std::unique_ptr<OwnedStream> stream_;
};

// Overflow may yield any NaN, depending on the processor.
bool same_bytes(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) ||
           (std::isnan(x) && std::isnan(y));
  });
}

void expect_same(const CodedMessage& message, const CodedMessage& expected) {
  ASSERT_EQ(message.rows.size(), expected.rows.size());
  for (std::size_t row = 0; row < expected.rows.size(); ++row) {
    ASSERT_EQ(std::memcmp(&message.rows[row], &expected.rows[row], sizeof(RowCode)), 0)
        << "row " << row << ": scale " << message.rows[row].scale << " instead of "
        << expected.rows[row].scale << ", rotations " << message.rows[row].rotations
        << " instead of " << expected.rows[row].rotations;
  }
  EXPECT_TRUE(message.payload == expected.payload);
}

TEST_F(Cuda, EncodesToTheOraclesBytes) {
  for (const MessageCase& one : message_cases()) {
    SCOPED_TRACE(one.name());
    const packetize::PacketPlan plan = one.plan();
    const std::vector<float> tensor = mixed_tensor(one.length, plan.layout().row_log2(), 11);
    const CodedMessage expected = oracle_encode(plan, kTestKey, tensor);
    for (const std::size_t slice : {std::size_t{3}, std::size_t{1'000'000}}) {
      expect_same(encode(plan, kTestKey, tensor, Element::kFloat32, slice), expected);
    }
  }
}

TEST_F(Cuda, DecodesWhateverCameToTheOraclesBytes) {
  for (const MessageCase& one : message_cases()) {
    SCOPED_TRACE(one.name());
    const packetize::PacketPlan plan = one.plan();
    const std::vector<float> tensor = mixed_tensor(one.length, plan.layout().row_log2(), 12);
    CodedMessage message = oracle_encode(plan, kTestKey, tensor);
    for (const std::uint64_t losses : {0, 1, 2}) {
      if (losses > 0) {
        lose_some(message, losses);
      }
      for (const codec::Estimate estimate :
           {codec::Estimate::kUnbiased, codec::Estimate::kMinimumError}) {
        std::vector<float> values(one.length, 77.0F);
        decode(plan, kTestKey, message, estimate, Element::kFloat32, Store::kWrite, values);
        EXPECT_TRUE(same_bytes(values, oracle_decode(plan, kTestKey, message, estimate)));
      }
    }
  }
}

// Random keys, precisions and contents; a failure names the seed.
TEST_F(Cuda, AgreesAboutTenThousandRandomRows) {
  std::size_t rows = 0;
  for (std::uint64_t seed = 1; rows < 10'000; ++seed) {
    base::RandomSequence random(seed);
    const auto row_log2 = static_cast<unsigned>(8 + random.next_below(8));
    const auto precision = static_cast<unsigned>(1 + random.next_below(32));
    const std::size_t length =
        1 + random.next_below(std::min<std::size_t>(200, 65'536 >> (row_log2 - 4)) << row_log2);
    const MessageCase one{length, row_log2, precision};
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, one.name()));
    const packetize::PacketPlan plan = one.plan();
    const std::uint64_t key = std::uint64_t{random.next_word()} << 32 | random.next_word();
    const std::vector<float> tensor = mixed_tensor(length, plan.layout().row_log2(), seed);
    CodedMessage expected = oracle_encode(plan, key, tensor);
    expect_same(encode(plan, key, tensor, Element::kFloat32, 1'000'000), expected);
    lose_some(expected, seed);
    std::vector<float> values(length, 77.0F);
    decode(plan, key, expected, codec::Estimate::kUnbiased, Element::kFloat32, Store::kWrite,
           values);
    ASSERT_TRUE(same_bytes(values, oracle_decode(plan, key, expected, codec::Estimate::kUnbiased)));
    rows += plan.layout().row_count();
  }
}

TEST_F(Cuda, ReadsWritesAndAddsBothHalfFloats) {
  struct Half {
    Element element;
    std::uint16_t (*from_float)(float);
    float (*to_float)(std::uint16_t);
  };
  const packetize::PacketPlan plan = MessageCase{30'001, 12, 8}.plan();
  for (const Half& half :
       {Half{Element::kBfloat16, collective::float_to_bfloat16, collective::bfloat16_to_float},
        Half{Element::kFloat16, collective::float_to_float16, collective::float16_to_float}}) {
    std::vector<std::uint16_t> halves;
    std::vector<float> tensor;
    for (const float value : mixed_tensor(30'001, 12, 2)) {
      halves.push_back(half.from_float(value));
      tensor.push_back(half.to_float(halves.back()));
    }
    const CodedMessage expected = oracle_encode(plan, kTestKey, tensor);
    expect_same(encode(plan, kTestKey, halves, half.element, 1'000'000), expected);
    const std::vector<float> decoded =
        oracle_decode(plan, kTestKey, expected, codec::Estimate::kUnbiased);
    std::vector<std::uint16_t> sums = halves;
    decode(plan, kTestKey, expected, codec::Estimate::kUnbiased, half.element, Store::kAdd, sums);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      ASSERT_EQ(sums[i], half.from_float(tensor[i] + decoded[i])) << i;
    }
  }
}

TEST_F(Cuda, SurvivesMemoryThatIsFull) {
  const base::Result<DeviceMemory> all = DeviceMemory::make(device_, std::size_t{1} << 50);
  ASSERT_FALSE(all.ok());
  EXPECT_EQ(all.status().code(), base::StatusCode::kLimitExceeded);
  EXPECT_NE(all.status().message().find("memory is full"), std::string::npos);
  const packetize::PacketPlan plan = MessageCase{5'000, 12, 8}.plan();
  const std::vector<float> tensor = codec::gaussian_values(5'000, 1);
  expect_same(encode(plan, kTestKey, tensor, Element::kFloat32, 10),
              oracle_encode(plan, kTestKey, tensor));
}

// The sum consists of the tensor's own part and two ranks' contributions.
TEST_F(Cuda, AddsUpToTheOraclesBytes) {
  const SumCase sum(20'001);
  const DeviceMemory input = upload(sum.own);
  const DeviceMemory output = memory(sum.own.size() * sizeof(float));
  std::vector<float> fetched(sum.own.size());
  const collective::Operation operation{
      .count = sum.own.size(),
      .input = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(input.get())),
      .output = reinterpret_cast<void*>(static_cast<std::uintptr_t>(output.get()))};
  auto tensor = CudaTensor::make(0, operation, stream_->get());
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  for (int again = 0; again < 3; ++again) {  // memory is reused
    sum.check(**tensor, fetched, [&] { download(output, fetched); });
  }
}

TEST_F(Cuda, KeepsWhatItIsOwedToTheOraclesBytes) {
  for (const bool is_finite : {true, false}) {
    const ResidualCase owed(20'001, is_finite);
    const DeviceMemory input = upload(owed.own);
    const DeviceMemory residual = upload(owed.before);
    const collective::Operation operation{
        .count = owed.own.size(),
        .input = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(input.get()))};
    auto tensor = CudaTensor::make(0, operation, stream_->get());
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    owed.check(**tensor, reinterpret_cast<float*>(static_cast<std::uintptr_t>(residual.get())),
               [&] {
                 std::vector<float> fetched(owed.own.size());
                 download(residual, fetched);
                 return fetched;
               });
  }
}

// Levels, which ranks add without decoding them.
class CudaLevels : public Cuda {
 protected:
  void check(const LevelCase& one) {
    const DeviceMemory input = upload(one.own);
    const DeviceMemory output = memory(one.own.size() * sizeof(float));
    const DeviceMemory residual = upload(one.before);
    const collective::Operation operation{
        .count = one.own.size(), .input = pointer(input), .output = pointer(output)};
    auto tensor = CudaTensor::make(0, operation, stream_->get());
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    const auto fetch = [&](const DeviceMemory& from) {
      std::vector<float> fetched(one.own.size());
      download(from, fetched);
      return fetched;
    };
    one.check(
        **tensor, one.before.empty() ? nullptr : static_cast<float*>(pointer(residual)),
        [&] { return fetch(output); }, [&] { return fetch(residual); });
  }

  static void* pointer(const DeviceMemory& memory) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(memory.get()));
  }
};

TEST_F(CudaLevels, AreTheOraclesBytesThereAndBack) {
  for_each_level_case([this](const LevelCase& one) {
    SCOPED_TRACE(one.name());
    check(one);
  });
}

TEST_F(CudaLevels, OfTenThousandRandomRowsAreTheOraclesBytes) {
  for (const auto& [row_log2, rows] : {std::pair{8U, 6'000U}, {10U, 2'500U}, {13U, 1'500U}}) {
    check(LevelCase(std::size_t{rows} << row_log2, row_log2, 4, Residuals::kSome, row_log2));
  }
}

TEST_F(CudaLevels, ReadAndWriteBothHalfFloats) {
  const LevelCase one(50'001, 13, 4, Residuals::kNone, 5);
  for (const collective::DataType type :
       {collective::DataType::kBfloat16, collective::DataType::kFloat16}) {
    const bool is_bfloat16 = type == collective::DataType::kBfloat16;
    const auto narrow = is_bfloat16 ? collective::float_to_bfloat16 : collective::float_to_float16;
    const auto widen = is_bfloat16 ? collective::bfloat16_to_float : collective::float16_to_float;
    std::vector<std::uint16_t> halves;
    std::vector<float> values;
    for (const float value : one.own) {
      halves.push_back(narrow(value));
      values.push_back(widen(halves.back()));
    }
    const OracleLevels expected = oracle_round(one.levels, values, one.scales);
    const DeviceMemory memory = upload(halves);
    const collective::Operation operation{
        .type = type, .count = halves.size(), .input = pointer(memory), .output = pointer(memory)};
    auto tensor = CudaTensor::make(0, operation, stream_->get()).value();
    std::vector<codec::RotatedRow> rows(expected.rows.size());
    ASSERT_TRUE(tensor->measure(one.levels, nullptr, rows).ok());
    const auto words = tensor->make_words(expected.words.size()).value();
    std::size_t clipped = 0;
    ASSERT_TRUE(tensor
                    ->round(one.levels, nullptr, rows, one.scales,
                            {words.get(), expected.words.size()}, clipped)
                    .ok());
    EXPECT_EQ(clipped, expected.clipped);
    EXPECT_TRUE(std::equal(expected.words.begin(), expected.words.end(), words.get()));
    std::copy(one.sums.begin(), one.sums.end(), words.get());
    ASSERT_TRUE(tensor->decode_sums(one.levels, one.sums_in({words.get(), one.sums.size()})).ok());
    download(memory, halves);
    for (std::size_t i = 0; i < halves.size(); ++i) {
      ASSERT_EQ(halves[i], narrow(one.decoded[i])) << i;
    }
  }
}

TEST_F(Cuda, TakesATensorThereAndBackInPieces) {
  const std::size_t length = 50'003;
  const std::vector<float> values = codec::gaussian_values(length, 8);
  const DeviceMemory input = upload(values);
  const collective::Operation operation{
      .count = length,
      .input = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(input.get())),
      .output = reinterpret_cast<void*>(static_cast<std::uintptr_t>(input.get()))};
  auto tensor = CudaTensor::make(0, operation, stream_->get());
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  std::vector<float> expected = values;
  for (const collective::Extent extent : {collective::Extent{0, 20'001}, {20'001, 20'000}}) {
    const packetize::PacketPlan plan = MessageCase{extent.count, 12, 8}.plan();
    packetize::KeptPlanes coded = (*tensor)->make_planes(plan).value();
    ASSERT_TRUE((*tensor)->encode(extent, plan, kTestKey, nullptr, coded).ok());
    ASSERT_TRUE((*tensor)->decode(extent, plan, kTestKey, coded).ok());
    const CodedMessage message =
        oracle_encode(plan, kTestKey, std::span(values).subspan(extent.first, extent.count));
    const std::vector<float> part =
        oracle_decode(plan, kTestKey, message, codec::Estimate::kUnbiased);
    std::copy(part.begin(), part.end(), expected.begin() + static_cast<long>(extent.first));
  }
  std::vector<float> fetched(length);
  download(input, fetched);
  EXPECT_TRUE(same_bytes(fetched, expected));
}

// ---- golden packets: the GPU's payload, with header and tags around it

struct GoldenMessage {
  const char* name;
  std::size_t length;
  packetize::Encoding encoding;
  std::size_t packet;
};

constexpr packetize::Job kGoldenJob{.id = 0x0102, .epoch = 0x0304, .seed = 0x05060708090A0B0C};
constexpr wire::MessageId kGoldenId{.operation = 0x1112131415161718,
                                    .signature = 0x2122232425262728,
                                    .piece = 0x3132,
                                    .source = 0x4142,
                                    .phase = wire::Phase::kGather};

std::vector<std::uint8_t> read_golden(const std::string& name) {
  std::ifstream file(fmt::format("{}/{}.hex", SPILLWAY_GOLDEN, name));
  std::vector<std::uint8_t> bytes;
  for (std::string line; std::getline(file, line);) {
    for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
      bytes.push_back(static_cast<std::uint8_t>(std::stoi(line.substr(i, 2), nullptr, 16)));
    }
  }
  return bytes;
}

std::vector<float> golden_tensor(const GoldenMessage& golden) {
  std::vector<float> tensor(golden.length, 0.0F);
  const std::string_view name = golden.name;
  if (name == "spike_row") {
    tensor[100] = -2.5F;
  } else if (name != "zero_row") {
    base::RandomSequence random(0x60D);
    for (float& value : tensor) {
      value = base::uniform_float(random.next_word()) - 0.5F;
    }
  }
  if (name == "non_finite_row") {
    tensor[7] = std::numeric_limits<float>::infinity();
  }
  return tensor;
}

wire::DataHeader golden_header(const packetize::PacketPlan& plan, std::size_t packet,
                               const RowCode& row) {
  const packetize::PacketPlace place = plan.place(packet);
  wire::DataHeader header;
  header.stamp.message = kGoldenId;
  header.stamp.job = kGoldenJob.id;
  header.stamp.epoch = kGoldenJob.epoch;
  header.stamp.number = 0x6162636465666768 + packet;
  header.stamp.destination = 0x7172;
  header.stamp.priority = 5;
  header.stamp.importance = 2;
  header.stamp.path = 9;
  header.stamp.timestamp_us = 0x51525354;
  header.stamp.packet = static_cast<std::uint16_t>(packet);
  header.stamp.last = packet + 1 == plan.packet_count();
  header.row_log2 = static_cast<std::uint8_t>(plan.layout().row(place.row).log2_length);
  header.rotations = static_cast<std::uint8_t>(row.rotations);
  header.planes = static_cast<std::uint8_t>(plan.planes());
  header.row = static_cast<std::uint16_t>(place.row);
  header.slot = static_cast<std::uint8_t>(place.slot);
  header.quanta = static_cast<std::uint8_t>(plan.quanta());
  header.scale = row.scale;
  header.head_bytes = static_cast<std::uint16_t>(plan.head_bytes(header.count()));
  header.has_segmented_tail = plan.has_segmented_tails();
  return header;
}

TEST_F(Cuda, MakesTheGoldenPackets) {
  const std::array<std::uint8_t, 16> secret = {'g', 'o', 'l', 'd', 'e', 'n', ' ', 'j',
                                               'o', 'b', ' ', 's', 'e', 'c', 'r', 't'};
  const wire::PacketAuth auth =
      wire::PacketAuth::of_secret(secret, wire::Protection::kTags).value();
  for (const GoldenMessage& golden :
       {GoldenMessage{"planes16", 10'000, {.precision = 16}, 3},
        GoldenMessage{"planes8", 10'000, {.precision = 8}, 0},
        GoldenMessage{"planes12_last_packet", 10'000, {.precision = 12}, 11},
        GoldenMessage{"planes32", 4'096, {.precision = 32, .row_log2 = 12}, 5},
        GoldenMessage{"zero_row", 300, {.precision = 8}, 0},
        GoldenMessage{"non_finite_row", 300, {.precision = 8}, 0},
        GoldenMessage{"spike_row", 300, {.precision = 8}, 0}}) {
    SCOPED_TRACE(golden.name);
    const packetize::PacketPlan plan =
        packetize::PacketPlan::make(golden.length, {}, golden.encoding).value();
    const CodedMessage message = encode(plan, packetize::rotation_key(kGoldenJob, kGoldenId),
                                        golden_tensor(golden), Element::kFloat32, 1'000'000);
    const wire::DataHeader header =
        golden_header(plan, golden.packet, message.rows[plan.place(golden.packet).row]);
    std::vector<std::uint8_t> packet(plan.max_packet_size());
    packet.resize(wire::write_data_packet(
        header,
        base::ByteView(message.payload)
            .subspan(golden.packet * packetize::plane_stride(plan), header.payload_bytes()),
        auth, packet));
    EXPECT_EQ(packet, read_golden(golden.name));
  }
}

}  // namespace
}  // namespace spillway::gpu
