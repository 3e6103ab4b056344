// SPDX-License-Identifier: Apache-2.0
#include "emulate/llm_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "emulate/trace/graph.h"

namespace spillway::emulate {

namespace {

// The layers of stage `stage`; the first stages get one more if the number does not divide.
struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

LayerRange layers_of(const LlmStepOptions& options, std::uint32_t stage) {
  const std::uint32_t each = options.layers / options.pipeline;
  const std::uint32_t more = options.layers % options.pipeline;
  return {stage * each + std::min(stage, more), each + (stage < more ? 1 : 0)};
}

struct Sizes {
  std::uint64_t activation;  // of a whole micro-batch, b s h v
  std::uint64_t stage_transfer;
  std::uint64_t routed;  // all-to-all
  std::uint64_t shared_gradients;
  std::uint64_t expert_gradients;
  base::Duration attention;
  base::Duration feed_forward;
  base::Duration logits;
};

Sizes sizes_of(const LlmStepOptions& o) {
  const double tokens = double{1} * o.micro_batch * o.sequence;
  const double h = o.hidden;
  const bool has_experts = o.expert > 1;
  const auto time_of = [&o](double operations) {
    return bounded_duration(
        static_cast<std::int64_t>(std::min(1e15, operations / o.tensor / o.flops * 1e9)));
  };
  const auto bytes_of = [](double bytes) { return static_cast<std::uint64_t>(bytes); };
  const double local_experts = static_cast<double>(o.experts) / o.expert;
  return {
      .activation = bytes_of(tokens * h * o.value_bytes),
      .stage_transfer = bytes_of(tokens * h * o.value_bytes / o.tensor),
      .routed = bytes_of(tokens * h * o.value_bytes * o.experts_per_token / o.tensor),
      .shared_gradients =
          bytes_of((has_experts ? 4.0 : 12.0) * h * h * o.gradient_bytes / o.tensor),
      .expert_gradients =
          has_experts ? bytes_of(8.0 * h * h * local_experts * o.gradient_bytes / o.tensor) : 0,
      .attention = time_of(8.0 * tokens * h * h + 4.0 * tokens * o.sequence * h),
      .feed_forward = time_of(16.0 * tokens * h * h * (has_experts ? o.experts_per_token : 1)),
      .logits = time_of(2.0 * tokens * h * o.vocabulary),
  };
}

class RankWriter {
 public:
  RankWriter(const LlmStepOptions& options, std::uint32_t rank, NodeSink& sink)
      : options_(options),
        rank_(rank),
        tensor_(rank % options.tensor),
        data_(rank / options.tensor % options.data),
        stage_(rank / options.tensor / options.data),
        layers_(layers_of(options, stage_)),
        sizes_(sizes_of(options)),
        sink_(sink) {}

  base::Status run();

 private:
  RankInfo info();
  void step(std::uint32_t number);
  void forward(std::uint32_t micro_batch);
  void backward(std::uint32_t micro_batch, bool is_last);
  void forward_layer(std::uint32_t layer);
  void backward_layer(std::uint32_t layer, bool is_last);
  void routed_layer(const std::string& name, base::Duration length);
  void reduce_gradients(std::uint32_t layer);
  void optimize(std::uint32_t number);

  // Each node depends on `last_`. If `is_waited_for`, it becomes `last_`.
  void compute(const std::string& name, base::Duration length);
  void collective(const std::string& name, CollectiveKind kind, const std::string& group,
                  std::uint64_t bytes, bool is_waited_for);
  void message(NodeKind kind, std::uint32_t peer, std::int32_t tag);
  void begin_node(const std::string& name, NodeKind kind);
  void emit(bool is_waited_for);

  std::uint32_t peer_in(std::uint32_t stage) const {
    return tensor_ + options_.tensor * (data_ + options_.data * stage);
  }
  bool has_experts() const { return options_.expert > 1; }

