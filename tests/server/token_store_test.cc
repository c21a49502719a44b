#include "server/identity/token_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/identity/token_watch.h"
#include "tests/notification.h"
#include "tests/server/token_testing.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string Line(absl::string_view name, absl::string_view token) {
  return absl::StrCat(name, " ", HashWord(token), "\n");
}

class TokenStoreTest : public ::testing::Test {
 protected:
  TokenStoreTest() { file_.Write(Line("a", "a") + Line("b", "b")); }

  void Open() {
    auto store = TokenStore::Open(file_.path(), [this](const LogLine& line) {
      lines_.push_back(line.message);
    });
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  absl::Status OpenStatus() const {
    return TokenStore::Open(file_.path(), nullptr).status();
  }
  bool Knows(absl::string_view token) const {
    return store_->tokens()->Find(token) != nullptr;
  }
  // What a second's looks see.
  void LookTwice() {
    store_->Look(now_);
    store_->Look(now_);
    now_ += absl::Seconds(1);
  }

  TempTokenFile file_;
  std::unique_ptr<TokenStore> store_;
  std::vector<std::string> lines_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

TEST_F(TokenStoreTest, StartsOnlyWithAGoodFile) {
  EXPECT_EQ(OpenStatus(), absl::OkStatus());
  file_.Append("torn");
  EXPECT_EQ(OpenStatus(), absl::InvalidArgumentError(
                              absl::StrCat("--token_file: ", file_.path(),
                                           ":3: does not end with a newline")));
  file_.Remove();
  EXPECT_TRUE(absl::IsNotFound(OpenStatus())) << OpenStatus();
  EXPECT_THAT(std::string(OpenStatus().message()),
              StartsWith("--token_file: " + file_.path() + ": "));
}

TEST_F(TokenStoreTest, TakesNoFileThatAnyoneMayWrite) {
  for (const int mode : {0602, 0666, 0777}) {
    ASSERT_EQ(chmod(file_.path().c_str(), mode), 0);
    EXPECT_TRUE(absl::IsPermissionDenied(OpenStatus())) << OpenStatus();
    EXPECT_THAT(OpenStatus().message(), HasSubstr("anyone may write it"));
  }
  for (const int mode : {0400, 0600, 0644, 0660}) {
    ASSERT_EQ(chmod(file_.path().c_str(), mode), 0);
    EXPECT_EQ(OpenStatus(), absl::OkStatus());
  }
}

TEST_F(TokenStoreTest, TakesNoFolderAndNoPipe) {
  file_.Remove();
  ASSERT_EQ(mkfifo(file_.path().c_str(), 0600), 0);
  EXPECT_THAT(OpenStatus().message(), HasSubstr("is not a regular file"));
  file_.Remove();
  ASSERT_EQ(mkdir(file_.path().c_str(), 0700), 0);
  EXPECT_THAT(OpenStatus().message(), HasSubstr("is not a regular file"));
  rmdir(file_.path().c_str());
}

TEST_F(TokenStoreTest, TakesNoHugeFile) {
  file_.Append("#" + std::string(kMostTokenFileBytes, ' ') + "\n");
  EXPECT_THAT(OpenStatus().message(), HasSubstr("more than 1048576 bytes"));
}

TEST_F(TokenStoreTest, ASecondLookTakesAChange) {
  Open();
  LookTwice();
  EXPECT_THAT(lines_, IsEmpty());
  file_.Write(Line("a", "a") + Line("c", "c"));
  store_->Look(now_);
  EXPECT_TRUE(Knows("b"));
  EXPECT_FALSE(Knows("c"));
  store_->Look(now_);
  EXPECT_TRUE(Knows("a"));
  EXPECT_FALSE(Knows("b"));
  EXPECT_TRUE(Knows("c"));
  EXPECT_THAT(lines_, ElementsAre("--token_file: read anew, 2 names with 2 "
                                  "tokens"));
}

TEST_F(TokenStoreTest, AFileThatIsBeingWrittenIsNotTakenBetweenItsLines) {
  Open();
  file_.Write(Line("a", "a"));
  store_->Look(now_);
  file_.Append(Line("b", "b"));
  store_->Look(now_);
  EXPECT_TRUE(Knows("b"));
  file_.Append(Line("c", "c"));
  LookTwice();
  EXPECT_TRUE(Knows("a") && Knows("b") && Knows("c"));
}

TEST_F(TokenStoreTest, ABrokenFileChangesNothingAndIsToldOnce) {
  Open();
  const std::string torn = (Line("a", "a") + Line("c", "c")).substr(0, 90);
  file_.Write(torn);
  for (int i = 0; i < 20; ++i) LookTwice();
  EXPECT_THAT(lines_,
              ElementsAre(absl::StrCat(
                  "--token_file: ", file_.path(),
                  ":2: does not end with a newline; the tokens known so far "
                  "stay")));
  EXPECT_TRUE(Knows("a") && Knows("b"));
  // Mended.
  file_.Write(Line("c", "c"));
  LookTwice();
  EXPECT_FALSE(Knows("a"));
  EXPECT_TRUE(Knows("c"));
}

TEST_F(TokenStoreTest, AFileThatIsGoneEmptyOrOpenToAllChangesNothing) {
  Open();
  file_.Remove();
  LookTwice();
  EXPECT_TRUE(Knows("a") && Knows("b"));
  file_.Write("");
  LookTwice();
  EXPECT_TRUE(Knows("a") && Knows("b"));
  file_.Write(Line("c", "c"));
  ASSERT_EQ(chmod(file_.path().c_str(), 0666), 0);
  LookTwice();
  EXPECT_TRUE(Knows("a") && Knows("b"));
  EXPECT_FALSE(Knows("c"));
  ASSERT_EQ(chmod(file_.path().c_str(), 0600), 0);
  LookTwice();
  EXPECT_TRUE(Knows("c"));
}

TEST_F(TokenStoreTest, AFileThatBreaksAgainAndAgainFillsNoLog) {
  Open();
  for (int i = 0; i < 100; ++i) {  // 100 s
    file_.Write(std::string(i + 1, 'x'));
    LookTwice();
  }
  EXPECT_LE(lines_.size(), 21);
  EXPECT_GE(lines_.size(), 19);
}

TEST_F(TokenStoreTest, WhoReadsKeepsWhatItReads) {
  Open();
  const std::shared_ptr<const TokenSet> before = store_->tokens();
  file_.Write(Line("c", "c"));
  LookTwice();
  EXPECT_NE(before->Find("a"), nullptr);
}

TEST_F(TokenStoreTest, AThreadLooksByItself) {
  Notification changed;
  auto store =
      TokenStore::Open(file_.path(), [&](const LogLine&) { changed.Notify(); });
  ASSERT_TRUE(store.ok()) << store.status();
  auto watch = TokenWatch::Start(**store);
  ASSERT_TRUE(watch.ok()) << watch.status();
  file_.Write(Line("c", "c"));
  changed.WaitForNotification();
  EXPECT_NE((*store)->tokens()->Find("c"), nullptr);
  EXPECT_EQ((*store)->tokens()->Find("a"), nullptr);
}

}  // namespace
}  // namespace attnd::server
