#include "server/program/notify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "tests/temp_folder.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;

// A service manager's socket, at a path or at an abstract name.
class Manager {
 public:
  explicit Manager(const std::string& name) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address),
                   offsetof(sockaddr_un, sun_path) + name.size()),
              0)
        << std::strerror(errno);
  }

  // A datagram that is there, or "nothing".
  std::string Receive() {
    char bytes[256];
    const ssize_t n = recv(fd_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    return n < 0 ? "nothing" : std::string(bytes, n);
  }

 private:
  Descriptor fd_{socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

TEST(Notify, SendsADatagramToAPath) {
  const attnd::testing::TempFolder folder;
  Manager manager(folder.File("notify"));
  EXPECT_TRUE(Notify(folder.File("notify"), kReady).ok());
  EXPECT_EQ(manager.Receive(), "READY=1");
  EXPECT_EQ(manager.Receive(), "nothing");
}

TEST(Notify, SendsADatagramToAnAbstractSocket) {
  const std::string name = absl::StrCat("@attnd-notify-test-", getpid());
  Manager manager(name);
  EXPECT_TRUE(Notify(name, "STATUS=a\nSTATUS=b").ok());
  EXPECT_EQ(manager.Receive(), "STATUS=a\nSTATUS=b");
}

TEST(Notify, SaysNothingWhereNobodyAsks) {
  EXPECT_TRUE(Notify("", kReady).ok());
}

TEST(Notify, NamesTheSocketThatIsNone) {
  for (const std::string& socket :
       {std::string("relative"), std::string("vsock:2:1"),
        "/" + std::string(sizeof(sockaddr_un::sun_path), 'x')}) {
    const absl::Status status = Notify(socket, kReady);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(socket));
  }
  const absl::Status nobody = Notify("/no/such/socket", kReady);
  EXPECT_TRUE(absl::IsUnavailable(nobody)) << nobody;
  EXPECT_THAT(std::string(nobody.message()), HasSubstr("/no/such/socket"));
}

TEST(Notify, DoesNotWaitForAManagerThatDoesNotRead) {
  const attnd::testing::TempFolder folder;
  const Manager manager(folder.File("notify"));
  // The kernel keeps a few datagrams for it, and then no more.
  absl::Status status;
  for (int i = 0; i < 10'000 && status.ok(); ++i) {
    status = Notify(folder.File("notify"), kReady);
  }
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST(Notify, FindsTheSocketInTheEnvironment) {
  ASSERT_EQ(unsetenv("NOTIFY_SOCKET"), 0);
  EXPECT_EQ(NotifySocket(), "");
  ASSERT_EQ(setenv("NOTIFY_SOCKET", "/run/notify", 1), 0);
  EXPECT_EQ(NotifySocket(), "/run/notify");
  ASSERT_EQ(unsetenv("NOTIFY_SOCKET"), 0);
}

TEST(Notify, AsksForTheTimeThatADrainMayTake) {
  const std::string lines = Stopping(absl::Seconds(90));
  EXPECT_THAT(lines, HasSubstr("STOPPING=1\n"));
  EXPECT_THAT(lines, HasSubstr("draining for up to 1m30s\n"));
  EXPECT_THAT(lines, HasSubstr("EXTEND_TIMEOUT_USEC=100000000"));
}

}  // namespace
}  // namespace attnd::server
