// SPDX-License-Identifier: Apache-2.0
//
// Coders and their scratch memory, taken by a calculation and put back after it. There are as many
// as calculations run at once, and reuse keeps them warm. At most kPlaces are kept. Any thread; no
// call waits.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace spillway::collective {

template <typename Coder>
class LoanPool {
 public:
  static constexpr std::size_t kPlaces = 64;

  LoanPool() = default;
  ~LoanPool() {
    for (std::atomic<Coder*>& place : places_) {
      delete place.load();
    }
  }
  LoanPool(const LoanPool&) = delete;
  LoanPool& operator=(const LoanPool&) = delete;

  // Holds a coder for as long as a calculation lasts.
  class Loan {
   public:
    explicit Loan(LoanPool& pool) : pool_(pool), coder_(pool.take()) {}
    ~Loan() { pool_.put_back(std::move(coder_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

    Coder& operator*() { return *coder_; }

   private:
    LoanPool& pool_;
    std::unique_ptr<Coder> coder_;
  };

 private:
  std::unique_ptr<Coder> take() {
    for (std::atomic<Coder*>& place : places_) {
      if (Coder* const found = place.exchange(nullptr)) {
        return std::unique_ptr<Coder>(found);
      }
    }
    return std::make_unique<Coder>();
  }
  void put_back(std::unique_ptr<Coder> coder) {
    for (std::atomic<Coder*>& place : places_) {
      Coder* nothing = nullptr;
      if (place.compare_exchange_strong(nothing, coder.get())) {
        static_cast<void>(coder.release());
        return;
      }
    }
  }

  std::array<std::atomic<Coder*>, kPlaces> places_{};
};

}  // namespace spillway::collective
