// SPDX-License-Identifier: Apache-2.0
//
// Ranks that share memory, as threads or processes, and strangers that forge notes.
#include "comm/local_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <future>
#include <numeric>
#include <thread>

#include "harness/slowdown.h"

namespace spillway::comm {
namespace {

using collective::MemoryPlace;

constexpr base::Duration kShortHandover =
    base::milliseconds(100);  // for events that must not happen
const std::string kDigits(kMemoryNameDigits, '7');

// For events that must happen.
base::Duration handover_patience() {
  const base::Duration patience(harness::patience(std::chrono::seconds(60)).count());
  return patience;
}

MemoryOffer new_offer() {
  base::Result<MemoryOffer> made = MemoryOffer::make();
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

RankCard memory_card_of(const MemoryCard& memory) {
  RankCard card;
  card.memory = memory;
  return card;
}

std::vector<std::uint8_t> sample_bytes(std::size_t count, unsigned first) {
  std::vector<std::uint8_t> bytes(count);
  std::iota(bytes.begin(), bytes.end(), static_cast<std::uint8_t>(first));
  return bytes;
}

// Hands over at all ranks of a group, each on its own thread.
std::vector<LocalMemory> share_all(std::size_t world) {
  std::vector<MemoryOffer> offers;
  std::vector<RankCard> cards;
  for (std::size_t rank = 0; rank < world; ++rank) {
    offers.push_back(new_offer());
    cards.push_back(memory_card_of(offers.back().card()));
  }
  std::vector<std::optional<LocalMemory>> shared(world);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      shared[rank] = LocalMemory::share(std::move(offers[rank]), cards,
                                        static_cast<std::uint16_t>(rank), handover_patience());
    });
  }
  std::vector<LocalMemory> memories;
  for (std::size_t rank = 0; rank < world; ++rank) {
    threads[rank].join();
    memories.push_back(std::move(*shared[rank]));
  }
  return memories;
}

