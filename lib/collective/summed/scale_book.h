// SPDX-License-Identifier: Apache-2.0
//
// The scales of tensors that recur: what the ranks measured together last time, by piece and row.
// An operation may code with scales predicted from it and so save a round trip. All ranks do, or
// none: which operation was the last of a tensor follows from the order of calls, and one whose
// measures are not all there yet is waited for.
//
// Bounded: kMaxTensors; the one with the lowest name is forgotten first, at all ranks alike. One
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace spillway::collective {

struct TensorScales {
  std::vector<std::vector<float>> largest;  // by piece and row
  std::size_t known = 0;                    // pieces

  bool is_complete() const { return known == largest.size(); }
};

class ScaleBook {
 public:
  // The measures of the tensor's last operation, or null; and room for this one's.
  struct Entry {
    std::shared_ptr<const TensorScales> last;
    std::shared_ptr<TensorScales> own;
  };
  // `tensor` 0 means no name: nothing is kept.
  Entry next(std::uint64_t tensor) {
    Entry entry{nullptr, std::make_shared<TensorScales>()};
    if (tensor == 0) {
      return entry;
    }
    if (scales_.size() >= kMaxTensors && !scales_.contains(tensor)) {
      scales_.erase(scales_.begin());
    }
    std::shared_ptr<TensorScales>& kept = scales_[tensor];
    entry.last = kept;
    kept = entry.own;
    return entry;
  }

 private:
  static constexpr std::size_t kMaxTensors = 65'536;
  std::map<std::uint64_t, std::shared_ptr<TensorScales>> scales_;
};

}  // namespace spillway::collective
