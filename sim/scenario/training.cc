// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/training.h"

#include <fmt/format.h>

#include <algorithm>

#include "wire/sum_packet.h"

namespace spillway::scenario {
namespace {

constexpr std::uint64_t kMaxLayers = 1024;
constexpr std::uint64_t kMaxSteps = 1'000'000;
constexpr base::Bytes kMaxLayerBytes = base::bytes(1 << 30);
constexpr base::Duration kLongestLayer = base::seconds(1'000);

// Per-layer values as written: one for all layers, or one for each.
struct LayerLists {
  std::uint32_t layers = 0;  // 0: the length of the longest list
  std::vector<base::Bytes> bytes = {base::bytes(1'000'000)};
  std::vector<base::Duration> forward = {base::milliseconds(1)};
  std::vector<base::Duration> backward = {base::milliseconds(2)};
};

template <typename T>
ValueReader to_list(std::vector<T>& out, ValueReader (*reader)(T&)) {
  return [&out, reader](std::string_view text) -> base::Status {
    out.clear();
    base::Status status;
    while (status.ok() && out.size() < kMaxLayers) {
      const std::size_t comma = text.find(',');
      status = reader(out.emplace_back())(text.substr(0, comma));
      if (comma == std::string_view::npos) {
        return status;
      }
      text.remove_prefix(comma + 1);
    }
    return status.ok() ? not_in_range(text, 1, kMaxLayers) : status;
  };
}

base::Status wrong_training(const Training& training, std::string_view what) {
  return base::invalid_argument(fmt::format("{}: training: {}", training.place, what));
}

template <typename T>
const T& figure_of(const std::vector<T>& list, std::size_t layer) {
  return list.size() == 1 ? list.front() : list[layer];
}

base::Status lay_out(const LayerLists& lists, Training& training) {
  const std::size_t longest =
      std::max({lists.bytes.size(), lists.forward.size(), lists.backward.size()});
  const std::size_t count = lists.layers > 0 ? lists.layers : longest;
  for (const std::size_t size : {lists.bytes.size(), lists.forward.size(), lists.backward.size()}) {
    if (size != 1 && size != count) {
      return wrong_training(
          training,
          fmt::format("a list of {} for {} layers: give one value, or one for each", size, count));
    }
  }
  for (std::size_t layer = 0; layer < count; ++layer) {
    training.layers.push_back({figure_of(lists.bytes, layer), figure_of(lists.forward, layer),
                               figure_of(lists.backward, layer)});
  }
  return {};
}

base::Status check_training(const Training& training) {
  if (training.hosts() > SPILLWAY_SUM_RANKS) {
    return wrong_training(training,
                          fmt::format("at most {} workers and servers", SPILLWAY_SUM_RANKS));
  }
  for (const TrainingLayer& layer : training.layers) {
    if (layer.bytes < base::bytes(sizeof(float)) || layer.bytes > kMaxLayerBytes) {
      return wrong_training(training, "a layer has 4 bytes to 1GiB of gradients");
    }
    if (std::max(layer.forward, layer.backward) > kLongestLayer) {
      return wrong_training(training, "a layer computes for at most 1000s");
    }
  }
  if (training.code == TrainingCode::kThc && training.bits > 4 && training.bits != 8) {
    return wrong_training(training, "bits= of thc are 2, 3, 4 or 8");
  }
  return {};
}

}  // namespace

base::Status read_training(const Directive& directive, Training& training) {
  training.place = directive.place;
  LayerLists lists;
  const base::Status status = read_values(
      directive,
      {{"name", to_text(training.name)},
       {"workers", to_number(training.workers, 2, SPILLWAY_SUM_RANKS)},
       {"servers", to_number(training.servers, 0, SPILLWAY_SUM_RANKS)},
       {"layers", to_number(lists.layers, 1, kMaxLayers)},
       {"bytes", to_list(lists.bytes, to_bytes)},
       {"forward", to_list(lists.forward, to_duration)},
       {"backward", to_list(lists.backward, to_duration)},
       {"jitter", to_fraction(training.jitter)},
       {"steps", to_number(training.steps, 1, kMaxSteps)},
       {"start", to_instant(training.start)},
       {"code", to_choice<TrainingCode>(training.code, {{"thc", TrainingCode::kThc},
                                                        {"blocks", TrainingCode::kBlocks}})},
       {"bits", to_number(training.bits, 2, 8)},
       {"scale", to_choice<ScaleRule>(training.scale, {{"agreed", ScaleRule::kAgreed},
                                                       {"predicted", ScaleRule::kPredicted}})},
       {"urgency",
        to_choice<UrgencyRule>(training.urgency, {{"esa", UrgencyRule::kEsa},
                                                  {"priority", UrgencyRule::kPriority}})}});
  if (!status.ok()) {
    return status;
  }
  const base::Status laid_out = lay_out(lists, training);
  return laid_out.ok() ? check_training(training) : laid_out;
}

}  // namespace spillway::scenario
