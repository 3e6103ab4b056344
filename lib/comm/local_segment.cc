// SPDX-License-Identifier: Apache-2.0
#include "comm/local_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace spillway::comm {

namespace {

// A reader requires these seals; the owner's also forbid new writable mappings.
constexpr int kReaderSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int kOwnerSeals = kReaderSeals | F_SEAL_FUTURE_WRITE;
constexpr unsigned kNoExecSeal = 0x0008;  // MFD_NOEXEC_SEAL, since Linux 6.3
constexpr std::size_t kBackingStep = std::size_t{1} << 20;

base::Status not_a_segment(std::string_view why) {
  return {base::StatusCode::kMalformed, fmt::format("what it handed over is no segment: {}", why)};
}

// Hardened systems require the no-exec flag; older kernels reject it.
net::UniqueFd memory_file() {
  const int fd = ::memfd_create("spillway-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal);
  return net::UniqueFd(fd >= 0 || errno != EINVAL
                           ? fd
                           : ::memfd_create("spillway-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

base::Status check_segment(const net::UniqueFd& descriptor) {
  struct stat file {};
  struct statfs home {};
  if (::fstat(descriptor.get(), &file) != 0 || ::fstatfs(descriptor.get(), &home) != 0) {
    return net::system_error("look at a segment", errno);
  }
  // tmpfs only: a hugetlbfs file may have no pages left when they are touched.
  if (!S_ISREG(file.st_mode) || home.f_type != TMPFS_MAGIC) {
    return not_a_segment("not memory");
  }
  if (file.st_size != static_cast<off_t>(kSegmentBytes)) {
    return not_a_segment(fmt::format("{} bytes instead of {}", file.st_size, kSegmentBytes));
  }
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kReaderSeals) != kReaderSeals) {
    return not_a_segment("its size is not sealed");
  }
  return {};
}

}  // namespace

Mapping::~Mapping() {
  if (data_ != nullptr) {
    ::munmap(data_, bytes_);
  }
}

base::Result<OwnSegment> OwnSegment::make() {
  net::UniqueFd descriptor = memory_file();
  if (!descriptor.valid()) {
    return net::system_error("make memory to share", errno);
  }
  if (::ftruncate(descriptor.get(), kSegmentBytes) != 0) {
    return net::system_error("size memory to share", errno);
  }
  void* data =
      ::mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) {
    return net::system_error("map memory to share", errno);
  }
  Mapping mapping(data, kSegmentBytes);
  if (::fcntl(descriptor.get(), F_ADD_SEALS, kOwnerSeals) != 0) {
    return net::system_error("seal memory to share", errno);
  }
  return OwnSegment(std::move(descriptor), std::move(mapping));
}

// Touching a page that the kernel cannot back would kill the process; fallocate() just fails.
bool OwnSegment::back(std::size_t end) {
  if (end <= backed_) {
    return true;
  }
  const std::size_t wanted =
      std::min((end + kBackingStep - 1) / kBackingStep * kBackingStep, kSegmentBytes);
  if (::fallocate(descriptor_.get(), 0, static_cast<off_t>(backed_),
                  static_cast<off_t>(wanted - backed_)) != 0) {
    return false;
  }
  backed_ = wanted;
  return true;
}

std::optional<std::uint64_t> OwnSegment::stage(base::ByteView bytes) {
  const std::optional<std::size_t> offset = blocks_.take(bytes.size());
  if (!offset) {
    return std::nullopt;
  }
  if (!back(*offset + bytes.size())) {
    blocks_.give_back(*offset);
    return std::nullopt;
  }
  std::memcpy(mapping_.data() + *offset, bytes.data(), bytes.size());
  return *offset;
}

void OwnSegment::release(std::uint64_t offset) {
  SPILLWAY_CHECK(blocks_.give_back(offset));
}

base::Result<SharedSegment> SharedSegment::open(const net::UniqueFd& descriptor) {
  if (base::Status status = check_segment(descriptor); !status.ok()) {
    return status;
  }
  void* data = ::mmap(nullptr, kSegmentBytes, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) {
    return net::system_error("map a segment", errno);
  }
  return SharedSegment(Mapping(data, kSegmentBytes));
}

bool SharedSegment::read(std::uint64_t offset, base::MutableByteView to) const {
  if (offset > mapping_.bytes() || to.size() > mapping_.bytes() - offset) {
    return false;
  }
  std::memcpy(to.data(), mapping_.data() + offset, to.size());
  return true;
}

BlockAllocator::BlockAllocator(std::size_t bytes) {
  if (const std::size_t usable = bytes / kGrain * kGrain; usable > 0) {
    free_.emplace(0, usable);
  }
}

std::optional<std::size_t> BlockAllocator::take(std::size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX - kGrain) {
    return std::nullopt;
  }
  const std::size_t wanted = (bytes + kGrain - 1) / kGrain * kGrain;
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    const auto [offset, length] = *hole;
    if (length < wanted) {
      continue;
    }
    free_.erase(hole);
    if (length > wanted) {
      free_.emplace(offset + wanted, length - wanted);
    }
    taken_.emplace(offset, wanted);
    taken_bytes_ += wanted;
    return offset;
  }
  return std::nullopt;
}

bool BlockAllocator::give_back(std::size_t offset) {
  const auto found = taken_.find(offset);
  if (found == taken_.end()) {
    return false;
  }
  std::size_t length = found->second;
  taken_.erase(found);
  taken_bytes_ -= length;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + length) {
    length += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return true;
    }
  }
  free_.emplace_hint(next, offset, length);
  return true;
}

}  // namespace spillway::comm
