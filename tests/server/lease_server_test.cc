#include "server/region/lease_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/wire/status.h"
#include "server/region/regions.h"
#include "tests/hang_limit.h"
#include "tests/server/region_testing.h"

namespace attnd::server {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

// Of four regions of 2 MiB and one of 8.
class LeaseServerTest : public ::testing::Test {
 protected:
  LeaseServerTest() {
    options_.socket = folder_ / "region";
    options_.memory_bytes = 16 * kMiB;
    options_.slab_bytes = 2 * kMiB;
    options_.imports_per_second = 1000;
  }
  // Whatever a test did, nothing is left.
  ~LeaseServerTest() override {
    regions_ = nullptr;
    EXPECT_EQ(device_.pinned_bytes(), 0);
    EXPECT_EQ(device_.imported_bytes(), 0);
    EXPECT_EQ(OpenDescriptors(), before_);
  }

  absl::StatusOr<std::unique_ptr<Regions>> TryStart() {
    return Regions::Start({.options = options_,
                           .devices = {&device_},
                           .server_instance_id = "this one",
                           .header_time = header_time_,
                           .log = nullptr});
  }
  void Start() {
    auto regions = TryStart();
    ASSERT_TRUE(regions.ok()) << regions.status();
    regions_ = *std::move(regions);
  }
  RegionClient Client() { return RegionClient(options_.socket); }
  std::shared_ptr<const Region> Find(const RegionAnswer& answer) {
    return regions_->table().Find(answer.region);
  }
  RegionStats Stats() { return regions_->stats(); }
  int64_t Refused(RegionRefusal why) {
    return Stats().refused[static_cast<int>(why)];
  }
  bool AllIsBack() {
    return Eventually([&] {
      const RegionStats stats = Stats();
      return stats.leases == 0 && stats.imports == 0 &&
             stats.connections == 0 && stats.leased_bytes == 0 &&
             stats.imported_bytes == 0 && stats.free_bytes == 16 * kMiB;
    });
  }

  const int before_ = OpenDescriptors();
  TestFolder folder_;
  RegionOptions options_;
  absl::Duration header_time_ = testing::kHangLimit;
  PinWatcher device_;
  std::unique_ptr<Regions> regions_;
};

TEST_F(LeaseServerTest, LeasesMemoryThatBothSee) {
  Start();
  RegionClient client = Client();
  const RegionAnswer answer = client.Call(LeaseRequest(kMiB));
  ASSERT_EQ(answer.status, absl::OkStatus());
  EXPECT_EQ(answer.bytes, 2 * kMiB);
  EXPECT_EQ(answer.region.size(), 16);
  EXPECT_EQ(answer.server_instance_id, "this one");
  TestMapping mapping(answer.memory.get(), answer.bytes);
  EXPECT_TRUE(mapping.IsAll(0));
  const auto region = Find(answer);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->bytes(), answer.bytes);
  EXPECT_EQ(region->devices(), ~uint64_t{0});
  mapping.data()[kMiB] = std::byte{3};
  EXPECT_EQ(region->host()[kMiB], std::byte{3});
  EXPECT_EQ(regions_->table().Find(std::string(16, 'x')), nullptr);
  EXPECT_EQ(Stats().leases, 1);
  EXPECT_EQ(Stats().leased_bytes, 2 * kMiB);
  EXPECT_EQ(Stats().connections, 1);
  EXPECT_EQ(ftruncate(answer.memory.get(), 0), -1);
}

TEST_F(LeaseServerTest, TheConnectionsEndIsTheLeases) {
  Start();
  for (const bool halfway : {false, true}) {
    RegionClient client = Client();
    const RegionAnswer answer = client.Call(LeaseRequest(kMiB));
    ASSERT_NE(Find(answer), nullptr);
    if (halfway) {
      shutdown(client.socket(), SHUT_WR);
    } else {
      client.Close();
    }
    EXPECT_TRUE(Eventually([&] { return Find(answer) == nullptr; }));
    EXPECT_TRUE(AllIsBack());
  }
  EXPECT_EQ(Stats().replaced, 2);
}

