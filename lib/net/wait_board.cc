// SPDX-License-Identifier: Apache-2.0
#include "net/wait_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/own_file.h"

namespace spillway::net {
namespace {

constexpr std::size_t kBytes = 4096;
static_assert((kWaits + 4) * sizeof(std::uint64_t) <= kBytes);
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

// Calls `visit` with every counter, in file order.
template <typename Counts, typename Visit>
void visit_counts(Counts& counts, Visit visit) {
  for (auto& looks : counts.looks) {
    visit(looks);
  }
  visit(counts.sent_bytes);
  visit(counts.resent_bytes);
  visit(counts.wasted_bytes);
  visit(counts.under_way);
}

}  // namespace

std::string_view wait_name(Wait wait) {
  switch (wait) {
    case Wait::kNothing:
      return "sending";
    case Wait::kCredit:
      return "credit";
    case Wait::kStream:
      return "stream";
    case Wait::kAnswer:
      return "an answer";
    case Wait::kOtherRank:
      return "another rank";
    case Wait::kComputing:
      break;
  }
  return "computing";
}

base::Result<WaitBoard> WaitBoard::make(const std::string& path) {
  if (base::Status status = base::replace_file(path, std::string(kBytes, '\0')); !status.ok()) {
    return status;
  }
  return open(path);
}

base::Result<WaitBoard> WaitBoard::open(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!fd.valid()) {
    return system_error("open " + path, errno);
  }
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size != kBytes) {
    return base::invalid_argument(path + " is not a file of waits: `spillway lab` makes them");
  }
  if (base::Status own = base::check_is_own(status, path); !own.ok()) {
    return own;
  }
  return map(fd, path);
}

base::Result<WaitBoard> WaitBoard::map(const UniqueFd& fd, const std::string& path) {
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return system_error("map " + path, errno);
  }
  return WaitBoard(static_cast<std::uint64_t*>(memory));
}

WaitBoard::~WaitBoard() {
  if (words_ != nullptr) {
    ::munmap(words_, kBytes);
  }
}

WaitBoard::WaitBoard(WaitBoard&& other) noexcept : words_(std::exchange(other.words_, nullptr)) {}

WaitBoard& WaitBoard::operator=(WaitBoard&& other) noexcept {
  std::swap(words_, other.words_);
  return *this;
}

void WaitBoard::add(const WaitCounts& more) {
  std::uint64_t* word = words_;
  visit_counts(more, [&word](std::uint64_t number) {
    std::atomic_ref(*word++).fetch_add(number, std::memory_order_relaxed);
  });
}

WaitCounts WaitBoard::read() const {
  WaitCounts counts;
  std::uint64_t* word = words_;
  visit_counts(counts, [&word](std::uint64_t& number) {
    number = std::atomic_ref(*word++).load(std::memory_order_relaxed);
  });
  return counts;
}

}  // namespace spillway::net
