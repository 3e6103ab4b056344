// SPDX-License-Identifier: Apache-2.0
//
// A coded all-reduce whose numbers are folded by a sketch (sketch_fold.h): for tensors that are
// mostly zero and whose zeros mostly stay where they are.
//
// Ranks predict by what they remember of the tensor's last sums; the hellos tell whether they
// remember the same (coded_hello.h). If they do not, or remember nothing, this step is dense:
// pieces are the tensor's own, as in PlainContent, and ranks begin to remember. The next step is
// dense, too, because nobody knows yet how good predictions are. So is every step after a bad
// prediction, every step of which more than half is predicted, and every step of a tensor without a
// name.
//
// Values that the sketch does not give back are in no rank's sum. Each rank is owed its own number
// there, or loses it if there is no error feedback; they are counted.
#pragma once

#include <memory>
#include <optional>

#include "collective/coded/coded_content.h"
#include "collective/coded/sketch_fold.h"

namespace spillway::collective {

class SketchContent final : public CodedContent {
 public:
  // `last`: what all ranks remember, or null. `seed`: the operation's, the same at all ranks.
  SketchContent(TensorNumbers& tensor, std::shared_ptr<const codec::sketch::SparseCode> last,
                std::uint64_t seed);

  const BlockGrid& grid() const override { return grid_; }
  std::span<std::int32_t> numbers() override;
  codec::entropy::Alphabet alphabet(std::uint8_t section, std::uint16_t ranks) const override;
  bool is_like_values(std::uint8_t section) const override;
  std::size_t values_of(const ChunkPiece& piece) const override;

  void prepare(const BlockRun& blocks) override;
  void deliver(const BlockRun& blocks) override;
  bool has_fold() const override { return !fold_.is_dense(); }
  void fold() override;
  bool has_unfold() const override;
  base::Status unfold() override;
  void conclude(TensorCodes& codes, CodedDelivery& report) override;

 private:
  bool is_named() const { return tensor_.operation.tolerance->feedback_tensor != 0; }
  void advance(const codec::sketch::SparseSum& sum);

  TensorNumbers& tensor_;
  PlainContent plain_;
  std::shared_ptr<const codec::sketch::SparseCode> code_;
  SketchFold fold_;
  BlockGrid grid_;
  std::vector<std::int32_t> folded_;
  SketchDelivery delivery_;
  RememberedSketch next_;
};

}  // namespace spillway::collective