TEST_F(LeaseServerTest, AnOldClientReachesNobody) {
  Start();
  RegionClient old = Client();
  const RegionAnswer kept = old.Call(LeaseRequest(8 * kMiB));
  TestMapping mapping(kept.memory.get(), kept.bytes);
  mapping.Fill(1);
  old.Close();
  EXPECT_TRUE(AllIsBack());
  EXPECT_TRUE(mapping.IsAll(0));
  mapping.Fill(2);
  std::vector<RegionClient> clients;
  for (const int64_t bytes : {8, 2, 2, 2, 2}) {
    clients.push_back(Client());
    const RegionAnswer answer = clients.back().Call(LeaseRequest(bytes * kMiB));
    ASSERT_EQ(answer.status, absl::OkStatus());
    EXPECT_NE(FileNumber(answer.memory.get()), FileNumber(kept.memory.get()));
    TestMapping next(answer.memory.get(), answer.bytes);
    EXPECT_TRUE(next.IsAll(0));
    next.Fill(3);
    EXPECT_EQ(Find(answer)->host()[0], std::byte{3});
  }
  EXPECT_TRUE(mapping.IsAll(2));
}

TEST_F(LeaseServerTest, ARegionStaysWhileSomethingRefersToIt) {
  Start();
  RegionClient client = Client();
  const RegionAnswer answer = client.Call(LeaseRequest(kMiB));
  TestMapping mapping(answer.memory.get(), answer.bytes);
  mapping.Fill(4);
  auto region = Find(answer);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return Find(answer) == nullptr; }));
  // Whoever has a region to give back goes first.
  EXPECT_EQ(Stats().leased_bytes, 2 * kMiB);
  EXPECT_EQ(region->host()[kMiB], std::byte{4});
  EXPECT_EQ(device_.pinned_bytes(), 16 * kMiB);
  region = nullptr;
  EXPECT_TRUE(AllIsBack());
  EXPECT_TRUE(mapping.IsAll(0));
}

TEST_F(LeaseServerTest, NoLeaseAndNoEndOfOnePins) {
  Start();
  const size_t at_start = device_.pinned().size();
  for (int round = 1; round <= 10; ++round) {
    RegionClient client = Client();
    EXPECT_EQ(client.Call(LeaseRequest(1)).status, absl::OkStatus());
    client.Close();
    EXPECT_TRUE(AllIsBack());
  }
  const auto pinned = device_.pinned();
  ASSERT_EQ(pinned.size(), at_start + 10);
  for (size_t i = at_start; i < pinned.size(); ++i) {
    EXPECT_EQ(pinned[i].thread, pinned[at_start].thread);
  }
  EXPECT_EQ(Stats().replaced, 10);
}

TEST_F(LeaseServerTest, TakesAGpusMemory) {
  Start();
  const Descriptor memory = NewMemory(kMiB);
  RegionClient client = Client();
  const RegionAnswer answer =
      client.Call(ImportRequest(kMiB, device_.device().uuid), {memory.get()});
  ASSERT_EQ(answer.status, absl::OkStatus());
  EXPECT_EQ(answer.bytes, kMiB);
  EXPECT_FALSE(answer.memory.valid());
  auto region = Find(answer);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->devices(), 1);
  EXPECT_TRUE(region->host().empty());
  TestMapping mapping(memory.get(), kMiB);
  mapping.Fill(8);
  EXPECT_EQ(region->device()->data()[0], std::byte{8});
  EXPECT_EQ(Stats().imports, 1);
  EXPECT_EQ(Stats().imported_bytes, kMiB);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return Find(answer) == nullptr; }));
  // As a stream keeps it: whoever lets go of it does not unmap it.
  std::shared_ptr<DeviceBuffer> buffer = region->device();
  region = nullptr;
  EXPECT_EQ(device_.imported_bytes(), kMiB);
  EXPECT_EQ(buffer->data()[0], std::byte{8});
  buffer = nullptr;
  EXPECT_TRUE(AllIsBack());
  ASSERT_EQ(device_.unmapped_by().size(), 1);
  EXPECT_NE(device_.unmapped_by()[0], std::this_thread::get_id());
}