TEST(LocalMemory, EveryRankReadsEveryOther) {
  constexpr std::uint16_t kWorld = 5;
  std::vector<LocalMemory> memories = share_all(kWorld);
  for (std::uint16_t from = 0; from < kWorld; ++from) {
    const auto bytes = sample_bytes(100'000, from);
    const auto offset = memories[from].stage(bytes);
    ASSERT_TRUE(offset);
    EXPECT_FALSE(memories[from].is_local_rank(from));
    for (std::uint16_t to = 0; to < kWorld; ++to) {
      if (to == from) {
        continue;
      }
      EXPECT_TRUE(memories[to].is_local_rank(from) && memories[from].is_read_by(to)) << from << to;
      std::vector<std::uint8_t> got(bytes.size());
      EXPECT_TRUE(memories[to].read(from, {*offset, got.size()}, got));
      EXPECT_EQ(got, bytes);
    }
  }
}

TEST(LocalMemory, APlaceThatCannotBeIsRefusedAndNamesTheRank) {
  std::vector<std::uint8_t> to(8192, 9);
  for (const MemoryPlace& place :
       {MemoryPlace{0, 8191}, MemoryPlace{0, UINT64_MAX}, MemoryPlace{kSegmentBytes - 8191, 8192},
        MemoryPlace{UINT64_MAX - 1, 8192}, MemoryPlace{}}) {
    std::vector<LocalMemory> memories = share_all(2);
    EXPECT_FALSE(memories[0].failure());
    EXPECT_FALSE(memories[0].read(1, place, to)) << place.offset;
    ASSERT_TRUE(memories[0].failure());
    EXPECT_EQ(memories[0].failure()->peer, 1);
    EXPECT_NE(memories[0].failure()->status.message().find("rank 1"), std::string::npos);
    EXPECT_EQ(memories[0].refused(), 1U);
  }
  EXPECT_EQ(to, std::vector<std::uint8_t>(8192, 9));
  std::vector<LocalMemory> memories = share_all(2);
  EXPECT_FALSE(memories[0].read(0, {0, to.size()}, to)) << "not a neighbour";
  EXPECT_FALSE(memories[0].read(2, {0, to.size()}, to)) << "not a rank";
}

TEST(LocalMemory, RanksOfOtherDomainsAreNotNear) {
  MemoryOffer mine = new_offer();
  MemoryCard elsewhere = new_offer().card();
  elsewhere.domain += "0";
  const std::vector<RankCard> cards = {memory_card_of(mine.card()), memory_card_of(elsewhere),
                                       memory_card_of({})};
  const LocalMemory memory = LocalMemory::share(std::move(mine), cards, 0, handover_patience());
  EXPECT_FALSE(memory.is_local_rank(1));
  EXPECT_FALSE(memory.is_local_rank(2));
}

// The child shares and stages, sends the offset through a pipe, and is killed while the data is
// staged.
TEST(LocalMemory, ProcessesShareWithoutRightsOverEachOtherAndOutliveEachOther) {
  MemoryOffer mine = new_offer();
  MemoryOffer theirs = new_offer();
  const std::vector<RankCard> cards = {memory_card_of(mine.card()), memory_card_of(theirs.card())};
  const auto bytes = sample_bytes(300'000, 5);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a killed test leaves no child behind
    // As under a strict Yama: unprivileged processes can neither trace nor read it.
    ::prctl(PR_SET_DUMPABLE, 0);
    LocalMemory memory = LocalMemory::share(std::move(theirs), cards, 1, handover_patience());
    const std::uint64_t offset =
        memory.is_read_by(0) ? memory.stage(bytes).value_or(UINT64_MAX) : UINT64_MAX;
    static_cast<void>(!::write(ends[1], &offset, sizeof(offset)));
    ::pause();
    ::_exit(0);
  }
  LocalMemory memory = LocalMemory::share(std::move(mine), cards, 0, handover_patience());
  EXPECT_TRUE(memory.is_read_by(1));
  std::uint64_t offset = 0;
  ASSERT_EQ(::read(ends[0], &offset, sizeof(offset)), static_cast<ssize_t>(sizeof(offset)));
  ::close(ends[0]);
  ::close(ends[1]);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  std::vector<std::uint8_t> got(bytes.size());
  EXPECT_TRUE(memory.read(1, {offset, got.size()}, got));
  EXPECT_EQ(got, bytes);
}

TEST(LocalMemory, ACardWithoutADoorBehindItLeadsToSocketsAtOnce) {
  MemoryOffer mine = new_offer();
  const MemoryCard forged{mine.domain, kDigits, kDigits};
  const std::vector<RankCard> cards = {memory_card_of(mine.card()), memory_card_of(forged)};
  const LocalMemory memory = LocalMemory::share(std::move(mine), cards, 0, base::seconds(3600));
  EXPECT_TRUE(memory.is_local_rank(1)) << "by its card, as the other end thinks";
  EXPECT_FALSE(memory.is_read_by(1));
}

// Rank 1's card names rank 2's socket and token, as an attacker who can change cards might forge
// it. No rank may take rank 2's memory for rank 1's; that data goes through sockets. Returns the
// number of connections that rank 2 rejects.
std::uint64_t turned_away_with_a_forged_card(base::Duration patience) {
  std::vector<MemoryOffer> offers;
  std::vector<RankCard> cards;
  for (int rank = 0; rank < 3; ++rank) {
    offers.push_back(new_offer());
    cards.push_back(memory_card_of(offers.back().card()));
  }
  cards[1].memory = cards[2].memory;
  std::vector<HandoverResult> results(3);
  std::vector<std::thread> threads;
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] =
          hand_over(std::move(offers[rank].listener), offers[rank].segment, cards, rank, patience);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::uint16_t rank : {0, 2}) {
    for (const Neighbour& neighbour : results[rank].neighbours) {
      EXPECT_FALSE(neighbour.rank == 1 && neighbour.segment) << "at rank " << rank;
      EXPECT_EQ(neighbour.trouble.empty(), neighbour.segment && neighbour.reads_us);
    }
  }
  return results[2].rejected;
}

// If rank 2 waits for a processor, it may serve its socket too late: then it gets more time.
TEST(LocalMemory, ACardThatNamesSomebodyElsesDoorGetsNothingOfIt) {
  base::Duration patience = kShortHandover;
  while (turned_away_with_a_forged_card(patience) == 0) {
    patience = patience * 2;
    ASSERT_LT(patience, handover_patience()) << "itself, at its own socket";
  }
}

// The note's layout in local_memory.cc.
struct ForgedNote {
  std::uint32_t magic = 0x4D4C5053;
  std::uint16_t kind = 0;
  std::uint16_t rank = 0;
  std::array<char, kMemoryNameDigits> token{};
};

ForgedNote forged_note(std::uint16_t kind, std::uint16_t rank, const std::string& token) {
  ForgedNote note{.kind = kind, .rank = rank};
  std::copy(token.begin(), token.end(), note.token.begin());
  return note;
}

