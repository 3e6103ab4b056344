// SPDX-License-Identifier: Apache-2.0
#include "elastic/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/bytes.h"
#include "elastic/job_impl.h"
#include "elastic/mesh_message.h"
#include "launch/launch.h"
#include "observe/log.h"

namespace spillway::elastic {

namespace {

using membership::MemberId;

// How long founders wait for their mutual streams, and a newcomer for its welcome.
constexpr base::Duration kFoundingPatience = base::seconds(10);
constexpr base::Duration kJoiningPatience = base::seconds(10);
// How long a newcomer waits for a silent member before it tries the ticket's next address.
constexpr std::chrono::milliseconds kMemberTimeout{2500};
// Period of reading the ticket's file again, once all addresses of the last ticket were tried.
constexpr std::chrono::milliseconds kTicketPollInterval{100};

base::Result<launch::Nonce> nonce_of_job(const wire::RunKey& key) {
  launch::Nonce nonce{};
  const base::Status status = wire::derive(key, {.use = wire::KeyUse::kTicket}, nonce);
  return status.ok() ? base::Result<launch::Nonce>(nonce) : status;
}

// The ticket in the file, if it names other members of the same job.
std::optional<Ticket> other_ticket(const std::string& path, const Ticket& known) {
  const base::Result<std::string> text = ticket_text_in(path);
  const base::Result<Ticket> ticket = parse_ticket(text.ok() ? *text : "");
  return ticket.ok() && ticket->job == known.job && ticket->addresses != known.addresses
             ? std::optional(*ticket)
             : std::nullopt;
}

base::Result<std::uint64_t> draw_word() {
  const base::Result<comm::Random> random = comm::draw_random();
  if (!random.ok()) {
    return random.status();
  }
  return std::max<std::uint64_t>(base::load_le<std::uint64_t>(random->data()), 1);
}

}  // namespace

base::Status Job::Impl::take_secret() {
  base::Result<launch::Secret> secret =
      launch::secret_from(base::Environment::of_process(), config_.communicator.secret);
  if (!secret.ok()) {
    return secret.status();
  }
  secret_ = std::move(secret).value();
  return {};
}

base::Status Job::Impl::open_slots() {
  if (!next_slots_.empty()) {
    return {};
  }
  comm::CommunicatorConfig config = config_.communicator;
  config.id.reset();
  config.servers.reset();
  config.slot_on_one_machine = on_one_machine_;
  std::vector<comm::Blob> cards;
  for (std::uint16_t channel = 0; channel < config_.channels; ++channel) {
    base::Result<std::unique_ptr<comm::Communicator::Slot>> slot =
        comm::Communicator::Slot::open(config);
    if (!slot.ok()) {
      next_slots_.clear();
      return slot.status();
    }
    cards.push_back((*slot)->handle());
    next_slots_.push_back(std::move(slot).value());
  }
  base::Result<membership::Handle> handle = encode_handle(cards);
  if (!handle.ok()) {
    return handle.status();
  }
  next_handle_ = std::move(handle).value();
  return {};
}

base::Status Job::Impl::open_mesh(base::ByteView secret, Standing standing) {
  const base::Result<comm::Credential> credential = ticket_.credential(secret);
  const base::Result<MemberKey> key = MemberKey::draw();
  if (!credential.ok() || !key.ok()) {
    return credential.ok() ? key.status() : credential.status();
  }
  id_ = key->id();
  base::Result<std::unique_ptr<Mesh>> mesh =
      Mesh::open({.job = ticket_.job,
                  .credential = *credential,
                  .standing = standing,
                  .listen = next_slots_.front()->address().with_port(0),
                  .key = *key,
                  .name = fmt::format("{}:{}", observe::host_name(), ::getpid())},
                 *this);
  if (!mesh.ok()) {
    return mesh.status();
  }
  mesh_ = std::move(mesh).value();
  return {};
}

base::Status Job::Impl::found(comm::Communicator& communicator) {
  if (config_.standbys >= communicator.world()) {
    return base::invalid_argument(fmt::format(
        "{} standbys leave no rank of {} to train: start more processes, or ask for fewer",
        config_.standbys, communicator.world()));
  }
  const base::Result<comm::JobRoots> roots = communicator.job_roots();
  if (!roots.ok()) {
    return roots.status();
  }
  key_ = roots->key;
  on_one_machine_ = roots->on_one_machine;
  const base::Result<launch::Nonce> nonce = nonce_of_job(key_);
  if (!nonce.ok()) {
    return nonce.status();
  }
  ticket_.job = *nonce;
  for (const base::Status& status : {take_secret(), open_slots()}) {
    if (!status.ok()) {
      return status;
    }
  }
  if (base::Status status = open_mesh(secret_.bytes(), Standing::kMember); !status.ok()) {
    return status;
  }
  secret_.wipe();
  ticket_.addresses = {mesh_->own().address};
  const base::Result<std::vector<Founder>> founders =
      gather_founders(communicator, {mesh_->own(), next_handle_});
  if (!founders.ok()) {
    return founders.status();
  }
  decision_ = founding_decision(*founders, config_.standbys);
  decided_ns_ = wall_clock_ns();
  for (const Founder& founder : *founders) {
    mesh_->add_member(founder.card);
  }
  ticket_addresses_ = stream_addresses_of(decision_->view);
  for (const net::SocketAddress& address : ticket_addresses_) {
    if (address != ticket_.addresses.front() && ticket_.addresses.size() < kMaxTicketAddresses) {
      ticket_.addresses.push_back(address);
    }
  }
  first_change_ = take_decision(/*had_state=*/true);
  if (base::Status status = open_slots(); !status.ok()) {
    return status;
  }
  if (base::Status status = start(present_.view); !status.ok()) {
    return status;
  }
  if (base::Status status = export_metrics(communicator.rank()); !status.ok()) {
    return status;
  }
  return wait_for_streams(founders->size() - 1);
}

// The mesh addresses of the first ranks, on several hosts if possible.
std::vector<net::SocketAddress> Job::Impl::stream_addresses_of(const membership::View& view) const {
  std::vector<net::SocketAddress> addresses;
  std::set<std::string> hosts;
  for (const bool wants_other_host : {true, false}) {
    for (const MemberId rank : view.ranks) {
      const MemberCard* card = mesh_->find(rank);
      if (card == nullptr || addresses.size() == kMaxTicketAddresses ||
          std::ranges::find(addresses, card->address) != addresses.end()) {
        continue;
      }
      const bool is_other_host = hosts.insert(card->address.with_port(0).to_string()).second;
      if (is_other_host || !wants_other_host) {
        addresses.push_back(card->address);
      }
    }
  }
  return addresses;
}

// Rank 0 writes the ticket. Called under the mutex, or before the job's thread runs.
base::Status Job::Impl::publish_ticket() const {
  const bool is_first = !present_.view.ranks.empty() && present_.view.ranks.front() == id_;
  return is_first && !config_.ticket_file.empty() && !ticket_addresses_.empty()
             ? Ticket{.addresses = ticket_addresses_, .job = ticket_.job}.write_to(
                   config_.ticket_file)
             : base::Status();
}

base::Status Job::Impl::join(const Ticket& ticket) {
  ticket_ = ticket;
  on_one_machine_ = ticket.addresses.front().to_string().starts_with("127.");
  for (const base::Status& status : {take_secret(), open_slots()}) {
    if (!status.ok()) {
      return status;
    }
  }
  if (base::Status status = open_mesh(secret_.bytes(), Standing::kNewcomer); !status.ok()) {
    return status;
  }
  secret_.wipe();
  ticket_.addresses.insert(ticket_.addresses.begin(), mesh_->own().address);
  if (ticket_.addresses.size() > kMaxTicketAddresses) {
    ticket_.addresses.pop_back();
  }
  if (base::Status status = start(std::nullopt); !status.ok()) {
    return status;
  }
  if (base::Status status = export_metrics(0); !status.ok()) {
    return status;
  }
  return wait_for_welcome(ticket);
}

// Members that the ticket names may be gone, and then refuse or stay silent. So the newcomer tries
// each in turn, then the addresses in the ticket's file, which the first rank of each epoch
// rewrites. The last member dialled may still answer meanwhile.
base::Status Job::Impl::wait_for_welcome(Ticket ticket) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(kJoiningPatience.count());
  std::size_t tried = 0;  // number of the ticket's addresses tried
  std::unique_lock lock(mutex_);
  while (!is_welcome_ && std::chrono::steady_clock::now() < end) {
    if (tried < ticket.addresses.size()) {
      dismissed_.reset();
      tasks_.push([this, address = ticket.addresses[tried]] { mesh_->dial_any_member(address); });
      ++tried;
      const auto turn_ends = std::min(end, std::chrono::steady_clock::now() + kMemberTimeout);
      changed_.wait_until(lock, turn_ends, [this] { return is_welcome_ || dismissed_; });
      continue;
    }
    if (config_.ticket_file.empty() && dismissed_) {
      break;
    }
    lock.unlock();
    const std::optional<Ticket> next =
        config_.ticket_file.empty() ? std::nullopt : other_ticket(config_.ticket_file, ticket);
    lock.lock();
    if (next) {
      ticket = *next;
      tried = 0;
    } else {
      changed_.wait_for(lock, kTicketPollInterval, [this] { return is_welcome_; });
    }
  }
  if (is_welcome_) {
    return {};
  }
  return {base::StatusCode::kUnavailable,
          fmt::format("the job at {} cannot be joined: {}", ticket.addresses_text(),
                      dismissed_.value_or("it does not answer"))};
}