struct BadPacket {
  const char* name;
  std::string packet;
  int descriptors;
  absl::StatusCode code;
  const char* says;
};

TEST_F(LeaseServerTest, RefusesWhatCannotBe) {
  Start();
  const std::string& uuid = device_.device().uuid;
  const std::string lease = LeaseRequest(kMiB);
  const std::string import = ImportRequest(kMiB, uuid);
  const auto kBad = absl::StatusCode::kInvalidArgument;
  const std::vector<BadPacket> packets = {
      {"no bytes", LeaseRequest(0), 0, kBad, "lease.bytes: must be positive"},
      {"below none", LeaseRequest(-1), 0, kBad, "lease.bytes"},
      {"too many", LeaseRequest(8 * kMiB + 1), 0, kBad,
       "lease.bytes: must be at most 8388608"},
      {"more than there are", LeaseRequest(INT64_MAX), 0, kBad, "lease.bytes"},
      {"a descriptor with a lease", lease, 1, kBad, "a lease does not take"},
      {"none with an import", import, 0, kBad, "an import takes one"},
      {"two with an import", import, 2, kBad, "several descriptors"},
      {"many with an import", import, 20, kBad, "several descriptors"},
      {"another size", ImportRequest(kMiB - 4096, uuid), 1, kBad,
       "not memory of that size"},
      {"no size", ImportRequest(0, uuid), 1, kBad, "import.bytes"},
      {"a size that cannot be", ImportRequest(INT64_MAX, uuid), 1, kBad,
       "import.bytes"},
      {"another GPU", ImportRequest(kMiB, "no GPU has this."), 1, kBad,
       "import.gpu_uuid"},
      {"no GPU", ImportRequest(kMiB, ""), 1, kBad, "import.gpu_uuid"},
      {"nothing", "", 0, kBad, "empty"},
      {"neither", std::string("\x7a\x00", 2), 0,
       absl::StatusCode::kUnimplemented, "unknown field 15"},
      {"an unknown field of a lease", std::string("\x0a\x04\x08\x01\x10\x01"),
       0, absl::StatusCode::kUnimplemented, "unknown field 2 in lease"},
      {"garbage", "\xff\xff\xff\xff\xff\xff", 0, kBad, "no RegionRequest"},
      {"half a packet", import.substr(0, import.size() / 2), 1, kBad,
       "no RegionRequest"},
      {"a long one", std::string(LeaseServer::kMostRequestBytes + 1, '\0'), 1,
       kBad, "more than 1024 bytes"},
  };
  const Descriptor memory = NewMemory(kMiB);
  for (const BadPacket& bad : packets) {
    SCOPED_TRACE(bad.name);
    RegionClient client = Client();
    const RegionAnswer answer = client.Call(
        bad.packet, std::vector<int>(bad.descriptors, memory.get()));
    EXPECT_EQ(answer.status.code(), bad.code) << answer.status;
    EXPECT_THAT(std::string(answer.status.message()), HasSubstr(bad.says));
    EXPECT_FALSE(wire::RetryDelay(answer.status).has_value());
    EXPECT_EQ(answer.region, "");
    EXPECT_EQ(answer.server_instance_id, "this one");
    EXPECT_TRUE(client.HasEnded());
  }
  EXPECT_TRUE(AllIsBack());
  EXPECT_EQ(Stats().replaced, 0);
}