void send_with(const net::UniqueFd& socket, ForgedNote note, const std::vector<int>& descriptors) {
  iovec part{&note, sizeof(note)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  }
  EXPECT_EQ(::sendmsg(socket.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(note)));
}

net::UniqueFd accept_at(const MemoryListener& listener) {
  while (true) {
    net::UniqueFd socket(::accept4(listener.socket().get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.valid() || errno != EAGAIN) {
      return socket;
    }
    std::this_thread::yield();
  }
}

net::UniqueFd knock_at(const MemoryListener& listener) {
  net::UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  EXPECT_EQ(::getsockname(listener.socket().get(), reinterpret_cast<sockaddr*>(&address), &size),
            0);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  return socket;
}

// Rank 0's result for a rank 1 that asks and leaves, and whose socket answers with `answer`. `over`
// is set when rank 0 stops waiting.
Neighbour meet_owner(const std::function<void(const net::UniqueFd&, const RankCard& asks,
                                              std::future<void> over)>& answer,
                     base::Duration patience = handover_patience()) {
  MemoryOffer mine = new_offer();
  const MemoryOffer theirs = new_offer();
  const std::vector<RankCard> cards = {memory_card_of(mine.card()), memory_card_of(theirs.card())};
  send_with(knock_at(mine.listener), forged_note(1, 1, cards[0].memory.token), {});
  std::promise<void> over;
  std::thread owner([&] {
    const net::UniqueFd visitor = accept_at(theirs.listener);
    ForgedNote asked;
    EXPECT_EQ(::recv(visitor.get(), &asked, sizeof(asked), 0), static_cast<ssize_t>(sizeof(asked)));
    EXPECT_EQ(std::string(asked.token.begin(), asked.token.end()), cards[1].memory.token);
    answer(visitor, cards[0], over.get_future());
  });
  HandoverResult result = hand_over(std::move(mine.listener), mine.segment, cards, 0, patience);
  over.set_value();
  owner.join();
  return std::move(result.neighbours.at(0));
}

TEST(LocalMemory, WhatAnOwnerHandsOverIsLookedAt) {
  const auto own = OwnSegment::make();
  ASSERT_TRUE(own.ok());
  const int good = own->descriptor().get();
  const net::UniqueFd unsealed(::memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kSegmentBytes), 0);
  const auto hands = [](std::uint16_t kind, std::uint16_t rank, const std::string* token,
                        std::vector<int> fds) {
    return [=](const net::UniqueFd& visitor, const RankCard& asks, std::future<void>) {
      send_with(visitor, forged_note(kind, rank, token ? *token : asks.memory.token), fds);
    };
  };
  EXPECT_TRUE(meet_owner(hands(2, 1, nullptr, {good})).segment);
  EXPECT_FALSE(meet_owner(hands(2, 1, nullptr, {unsealed.get()})).segment);
  EXPECT_FALSE(meet_owner(hands(2, 1, nullptr, {STDIN_FILENO})).segment);
  EXPECT_FALSE(meet_owner(hands(2, 1, nullptr, {})).segment);
  EXPECT_FALSE(meet_owner(hands(2, 1, nullptr, {good, good})).segment);
  EXPECT_FALSE(meet_owner(hands(2, 1, nullptr, std::vector<int>(16, good))).segment);
  EXPECT_FALSE(meet_owner(hands(1, 1, nullptr, {good})).segment) << "another kind of note";
  EXPECT_FALSE(meet_owner(hands(2, 0, nullptr, {good})).segment) << "another rank";
  EXPECT_FALSE(meet_owner(hands(2, 1, &kDigits, {good})).segment) << "does not know our token";
}

TEST(LocalMemory, AnOwnerThatIsSilentOrGoesAwayIsNotWaitedForLong) {
  const Neighbour silent =
      meet_owner([](const net::UniqueFd&, const RankCard&, std::future<void> over) { over.wait(); },
                 kShortHandover);
  EXPECT_FALSE(silent.segment || silent.reads_us);
  EXPECT_FALSE(silent.trouble.empty());
  EXPECT_FALSE(meet_owner([](const net::UniqueFd&, const RankCard&, std::future<void>) {}).segment);
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  }
  return count;
}

TEST(LocalMemory, NothingThatWasHandedOverStaysOpen) {
  const std::size_t before = open_descriptors();
  const auto throwing_all = [](const net::UniqueFd& visitor, const RankCard& asks,
                               std::future<void>) {
    send_with(visitor, forged_note(2, 1, asks.memory.token), std::vector<int>(16, STDIN_FILENO));
  };
  EXPECT_FALSE(meet_owner(throwing_all).segment);
  share_all(3).clear();
  EXPECT_EQ(open_descriptors(), before);
}

