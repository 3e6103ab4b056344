// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/allreduce/peers.h"

#include <algorithm>
#include <array>

#include "tools/bench/command_error.h"

namespace spillway::bench {

using collective::DataType;
using collective::Kind;
using collective::Operation;
using collective::ReduceOp;

void wait_for(const runtime::Request& request) {
  throw_unless_ok(*request.wait(std::nullopt));
}

std::shared_ptr<runtime::Request> AllreducePeers::submit(const Operation& operation) {
  return value_or_throw(communicator_.submit(operation));
}

void AllreducePeers::run(Operation operation, void* buffer) {
  operation.input = operation.output = buffer;
  wait_for(*submit(operation));
}

void AllreducePeers::barrier() {
  Operation operation;
  operation.kind = Kind::kBarrier;
  run(operation, nullptr);
}

void AllreducePeers::fold(ReduceOp op, std::span<double> values) {
  Operation operation;
  operation.type = DataType::kFloat64;
  operation.op = op;
  operation.count = values.size();
  run(operation, values.data());
}

void AllreducePeers::take_maximum(std::span<double> values) {
  fold(ReduceOp::kMax, values);
}

void AllreducePeers::add_up(std::span<double> values) {
  fold(ReduceOp::kSum, values);
}

bool AllreducePeers::do_all(bool yes) {
  double refusals = yes ? 0.0 : 1.0;
  add_up({&refusals, 1});
  return refusals == 0.0;
}

std::string AllreducePeers::from_first(const std::string& text) {
  std::array<char, kTextBytes + 1> bytes{};
  std::copy_n(text.data(), std::min(text.size(), kTextBytes), bytes.data());
  Operation operation;
  operation.kind = Kind::kBroadcast;
  operation.type = DataType::kInt32;
  operation.count = kTextBytes / collective::element_size(operation.type);
  run(operation, bytes.data());
  return bytes.data();
}

}  // namespace spillway::bench
