#include "server/region/lease_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/packet.h"
#include "proto/wire/status.h"
#include "server/region/region_packets.h"

namespace attnd::server {
namespace {

// How long nobody is accepted after that has failed.
constexpr absl::Duration kRest = absl::Milliseconds(100);
// What is no connection.
constexpr uint64_t kListener = 0;
constexpr uint64_t kWake = 1;

constexpr uint32_t kEnd = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

}  // namespace

absl::StatusOr<std::unique_ptr<LeaseServer>> LeaseServer::Start(
    LeaseDoor::Parts door, absl::Duration header_time) {
  std::unique_ptr<LeaseServer> server(
      new LeaseServer(std::move(door), header_time));
  server->epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  server->wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->epoll_.valid() || !server->wake_.valid() ||
      !server->Watch(EPOLL_CTL_ADD, server->wake_.get(), kWake, EPOLLIN) ||
      !server->Watch(EPOLL_CTL_ADD, server->door_.listener(), kListener,
                     EPOLLIN)) {
    return absl::ResourceExhaustedError("no descriptor to lease regions with");
  }
  auto importer = Keeper::Start();
  if (!importer.ok()) return importer.status();
  server->importer_ = *std::move(importer);
  try {
    server->thread_ = std::thread(&LeaseServer::Run, server.get());
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("no thread to lease regions with");
  }
  return server;
}