base::Status Job::Impl::start(std::optional<membership::View> view) {
  const base::Result<std::uint64_t> seed = draw_word();
  if (!seed.ok()) {
    return seed.status();
  }
  membership::MemberConfig config = config_.membership;
  config.seed = *seed;
  config.secret_word = [spare = *seed] {
    const base::Result<std::uint64_t> word = draw_word();
    return word.ok() ? *word : spare;
  };
  member_ = std::make_unique<membership::Member>(config, id_, std::move(view), next_handle_,
                                                 clock_.now());
  thread_ = std::thread([this] { run(); });
  return {};
}

base::Status Job::Impl::export_metrics(std::uint32_t rank) {
  const base::Environment environment = base::Environment::of_process();
  const base::Result<std::uint16_t> local_rank = launch::local_rank_from(environment);
  if (!local_rank.ok()) {
    return local_rank.status();
  }
  observe::Identity identity{
      .communicator = "job", .rank = rank, .world = 1, .local_rank = *local_rank};
  const base::Result<observe::MetricsConfig> config =
      observe::metrics_config(environment, identity);
  if (!config.ok()) {
    return config.status();
  }
  exported_ = std::make_unique<observe::MetricsExport>(
      *config, observe::MetricsSource{.text = [this] { return metrics(); }});
  return {};
}

