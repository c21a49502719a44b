#include "server/work/account.h"

#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnd::server {
namespace {

using ::testing::IsNull;
using ::testing::NotNull;

TEST(AccountTest, HoldsWhatIsChargedUntilTheChargeGoes) {
  auto account = Account::Create(100);
  auto a = account->TryCharge("a", 60);
  ASSERT_THAT(a, NotNull());
  EXPECT_EQ(a->bytes(), 60);
  EXPECT_EQ(account->held_bytes(), 60);
  auto b = account->TryCharge("b", 40);
  EXPECT_EQ(account->held_bytes("a"), 60);
  EXPECT_EQ(account->held_bytes("b"), 40);
  EXPECT_EQ(account->held_bytes("c"), 0);
  ASSERT_THAT(b, NotNull());
  EXPECT_EQ(account->held_bytes(), account->limit_bytes());
  a.reset();
  EXPECT_EQ(account->held_bytes(), 40);
  b.reset();
  EXPECT_EQ(account->held_bytes(), 0);
}

TEST(AccountTest, RefusesWhatDoesNotFitAndKeepsNothingOfIt) {
  auto account = Account::Create(100);
  EXPECT_THAT(account->TryCharge("a", 101), IsNull());
  auto held = account->TryCharge("a", 50);
  EXPECT_THAT(account->TryCharge("b", 51), IsNull());
  EXPECT_THAT(account->TryCharge("b", std::numeric_limits<int64_t>::max()),
              IsNull());
  EXPECT_THAT(account->TryCharge("b", -1), IsNull());
  EXPECT_EQ(account->held_bytes(), 50);
}

TEST(AccountTest, OneClientLeavesRoomForTheNext) {
  auto account = Account::Create(900);
  std::vector<std::shared_ptr<Charge>> greedy;
  while (auto charge = account->TryCharge("greedy", 10)) {
    greedy.push_back(std::move(charge));
  }
  EXPECT_EQ(account->held_bytes(), 810);  // 8 times what it leaves, and one
  EXPECT_THAT(account->TryCharge("modest", 50), NotNull());
}

TEST(AccountTest, AClientAloneMayTakeAll) {
  auto account = Account::Create(100);
  EXPECT_THAT(account->TryCharge("a", 100), NotNull());
}

TEST(AccountTest, AChargeOutlivesWhoMadeTheAccount) {
  auto account = Account::Create(100);
  std::weak_ptr<Account> weak = account;
  auto charge = account->TryCharge("a", 1);
  account.reset();
  EXPECT_FALSE(weak.expired());
  charge.reset();
  EXPECT_TRUE(weak.expired());
}

TEST(AccountTest, NeverExceedsItsLimitUnderConcurrency) {
  auto account = Account::Create(1000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&account, t] {
      for (int i = 0; i < 2000; ++i) {
        auto charge = account->TryCharge(std::string(1, 'a' + t), 300);
        ASSERT_LE(account->held_bytes(), 1000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(account->held_bytes(), 0);
}

TEST(Account, LeavesOthersWhatIsToBeKeptFree) {
  const auto account = Account::Create(100);
  EXPECT_NE(account->TryCharge("a", 95, /*keep_free=*/10), nullptr)
      << "nothing else is held";
  const auto held = account->TryCharge("a", 50);
  EXPECT_EQ(account->TryCharge("b", 41, 10), nullptr);
  const auto more = account->TryCharge("b", 40, 10);
  EXPECT_NE(more, nullptr);
  EXPECT_NE(account->TryCharge("c", 10), nullptr);
}

}  // namespace
}  // namespace attnd::server