LeaseServer::~LeaseServer() {
  if (thread_.joinable()) {
    {
      MutexLock lock(mutex_);
      ends_ = true;
    }
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  // What it imports needs the connections.
  if (importer_ != nullptr) importer_->Stop();
  {
    MutexLock lock(mutex_);
    for (const Imported& one : imported_) {
      if (one.lease.ok()) lessor_.End(one.lease->region->id());
    }
  }
  while (!open_.empty()) End(open_.begin()->first);
}

int LeaseServer::connections() const {
  MutexLock lock(mutex_);
  return connections_;
}

bool LeaseServer::Watch(int epoll_operation, int fd, Serial serial,
                        uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = serial;
  return epoll_ctl(epoll_.get(), epoll_operation, fd, &event) == 0;
}

LeaseServer::LeaseServer(LeaseDoor::Parts door, absl::Duration header_time)
    : lessor_(*door.lessor),
      header_time_(header_time),
      server_instance_id_(door.server_instance_id),
      door_(std::move(door)) {}

void LeaseServer::Run() {
  std::array<epoll_event, 64> events;
  while (true) {
    door_.FillReserve();
    const int ready = epoll_wait(epoll_.get(), events.data(), events.size(),
                                 WaitMilliseconds());
    for (int i = 0; i < ready; ++i) {
      const Serial serial = events[i].data.u64;
      if (serial == kListener) {
        AcceptSome();
      } else if (serial == kWake) {
        eventfd_t told = 0;
        eventfd_read(wake_.get(), &told);
        MutexLock lock(mutex_);
        if (ends_) return;
      } else {
        OnReady(serial, (events[i].events & kEnd) != 0);
      }
    }
    FinishImports();
    RefuseLate();
    if (rests_ && MonotonicNow() >= rests_until_) {
      rests_ = !Watch(EPOLL_CTL_MOD, door_.listener(), kListener, EPOLLIN);
    }
  }
}

// Until somebody is late or a rest is over; -1: neither.
int LeaseServer::WaitMilliseconds() const {
  absl::Time until = absl::InfiniteFuture();
  if (!deadlines_.empty()) until = deadlines_.begin()->first;
  if (rests_) until = std::min(until, rests_until_);
  if (until == absl::InfiniteFuture()) return -1;
  const absl::Duration left = until - MonotonicNow();
  if (left <= absl::ZeroDuration()) return 0;
  return static_cast<int>(
      absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

void LeaseServer::AcceptSome() {
  const bool can = door_.AcceptSome(
      [this](Descriptor socket, uid_t user) { Add(std::move(socket), user); });
  if (can) return;
  // It would be told at once, and again, that somebody waits.
  rests_ = Watch(EPOLL_CTL_MOD, door_.listener(), kListener, 0);
  rests_until_ = MonotonicNow() + kRest;
}

void LeaseServer::Add(Descriptor socket, uid_t user) {
  const Serial serial = ++last_;
  const absl::Time deadline = MonotonicNow() + header_time_;
  const bool is_watched =
      Watch(EPOLL_CTL_ADD, socket.get(), serial, EPOLLIN | EPOLLRDHUP);
  deadlines_.emplace(deadline, serial);
  open_.emplace(serial, Connection{std::move(socket), user, State::kAsking,
                                   deadline, ""});
  {
    MutexLock lock(mutex_);
    ++connections_;
  }
  if (!is_watched) RefuseUnwatched(serial);
}

void LeaseServer::OnReady(Serial serial, bool has_ended) {
  const auto found = open_.find(serial);
  if (found == open_.end()) return;
  Connection& of = found->second;
  if (of.state == State::kAsking) return OnRequest(serial, of, has_ended);
  if (of.state == State::kLeased) return OnWordOfLeased(serial, of, has_ended);
}

void LeaseServer::OnRequest(Serial serial, Connection& of, bool has_ended) {
  std::string bytes;
  switch (PeekPacket(of.socket.get(), kMostRequestBytes, bytes)) {
    case Peeked::kNothing:
      if (has_ended) End(serial);
      return;
    case Peeked::kFailed:
      return End(serial);
    case Peeked::kEmpty:
      if (has_ended) return End(serial);
      return RefuseRequest(serial, "the packet is empty");
    case Peeked::kTooLong:
      return RefuseRequest(serial, absl::StrCat("the packet has more than ",
                                                kMostRequestBytes, " bytes"));
    case Peeked::kPacket:
      break;
  }
  const auto request = ParseRegionRequest(bytes);
  if (!request.ok()) {
    return Refuse(serial,
                  lessor_.Refuse(RegionRefusal::kRequest, request.status()));
  }
  deadlines_.erase({of.deadline, serial});
  if (request->has_import()) return BeginImport(serial, of, request->import());
  LeaseHostMemory(serial, of, request->lease());
}

void LeaseServer::OnWordOfLeased(Serial serial, Connection& of,
                                 bool has_ended) {
  std::string bytes;
  const Peeked peeked = PeekPacket(of.socket.get(), kMostRequestBytes, bytes);
  if (peeked == Peeked::kNothing && !has_ended) return;
  const bool says_something = peeked == Peeked::kPacket ||
                              peeked == Peeked::kTooLong ||
                              (peeked == Peeked::kEmpty && !has_ended);
  if (!says_something) return End(serial);
  RefuseRequest(serial, "a second packet, which ends the lease");
}

void LeaseServer::LeaseHostMemory(Serial serial, Connection& of,
                                  const attn::v1::LeaseHostMemory& asked) {
  if (DropPacket(of.socket.get())) {
    return RefuseRequest(serial, "a descriptor, which a lease does not take");
  }
  const auto lease = lessor_.LeaseHostMemory(of.user, asked);
  if (!lease.ok()) return Refuse(serial, lease.status());
  Grant(serial, of, *lease);
}

void LeaseServer::BeginImport(Serial serial, Connection& of,
                              const attn::v1::ImportDeviceMemory& asked) {
  absl::StatusOr<Lessor::Import> import = lessor_.AdmitImport(of.user, asked);
  if (!import.ok()) return Refuse(serial, import.status());
  // Its end is looked at when the importer has done with it.
  Watch(EPOLL_CTL_DEL, of.socket.get(), serial, 0);
  of.state = State::kImporting;
  importer_->Post([this, serial, socket = of.socket.get(),
                   import = *std::move(import)]() mutable {
    absl::StatusOr<Lessor::Lease> lease =
        ReceiveAndImport(socket, std::move(import));
    {
      MutexLock lock(mutex_);
      imported_.push_back({serial, std::move(lease)});
    }
    eventfd_write(wake_.get(), 1);
  });
}

absl::StatusOr<Lessor::Lease> LeaseServer::ReceiveAndImport(
    int socket, Lessor::Import import) {
  const absl::StatusOr<Packet> packet =
      ReceivePacket(socket, kMostRequestBytes);
  if (!packet.ok()) {
    const bool exhausted = absl::IsResourceExhausted(packet.status());
    return lessor_.Refuse(
        exhausted ? RegionRefusal::kDescriptors : RegionRefusal::kRequest,
        packet.status());
  }
  if (!packet->descriptor.valid()) {
    return lessor_.Refuse(RegionRefusal::kRequest,
                          absl::InvalidArgumentError(
                              "no descriptor, which an import takes one of"));
  }
  return lessor_.ImportDeviceMemory(std::move(import),
                                    packet->descriptor.get());
}

void LeaseServer::FinishImports() {
  std::vector<Imported> imported;
  {
    MutexLock lock(mutex_);
    imported.swap(imported_);
  }
  for (const Imported& one : imported) {
    Connection& of = open_.find(one.serial)->second;
    if (!one.lease.ok()) {
      Refuse(one.serial, one.lease.status());
    } else if (Watch(EPOLL_CTL_ADD, of.socket.get(), one.serial,
                     EPOLLIN | EPOLLRDHUP)) {
      Grant(one.serial, of, *one.lease);
    } else {
      lessor_.End(one.lease->region->id());
      RefuseUnwatched(one.serial);
    }
  }
}

void LeaseServer::Grant(Serial serial, Connection& of,
                        const Lessor::Lease& lease) {
  of.state = State::kLeased;
  of.region = lease.region->id();
  attn::v1::RegionReply reply;
  reply.set_region(of.region);
  reply.set_bytes(lease.region->bytes());
  reply.set_server_instance_id(server_instance_id_);
  const absl::Status sent =
      SendPacket(of.socket.get(), reply.SerializeAsString(), lease.descriptor);
  if (!sent.ok()) End(serial);  // it has gone meanwhile
}

void LeaseServer::RefuseLate() {
  const absl::Time now = MonotonicNow();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    RefuseRequest(
        deadlines_.begin()->second,
        absl::StrCat("no request within ", absl::FormatDuration(header_time_)));
  }
}

void LeaseServer::Refuse(Serial serial, const absl::Status& status) {
  SendRefusal(open_.find(serial)->second.socket.get(), status,
              server_instance_id_);
  End(serial);
}

void LeaseServer::RefuseRequest(Serial serial, absl::string_view why) {
  Refuse(serial, lessor_.Refuse(RegionRefusal::kRequest,
                                absl::InvalidArgumentError(why)));
}

// The system has no more room for what is to be waited for.
void LeaseServer::RefuseUnwatched(Serial serial) {
  Refuse(serial, lessor_.Refuse(RegionRefusal::kDescriptors,
                                absl::ResourceExhaustedError(absl::StrCat(
                                    "the connection cannot be watched: ",
                                    std::strerror(errno)))));
}

void LeaseServer::End(Serial serial) {
  const auto found = open_.find(serial);
  Connection& of = found->second;
  deadlines_.erase({of.deadline, serial});
  door_.Remove(of.user);
  if (of.state == State::kLeased) lessor_.End(of.region);
  open_.erase(found);
  MutexLock lock(mutex_);
  --connections_;
}

}  // namespace attnd::server