base::Status Job::Impl::wait_for_streams(std::size_t others) {
  std::unique_lock lock(mutex_);
  const bool all = changed_.wait_for(lock, std::chrono::nanoseconds(kFoundingPatience.count()),
                                     [&] { return settled_peers_.size() >= others; });
  if (all) {
    return {};
  }
  return {base::StatusCode::kUnavailable,
          fmt::format("{} of {} other members cannot be reached over TCP: members watch each other "
                      "that way; open the ports between their hosts",
                      others - settled_peers_.size(), others)};
}

Job::Job(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Job::~Job() = default;

base::Result<std::unique_ptr<Job>> Job::found(comm::Communicator& communicator,
                                              const JobConfig& config) {
  auto impl = std::make_unique<Impl>(config);
  if (base::Status status = impl->found(communicator); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Job>(new Job(std::move(impl)));
}

base::Result<std::unique_ptr<Job>> Job::join(const Ticket& ticket, const JobConfig& config) {
  auto impl = std::make_unique<Impl>(config);
  if (base::Status status = impl->join(ticket); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Job>(new Job(std::move(impl)));
}

const Ticket& Job::ticket() const {
  return impl_->ticket();
}
std::optional<Change> Job::first_change() const {
  return impl_->first_change();
}
Verdict Job::step(std::uint64_t step, base::Duration work) {
  return impl_->step(step, work);
}
bool Job::is_interrupted() const {
  return impl_->is_interrupted();
}
void Job::watch(std::weak_ptr<comm::Communicator> communicator) {
  impl_->watch(std::move(communicator));
}
base::Result<std::optional<Change>> Job::park(const membership::Position& position,
                                              base::Duration limit) {
  return impl_->park(position, limit);
}
base::Result<std::unique_ptr<comm::Communicator>> Job::communicator(
    std::uint16_t channel, std::span<const std::uint16_t> ranks) {
  return impl_->communicator(channel, ranks);
}
void Job::leave() {
  impl_->leave();
}
std::optional<bool> Job::finish(base::Duration limit) {
  return impl_->finish(limit);
}
base::Result<std::string> Job::ask(const std::string& question, base::Duration limit) {
  return impl_->ask(question, limit);
}

// ------------------------------------------------------------------ founding

namespace {

constexpr std::size_t kFoundingBytes = 6144;

// The card and handle, padded to kFoundingBytes.
base::Result<comm::Blob> founding_record(const Founder& founder) {
  const comm::Frame roster = encode_roster({founder.card});
  const membership::Handle& handle = founder.handle;
  comm::Blob record(kFoundingBytes);
  if (4 + roster.body.size() + handle.size() > record.size()) {
    return base::Status(base::StatusCode::kLimitExceeded, "this member's addresses are too long");
  }
  base::store_le(record.data(), static_cast<std::uint16_t>(roster.body.size()));
  base::store_le(record.data() + 2, static_cast<std::uint16_t>(handle.size()));
  std::copy(handle.begin(), handle.end(),
            std::copy(roster.body.begin(), roster.body.end(), record.begin() + 4));
  return record;
}

base::Result<Founder> parse_founder(base::ByteView record) {
  base::ByteReader reader(record);
  const auto card_bytes = reader.read<std::uint16_t>();
  const auto handle_bytes = reader.read<std::uint16_t>();
  const base::Result<std::vector<MemberCard>> cards = parse_roster(reader.take(card_bytes));
  const base::ByteView handle = reader.take(handle_bytes);
  if (!reader.ok() || !cards.ok() || cards->size() != 1) {
    return base::Status(base::StatusCode::kCorrupt, "a founder's card makes no sense");
  }
  return Founder{cards->front(), {handle.begin(), handle.end()}};
}

}  // namespace

base::Result<std::vector<Founder>> gather_founders(comm::Communicator& communicator,
                                                   const Founder& founder) {
  const base::Result<comm::Blob> record = founding_record(founder);
  if (!record.ok()) {
    return record.status();
  }
  const comm::Blob& own = *record;
  comm::Blob all(own.size() * communicator.world());
  collective::Operation operation;
  operation.kind = collective::Kind::kAllGather;
  operation.type = collective::DataType::kUint8;
  operation.count = own.size();
  operation.input = own.data();
  operation.output = all.data();
  const base::Result<std::shared_ptr<comm::Request>> request = communicator.submit(operation);
  if (!request.ok()) {
    return request.status();
  }
  if (const base::Status status = *(*request)->wait(std::nullopt); !status.ok()) {
    return status;
  }
  std::vector<Founder> founders;
  for (std::size_t rank = 0; rank < communicator.world(); ++rank) {
    const base::Result<Founder> founder =
        parse_founder(base::ByteView(all).subspan(rank * own.size(), own.size()));
    if (!founder.ok()) {
      return founder.status();
    }
    founders.push_back(*founder);
  }
  return founders;
}

membership::Decision founding_decision(const std::vector<Founder>& founders, std::size_t standbys) {
  membership::Decision decision;
  decision.why = "the job was founded";
  decision.view.epoch = 1;
  for (std::size_t i = 0; i < founders.size(); ++i) {
    if (i + standbys < founders.size()) {
      decision.sources.push_back(static_cast<std::uint32_t>(i));
      decision.view.ranks.push_back(founders[i].card.id);
      decision.handles.push_back(founders[i].handle);
    } else {
      decision.view.standbys.push_back(founders[i].card.id);
    }
  }
  return decision;
}

}  // namespace spillway::elastic