TEST_F(LeaseServerTest, ASecondPacketEndsALease) {
  Start();
  const Descriptor memory = NewMemory(kMiB);
  for (const std::string& second : {LeaseRequest(1), std::string()}) {
    RegionClient client = Client();
    const RegionAnswer answer = client.Call(LeaseRequest(1));
    ASSERT_EQ(answer.status, absl::OkStatus());
    const RegionAnswer end = client.Call(second, {memory.get()});
    EXPECT_TRUE(absl::IsInvalidArgument(end.status)) << end.status;
    EXPECT_THAT(std::string(end.status.message()), HasSubstr("second packet"));
    EXPECT_TRUE(client.HasEnded());
    EXPECT_EQ(Find(answer), nullptr);
  }
  // Several at once.
  RegionClient client = Client();
  for (int i = 0; i < 5; ++i) client.Send(LeaseRequest(1), {memory.get()});
  client.Receive();
  EXPECT_TRUE(client.HasEnded());
  EXPECT_TRUE(AllIsBack());
}

TEST_F(LeaseServerTest, WhoSaysNothingIsTurnedAway) {
  header_time_ = absl::Milliseconds(100);
  Start();
  RegionClient lessee = Client();
  const RegionAnswer answer = lessee.Call(LeaseRequest(1));
  RegionClient silent = Client();
  const RegionAnswer refusal = silent.Receive();
  EXPECT_TRUE(absl::IsInvalidArgument(refusal.status)) << refusal.status;
  EXPECT_THAT(std::string(refusal.status.message()),
              HasSubstr("no request within 100ms"));
  EXPECT_TRUE(silent.HasEnded());
  // Who has a region need say nothing.
  EXPECT_NE(Find(answer), nullptr);
}

TEST_F(LeaseServerTest, AUserHasNoMoreThanItMay) {
  options_.max_leases_per_user = 3;
  options_.max_imports_per_user = 2;
  Start();
  const Descriptor memory = NewMemory(kMiB);
  const std::string import = ImportRequest(kMiB, device_.device().uuid);
  std::vector<RegionClient> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(Client());
    const RegionAnswer lease = clients.back().Call(LeaseRequest(1));
    clients.push_back(Client());
    const RegionAnswer lent = clients.back().Call(import, {memory.get()});
    EXPECT_EQ(lease.status.ok(), i < 3) << lease.status;
    EXPECT_EQ(lent.status.ok(), i < 2) << lent.status;
    for (const absl::Status& status : {lease.status, lent.status}) {
      if (status.ok()) continue;
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      EXPECT_TRUE(wire::RetryDelay(status).has_value());
    }
  }
  EXPECT_EQ(Refused(RegionRefusal::kLimitOfUser), 17 + 18);
  clients.clear();
  EXPECT_TRUE(AllIsBack());
}

TEST_F(LeaseServerTest, ImportsComeNoFasterThanTheyMay) {
  options_.imports_per_second = 1;
  Start();
  const Descriptor memory = NewMemory(kMiB);
  // Those that fail count as well: they hold the driver's lock, too.
  const std::string wrong = ImportRequest(kMiB / 2, device_.device().uuid);
  Client().Call(wrong, {memory.get()});
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    const absl::Status status = Client().Call(wrong, {memory.get()}).status;
    refused += absl::IsResourceExhausted(status);
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(Refused(RegionRefusal::kRateOfImports), refused);
}

TEST_F(LeaseServerTest, SaysWhenNothingIsLeft) {
  Start();
  std::vector<RegionClient> clients;
  for (const int64_t bytes : {8, 2, 2, 2, 2}) {
    clients.push_back(Client());
    EXPECT_EQ(clients.back().Call(LeaseRequest(bytes * kMiB)).status,
              absl::OkStatus());
  }
  const absl::Status status = Client().Call(LeaseRequest(1)).status;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(wire::RetryDelay(status).has_value());
  EXPECT_EQ(Refused(RegionRefusal::kMemory), 1);
}