  const LlmStepOptions& options_;
  std::uint32_t rank_;
  std::uint32_t tensor_;
  std::uint32_t data_;
  std::uint32_t stage_;
  LayerRange layers_;
  Sizes sizes_;
  NodeSink& sink_;
  base::Status status_;
  Node node_;
  std::uint64_t next_id_ = 0;
  std::optional<std::uint64_t> last_;
  std::vector<std::uint64_t> gradients_;
  std::string tensor_group_;
  std::string data_group_;
  std::string expert_group_;
  std::string expert_data_group_;
};

RankInfo RankWriter::info() {
  const LlmStepOptions& o = options_;
  RankInfo made;
  made.rank = rank_;
  made.world = o.world();
  const auto place = [&](std::uint32_t tensor, std::uint32_t data) {
    return tensor + o.tensor * (data + o.data * stage_);
  };
  const auto add = [&made](std::string& name, const std::string& text,
                           std::vector<std::uint32_t> ranks) {
    if (ranks.size() > 1) {
      name = text;
      made.groups.push_back({text, std::move(ranks)});
    }
  };
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t i = 0; i < o.tensor; ++i) {
    ranks.push_back(place(i, data_));
  }
  add(tensor_group_, fmt::format("tp{}", rank_ / o.tensor), ranks);
  ranks.clear();
  for (std::uint32_t i = 0; i < o.data; ++i) {
    ranks.push_back(place(tensor_, i));
  }
  add(data_group_, fmt::format("dp{}.{}", stage_, tensor_), ranks);
  if (has_experts()) {
    ranks.clear();
    for (std::uint32_t i = 0; i < o.expert; ++i) {
      ranks.push_back(place(tensor_, data_ / o.expert * o.expert + i));
    }
    add(expert_group_, fmt::format("ep{}.{}.{}", stage_, tensor_, data_ / o.expert), ranks);
    ranks.clear();
    for (std::uint32_t i = data_ % o.expert; i < o.data; i += o.expert) {
      ranks.push_back(place(tensor_, i));
    }
    add(expert_data_group_, fmt::format("edp{}.{}.{}", stage_, tensor_, data_ % o.expert), ranks);
  }
  return made;
}

void RankWriter::begin_node(const std::string& name, NodeKind kind) {
  node_.clear();
  node_.id = next_id_++;
  node_.name = name;
  node_.kind = kind;
  if (last_) {
    node_.data_deps.push_back(*last_);
  }
}

void RankWriter::emit(bool is_waited_for) {
  if (is_waited_for) {
    last_ = node_.id;
  }
  if (status_.ok()) {
    status_ = sink_.on_node(node_);
  }
}

void RankWriter::compute(const std::string& name, base::Duration length) {
  begin_node(name, NodeKind::kCompute);
  node_.duration = length;
  emit(true);
}

void RankWriter::collective(const std::string& name, CollectiveKind kind, const std::string& group,
                            std::uint64_t bytes, bool is_waited_for) {
  if (group.empty()) {
    return;  // this rank is alone in the group
  }
  begin_node(name, NodeKind::kCollective);
  node_.collective = kind;
  node_.group = group;
  node_.bytes = bytes;
  emit(is_waited_for);
  if (!is_waited_for) {
    gradients_.push_back(node_.id);
  }
}

void RankWriter::message(NodeKind kind, std::uint32_t peer, std::int32_t tag) {
  begin_node(kind == NodeKind::kSend ? "hand on" : "take over", kind);
  node_.peer = peer;
  node_.tag = tag;
  node_.bytes = sizes_.stage_transfer;
  emit(kind == NodeKind::kReceive);
}

// Sends tokens to their experts and back.
void RankWriter::routed_layer(const std::string& name, base::Duration length) {
  collective(name + " route", CollectiveKind::kAllToAll, expert_group_, sizes_.routed, true);
  compute(name, length);
  collective(name + " return", CollectiveKind::kAllToAll, expert_group_, sizes_.routed, true);
}

void RankWriter::forward_layer(std::uint32_t layer) {
  const std::string name = fmt::format("layer {}", layer);
  compute(name + " attention", sizes_.attention);
  collective(name + " attention", CollectiveKind::kAllReduce, tensor_group_, sizes_.activation,
             true);
  if (has_experts()) {
    routed_layer(name + " experts", sizes_.feed_forward);
  } else {
    compute(name + " feed-forward", sizes_.feed_forward);
  }
  collective(name + " feed-forward", CollectiveKind::kAllReduce, tensor_group_, sizes_.activation,
             true);
}

void RankWriter::backward_layer(std::uint32_t layer, bool is_last) {
  const std::string name = fmt::format("layer {} backward", layer);
  if (has_experts()) {
    routed_layer(name + " experts", sizes_.feed_forward * 2);
  } else {
    compute(name + " feed-forward", sizes_.feed_forward * 2);
  }
  collective(name + " feed-forward", CollectiveKind::kAllReduce, tensor_group_, sizes_.activation,
             true);
  compute(name + " attention", sizes_.attention * 2);
  collective(name + " attention", CollectiveKind::kAllReduce, tensor_group_, sizes_.activation,
             true);
  if (is_last) {
    reduce_gradients(layer);
  }
}

void RankWriter::reduce_gradients(std::uint32_t layer) {
  const std::string name = fmt::format("gradients of layer {}", layer);
  collective(name, CollectiveKind::kAllReduce, data_group_, sizes_.shared_gradients, false);
  if (has_experts()) {
    collective(name + ", experts", CollectiveKind::kAllReduce, expert_data_group_,
               sizes_.expert_gradients, false);
  }
}

// Activations have even tags, their gradients odd ones.
void RankWriter::forward(std::uint32_t micro_batch) {
  const auto tag = static_cast<std::int32_t>(2 * micro_batch);
  if (stage_ > 0) {
    message(NodeKind::kReceive, peer_in(stage_ - 1), tag);
  }
  for (std::uint32_t i = 0; i < layers_.count; ++i) {
    forward_layer(layers_.first + i);
  }
  if (stage_ + 1 < options_.pipeline) {
    message(NodeKind::kSend, peer_in(stage_ + 1), tag);
  } else {
    compute("logits", sizes_.logits);
  }
}

void RankWriter::backward(std::uint32_t micro_batch, bool is_last) {
  const auto tag = static_cast<std::int32_t>(2 * micro_batch + 1);
  if (stage_ + 1 < options_.pipeline) {
    message(NodeKind::kReceive, peer_in(stage_ + 1), tag);
  } else {
    compute("logits backward", sizes_.logits * 2);
  }
  for (std::uint32_t i = layers_.count; i > 0; --i) {
    backward_layer(layers_.first + i - 1, is_last);
  }
  if (stage_ > 0) {
    message(NodeKind::kSend, peer_in(stage_ - 1), tag);
  }
}

void RankWriter::step(std::uint32_t number) {
  const std::uint32_t all = options_.micro_batches;
  const std::uint32_t ahead = std::min(options_.pipeline - stage_ - 1, all);
  for (std::uint32_t i = 0; i < ahead; ++i) {
    forward(i);
  }
  for (std::uint32_t i = 0; i < all; ++i) {
    if (ahead + i < all) {
      forward(ahead + i);
    }
    backward(i, i + 1 == all);
  }
  optimize(number);
}

void RankWriter::optimize(std::uint32_t number) {
  begin_node(fmt::format("step {}", number), NodeKind::kCompute);
  node_.data_deps.insert(node_.data_deps.end(), gradients_.begin(), gradients_.end());
  gradients_.clear();
  emit(true);
}

base::Status RankWriter::run() {
  status_ = sink_.on_rank(info());
  for (std::uint32_t number = 0; number < options_.steps && status_.ok(); ++number) {
    step(number);
  }
  return status_;
}

}  // namespace