TEST(LocalMemory, StrangersAtTheDoorGetNothingAndHinderNobody) {
  std::vector<MemoryOffer> offers;
  offers.push_back(new_offer());
  offers.push_back(new_offer());
  const std::vector<RankCard> cards = {memory_card_of(offers[0].card()),
                                       memory_card_of(offers[1].card())};
  std::vector<net::UniqueFd> silent;
  for (std::size_t i = 0; i < kMaxMemoryStrangers / 2; ++i) {
    silent.push_back(knock_at(offers[0].listener));
  }
  const net::UniqueFd liar = knock_at(offers[0].listener);
  send_with(liar, forged_note(1, 1, kDigits), {});
  const net::UniqueFd babbler = knock_at(offers[0].listener);
  EXPECT_EQ(::send(babbler.get(), "hello", 5, 0), 5);
  const net::UniqueFd nobody = knock_at(offers[0].listener);
  send_with(nobody, forged_note(1, 7, cards[0].memory.token), {});
  std::optional<HandoverResult> other;
  std::thread neighbour([&] {
    other =
        hand_over(std::move(offers[1].listener), offers[1].segment, cards, 1, handover_patience());
  });
  const HandoverResult result =
      hand_over(std::move(offers[0].listener), offers[0].segment, cards, 0, handover_patience());
  neighbour.join();
  EXPECT_EQ(result.rejected, 3U);
  EXPECT_TRUE(result.neighbours.at(0).segment && result.neighbours.at(0).reads_us);
  EXPECT_TRUE(other->neighbours.at(0).segment && other->neighbours.at(0).reads_us);
  std::array<char, 64> answer{};
  EXPECT_EQ(::recv(liar.get(), answer.data(), answer.size(), 0), 0) << "closed without a word";
}

TEST(LocalMemory, ANeighbourThatTakesNothingIsNotCountedOn) {
  MemoryOffer mine = new_offer();
  const MemoryOffer theirs = new_offer();
  const std::vector<RankCard> cards = {memory_card_of(mine.card()), memory_card_of(theirs.card())};
  {
    const net::UniqueFd asks = knock_at(mine.listener);
    send_with(asks, forged_note(1, 1, cards[0].memory.token), {});
  }
  const HandoverResult result =
      hand_over(std::move(mine.listener), mine.segment, cards, 0, kShortHandover);
  EXPECT_FALSE(result.neighbours.at(0).reads_us);
}

TEST(LocalMemory, TheDoorIsClosedWhenAllAreServed) {
  MemoryOffer mine = new_offer();
  const std::string name = mine.card().name;
  const std::vector<RankCard> cards = {memory_card_of(mine.card())};
  const LocalMemory memory = LocalMemory::share(std::move(mine), cards, 0, handover_patience());
  MemoryOffer late = new_offer();
  const std::vector<RankCard> later = {memory_card_of(late.card()),
                                       memory_card_of({late.domain, name, kDigits})};
  const HandoverResult result =
      hand_over(std::move(late.listener), late.segment, later, 0, handover_patience());
  EXPECT_NE(result.neighbours.at(0).trouble.find("closed"), std::string::npos);
}

TEST(RankCard, TellsOfMemoryAllOrNothing) {
  RankCard card = memory_card_of(new_offer().card());
  card.data = net::SocketAddress::parse("127.0.0.1:7000").value();
  card.machine = "here";
  const auto read = parse_rank_card(to_blob(card));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->memory.domain, card.memory.domain);
  EXPECT_EQ(read->memory.name, card.memory.name);
  EXPECT_EQ(read->memory.token, card.memory.token);
  const auto parses = [&](const MemoryCard& memory) {
    RankCard forged = card;
    forged.memory = memory;
    return parse_rank_card(to_blob(forged)).ok();
  };
  EXPECT_TRUE(parses({}));
  EXPECT_TRUE(parses({"here", kDigits, kDigits}));
  EXPECT_FALSE(parses({"here", "", ""}));
  EXPECT_FALSE(parses({"here", kDigits, "7"}));
  EXPECT_FALSE(parses({"here", kDigits + "7", kDigits}));
  EXPECT_FALSE(parses({"here", "../../../../etc/passwd/777777777", kDigits}));
  EXPECT_FALSE(parses({std::string(kMaxMemoryDomain + 1, 'x'), kDigits, kDigits}));
}

}  // namespace
}  // namespace spillway::comm