TEST_F(LeaseServerTest, ServersWithoutMemorySaySo) {
  options_.memory_bytes = 0;
  options_.import_memory_bytes = 0;
  Start();
  const Descriptor memory = NewMemory(kMiB);
  const absl::Status lease = Client().Call(LeaseRequest(1)).status;
  EXPECT_TRUE(absl::IsUnimplemented(lease)) << lease;
  const absl::Status import =
      Client()
          .Call(ImportRequest(kMiB, device_.device().uuid), {memory.get()})
          .status;
  EXPECT_TRUE(absl::IsUnimplemented(import)) << import;
}

TEST_F(LeaseServerTest, OnlyTheUsersNamedMay) {
  options_.users = {getuid() + 1};
  Start();
  const RegionAnswer answer = Client().Receive();
  EXPECT_TRUE(absl::IsPermissionDenied(answer.status)) << answer.status;
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("--region_uids"));
  regions_ = nullptr;
  options_.users.push_back(getuid());
  Start();
  EXPECT_EQ(Client().Call(LeaseRequest(1)).status, absl::OkStatus());
}

TEST_F(LeaseServerTest, AFloodIsAnsweredAndOthersGoOn) {
  options_.max_connections = 4;
  Start();
  RegionClient lessee = Client();
  const RegionAnswer answer = lessee.Call(LeaseRequest(1));
  std::vector<RegionClient> clients;
  int refused = 0;
  for (int i = 0; i < 200; ++i) clients.push_back(Client());
  for (RegionClient& client : clients) {
    // The server may have said so, and closed it, already.
    client.Send(LeaseRequest(1));
    refused += absl::IsResourceExhausted(client.Receive().status);
  }
  EXPECT_EQ(refused, 197);
  EXPECT_EQ(Refused(RegionRefusal::kConnections), 197);
  EXPECT_NE(Find(answer), nullptr);
  clients.clear();
  lessee.Close();
  EXPECT_TRUE(AllIsBack());
  EXPECT_EQ(Client().Call(LeaseRequest(1)).status, absl::OkStatus());
}

TEST_F(LeaseServerTest, AUserCannotTakeAllConnections) {
  options_.max_leases_per_user = 1;
  options_.max_imports_per_user = 1;
  Start();
  std::vector<RegionClient> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(Client());
  EXPECT_TRUE(Eventually([&] {
    return Stats().connections + Refused(RegionRefusal::kLimitOfUser) == 20;
  }));
  EXPECT_GT(Stats().connections, 2);
  EXPECT_LT(Stats().connections, 20);
  EXPECT_TRUE(absl::IsResourceExhausted(clients.back().Receive().status));
  EXPECT_EQ(clients.front().Call(LeaseRequest(1)).status, absl::OkStatus());
}

TEST_F(LeaseServerTest, OutlivesTheLastDescriptor) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer looks at memory through a descriptor";
#endif
  constexpr int kClients = 30;
  Start();
  std::vector<Descriptor> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  }
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  options_.socket.copy(to.sun_path, sizeof(to.sun_path) - 1);
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  // Room for some of them.
  const rlimit low = {static_cast<rlim_t>(clients.back().get()) + 6,
                      before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &low);
  for (const Descriptor& client : clients) {
    EXPECT_EQ(
        connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }
  const bool all = Eventually([&] {
    return Stats().connections + Refused(RegionRefusal::kDescriptors) ==
           kClients;
  });
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(all);
  EXPECT_GT(Refused(RegionRefusal::kDescriptors), 0);
  clients.clear();
  EXPECT_TRUE(AllIsBack());
  EXPECT_EQ(Client().Call(LeaseRequest(1)).status, absl::OkStatus());
}

TEST_F(LeaseServerTest, NobodyGetsARegionOfAServerThatDrains) {
  Start();
  RegionClient lessee = Client();
  const RegionAnswer answer = lessee.Call(LeaseRequest(1));
  regions_->Drain();
  const absl::Status status = Client().Call(LeaseRequest(1)).status;
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(absl::IsUnavailable(
      Client().Call(ImportRequest(1, device_.device().uuid)).status));
  EXPECT_NE(Find(answer), nullptr);
}

