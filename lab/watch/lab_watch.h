// SPDX-License-Identifier: Apache-2.0
//
// Looks at a lab's switches and ranks every kLookEvery while its commands run, on a thread of its
// own. In the end it reports where the time went (time_account.h). Makes a board for each rank in
// the lab's state directory; the ranks find its path in SPILLWAY_WAITS. If boards cannot be made,
// only links are looked at.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lab/watch/time_account.h"
#include "net/wait_board.h"
#include "sim/scenario/topology.h"
#include "switch/fabric/emulator.h"

namespace spillway::lab {

inline constexpr base::Duration kLookEvery = base::milliseconds(10);

// The boards of a lab's ranks. Make them before the ranks start.
class RankBoards {
 public:
  RankBoards(const std::filesystem::path& folder, std::size_t ranks);

  // "SPILLWAY_WAITS=path"; empty if the rank has no board.
  std::vector<std::string> variables(std::size_t rank) const;
  std::vector<net::WaitCounts> read() const;

 private:
  std::vector<std::string> paths_;
  std::vector<net::WaitBoard> boards_;
};

// The rates of the ports' links, by name ("leaf0->spine1#2"); zero if there is no such link.
std::vector<LinkRate> link_rates(const scenario::Topology& topology,
                                 const fabric::FabricSnapshot& fabric);

class LabWatch {
 public:
  using Look = std::function<fabric::FabricSnapshot()>;

  // `boards` must outlive it.
  LabWatch(const scenario::Topology& topology, const RankBoards& boards, Look look);
  ~LabWatch();
  LabWatch(const LabWatch&) = delete;
  LabWatch& operator=(const LabWatch&) = delete;

  // Stops looking and returns the result.
  TimeReport finish();

 private:
  void work();
  void look();

  const RankBoards& boards_;
  Look look_;
  TimeAccount account_;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace spillway::lab
