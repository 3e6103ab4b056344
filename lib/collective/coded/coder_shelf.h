// SPDX-License-Identifier: Apache-2.0
//
// Entropy coders and their scratch memory, taken by a calculation and put back after it. Each takes
// some megabytes; there are as many as calculations run at once, and reuse keeps them warm. At most
// CoderShelf::kPlaces are kept. Any thread; no call waits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "codec/entropy/block_coder.h"

namespace spillway::collective {

struct Coders {
  codec::entropy::BlockEncoder encoder;
  codec::entropy::BlockDecoder decoder;
  std::vector<std::int32_t> numbers;
  std::vector<std::uint8_t> bytes;
};

class CoderShelf {
 public:
  static constexpr std::size_t kPlaces = 64;

  CoderShelf() = default;
  ~CoderShelf() {
    for (std::atomic<Coders*>& place : places_) {
      delete place.load();
    }
  }
  CoderShelf(const CoderShelf&) = delete;
  CoderShelf& operator=(const CoderShelf&) = delete;

  // Holds coders for as long as a calculation lasts.
  class Loan {
   public:
    explicit Loan(CoderShelf& shelf) : shelf_(shelf), coders_(shelf.take()) {}
    ~Loan() { shelf_.put_back(std::move(coders_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

    Coders& operator*() { return *coders_; }

   private:
    CoderShelf& shelf_;
    std::unique_ptr<Coders> coders_;
  };

 private:
  std::unique_ptr<Coders> take() {
    for (std::atomic<Coders*>& place : places_) {
      if (Coders* const found = place.exchange(nullptr)) {
        return std::unique_ptr<Coders>(found);
      }
    }
    return std::make_unique<Coders>();
  }
  void put_back(std::unique_ptr<Coders> coders) {
    for (std::atomic<Coders*>& place : places_) {
      Coders* nothing = nullptr;
      if (place.compare_exchange_strong(nothing, coders.get())) {
        static_cast<void>(coders.release());
        return;
      }
    }
  }

  std::array<std::atomic<Coders*>, kPlaces> places_{};
};

}  // namespace spillway::collective
