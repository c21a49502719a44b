#include "client/whole_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace attnd::client {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// While it lives, this process' files may be no longer than this, as on a disk
// that is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    handler_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit low = {bytes, limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &low);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit limit_;
  void (*handler_)(int);
};

class WholeFileTest : public ::testing::Test {
 protected:
  WholeFileTest() {
    std::string name = ::testing::TempDir() + "/whole_file_testXXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/file";
  }
  ~WholeFileTest() override { std::filesystem::remove_all(folder_); }

  int64_t Files() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }

  std::string folder_, path_;
};

TEST_F(WholeFileTest, WritesAllPiecesToANewFileOrOverAnOldOne) {
  EXPECT_TRUE(WriteWholeFile(path_, {"a", "", "bc"}).ok());
  EXPECT_EQ(Read(path_), "abc");
  EXPECT_TRUE(WriteWholeFile(path_, {"d"}).ok());
  EXPECT_EQ(Read(path_), "d");
  EXPECT_EQ(Files(), 1);
}

TEST_F(WholeFileTest, OnAFullDiskNothingIsLeftAndWhatWasThereStays) {
  const std::string large(100'000, 'x');
  const FullDisk full(1000);
  const absl::Status status = WriteWholeFile(path_, {"head", large});
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), StartsWith(path_));
  EXPECT_EQ(Files(), 0);
  ASSERT_TRUE(WriteWholeFile(path_, {"old"}).ok());
  EXPECT_FALSE(WriteWholeFile(path_, {"head", large}).ok());
  EXPECT_EQ(Read(path_), "old");
  EXPECT_EQ(Files(), 1);
}

TEST_F(WholeFileTest, PermissionsAndLinksStay) {
  ASSERT_TRUE(WriteWholeFile(path_, {"old"}).ok());
  ASSERT_EQ(chmod(path_.c_str(), 0604), 0);
  const std::string link = folder_ + "/link";
  ASSERT_EQ(symlink("file", link.c_str()), 0);
  ASSERT_TRUE(WriteWholeFile(link, {"new"}).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(Read(path_), "new");
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0604);
  // A link that leads nowhere makes what it names.
  const std::string dangling = folder_ + "/dangling";
  ASSERT_EQ(symlink("named", dangling.c_str()), 0);
  ASSERT_TRUE(WriteWholeFile(dangling, {"new"}).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(dangling));
  EXPECT_EQ(Read(folder_ + "/named"), "new");
}

TEST_F(WholeFileTest, AReadOnlyFileIsNotReplaced) {
  if (geteuid() == 0) GTEST_SKIP() << "nothing is read-only for root";
  ASSERT_TRUE(WriteWholeFile(path_, {"old"}).ok());
  ASSERT_EQ(chmod(path_.c_str(), 0444), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(CheckWritable(path_)));
  EXPECT_TRUE(absl::IsPermissionDenied(WriteWholeFile(path_, {"new"})));
  EXPECT_EQ(Read(path_), "old");
}

TEST_F(WholeFileTest, ADeviceAndAFifoAreWrittenTo) {
  const absl::Status full = WriteWholeFile("/dev/full", {"x"});
  EXPECT_THAT(std::string(full.message()), HasSubstr("/dev/full"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  EXPECT_TRUE(WriteWholeFile("/dev/null", {"x"}).ok());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const int reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(WriteWholeFile(path_, {"ab", "c"}).ok());
  char got[8];
  EXPECT_EQ(read(reader, got, sizeof(got)), 3);
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  close(reader);
}

TEST_F(WholeFileTest, SaysBeforehandWhatCannotBeWrittenAndChangesNothing) {
  EXPECT_TRUE(CheckWritable(path_).ok());
  EXPECT_EQ(Files(), 0);
  ASSERT_TRUE(WriteWholeFile(path_, {"old"}).ok());
  EXPECT_TRUE(CheckWritable(path_).ok());
  EXPECT_EQ(Read(path_), "old");
  EXPECT_TRUE(CheckWritable("/dev/null").ok());
  EXPECT_TRUE(CheckWritable("/dev/stdout").ok());
  const std::string nowhere = folder_ + "/no/such/folder";
  EXPECT_TRUE(absl::IsNotFound(CheckWritable(nowhere)));
  EXPECT_TRUE(absl::IsNotFound(WriteWholeFile(nowhere, {"x"})));
  EXPECT_FALSE(WriteWholeFile(folder_, {"x"}).ok()) << "a folder";
}

}  // namespace
}  // namespace attnd::client