TEST_F(LeaseServerTest, ItsEndEndsLeases) {
  Start();
  const Descriptor memory = NewMemory(kMiB);
  RegionClient lessee = Client(), lender = Client(), silent = Client(),
               undecided = Client();
  const RegionAnswer answer = lessee.Call(LeaseRequest(1));
  EXPECT_EQ(
      lender.Call(ImportRequest(kMiB, device_.device().uuid), {memory.get()})
          .status,
      absl::OkStatus());
  undecided.Send(ImportRequest(kMiB, device_.device().uuid), {memory.get()});
  const TestMapping mapping(answer.memory.get(), answer.bytes);
  regions_ = nullptr;
  EXPECT_TRUE(lessee.HasEnded());
  EXPECT_TRUE(lender.HasEnded());
  EXPECT_TRUE(silent.HasEnded());
  EXPECT_TRUE(undecided.HasEnded());
  // The memory is the client's own from now on.
  mapping.data()[0] = std::byte{1};
  EXPECT_EQ(access(options_.socket.c_str(), F_OK), -1);
}

TEST_F(LeaseServerTest, AKilledClientsMemoryComesBack) {
  Start();
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  options_.socket.copy(to.sun_path, sizeof(to.sun_path) - 1);
  const std::string request = LeaseRequest(8 * kMiB);
  for (int round = 0; round < 10; ++round) {
    int ready[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    const Descriptor told(ready[0]), tells(ready[1]);
    const pid_t child = fork();
    if (child == 0) {
      // Of a process with threads: nothing but system calls.
      char byte = 0;
      const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
      if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
        _exit(1);
      }
      send(fd, request.data(), request.size(), 0);
      recv(fd, &byte, 1, 0);
      if (write(tells.get(), &byte, 1) == 1) pause();
      _exit(0);
    }
    char byte = 0;
    EXPECT_EQ(read(told.get(), &byte, 1), 1);
    EXPECT_EQ(Stats().leases, 1);
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_TRUE(AllIsBack());
  }
}

TEST_F(LeaseServerTest, TheSocketIsItsGroups) {
  options_.socket_mode = 0660;
  options_.group = std::to_string(getgid());
  Start();
  struct stat file = {};
  ASSERT_EQ(stat(options_.socket.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0660);
  EXPECT_EQ(file.st_gid, getgid());
  regions_ = nullptr;
  options_.group = "no such group";
  const absl::Status status = TryStart().status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--region_group"));
}

// Packets of all kinds, from many clients: whatever they are, each connection
// is answered or ends, and nothing is left.
TEST_F(LeaseServerTest, SurvivesRandomPackets) {
  options_.max_connections = 64;
  header_time_ = absl::Milliseconds(100);
  Start();
  std::mt19937 random(17);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  const Descriptor memory = NewMemory(kMiB);
  const std::vector<std::string> seeds = {
      LeaseRequest(kMiB), ImportRequest(kMiB, device_.device().uuid),
      std::string(1024, 'x'), std::string()};
  std::vector<RegionClient> clients;
  for (int i = 0; i < 2000; ++i) {
    if (clients.size() > 20) clients.erase(clients.begin() + below(20));
    clients.push_back(Client());
    clients.back().Send(seeds[below(4)]);
    for (int packets = below(4); packets > 0; --packets) {
      std::string packet = seeds[below(static_cast<int>(seeds.size()))];
      for (int changes = below(4); changes > 0 && !packet.empty(); --changes) {
        packet[below(static_cast<int>(packet.size()))] =
            static_cast<char>(random());
      }
      if (below(4) == 0) packet.resize(below(1200));
      RegionClient& to = clients[below(static_cast<int>(clients.size()))];
      to.Send(packet, std::vector<int>(below(3), memory.get()));
    }
    if (below(4) == 0) clients.back().Receive();
  }
  clients.clear();
  EXPECT_TRUE(AllIsBack());
  EXPECT_EQ(Client().Call(LeaseRequest(1)).status, absl::OkStatus());
}

}  // namespace
}  // namespace attnd::server