base::Status validate(const LlmStepOptions& o) {
  for (const std::uint32_t value :
       {o.tensor, o.data, o.pipeline, o.expert, o.layers, o.hidden, o.sequence, o.vocabulary,
        o.micro_batch, o.micro_batches, o.experts, o.experts_per_token, o.value_bytes,
        o.gradient_bytes, o.steps}) {
    if (value < 1 || value > kMaxModelNumber) {
      return base::invalid_argument(fmt::format("every number is 1 to {}", kMaxModelNumber));
    }
  }
  const std::uint64_t world = std::uint64_t{o.tensor} * o.data;
  if (world > kMaxTraceRanks || world * o.pipeline > kMaxTraceRanks) {
    return base::invalid_argument(fmt::format("at most {} ranks", kMaxTraceRanks));
  }
  if (o.layers < o.pipeline || o.data % o.expert != 0 ||
      (o.expert > 1 && o.experts % o.expert != 0)) {
    return base::invalid_argument(
        "each stage needs a layer, and expert-parallel ranks must divide the data-parallel ones "
        "and "
        "the experts");
  }
  if (!(o.flops >= 1e6 && o.flops <= 1e18)) {
    return base::invalid_argument("a rank does 1e6 to 1e18 operations a second");
  }
  const double nodes = 12.0 * (static_cast<double>(o.layers) / o.pipeline + 1) * o.micro_batches *
                       o.steps * o.world();
  if (nodes > static_cast<double>(kMaxGraphNodes)) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("about {:.0f} nodes; {} is the limit", nodes, kMaxGraphNodes)};
  }
  return {};
}

base::Status synthesize_rank(const LlmStepOptions& options, std::uint32_t rank, NodeSink& sink) {
  if (base::Status status = validate(options); !status.ok()) {
    return status;
  }
  if (rank >= options.world()) {
    return base::invalid_argument(fmt::format("rank {} of {}", rank, options.world()));
  }
  return RankWriter(options, rank, sink).run();
}

base::Status synthesize(const LlmStepOptions& options, NodeSink& sink) {
  if (base::Status status = validate(options); !status.ok()) {
    return status;
  }
  for (std::uint32_t rank = 0; rank < options.world(); ++rank) {
    if (base::Status status = RankWriter(options, rank, sink).run(); !status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace spillway::emulate
