#include "server/front/small_reads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "tests/hang_limit.h"

namespace attnd::server {
namespace {

class Reader final : public SmallReader {
 public:
  void OnExcess() override { ++told_; }
  int told() const { return told_; }

 private:
  std::atomic<int> told_ = 0;
};

class SmallReadsTest : public ::testing::Test {
 protected:
  // Waits until memory has been looked at twice more.
  bool Looked() {
    const int before = looks_;
    return testing::Eventually([&] { return looks_ >= before + 2; });
  }

  std::atomic<int> looks_ = 0;
  std::atomic<int64_t> excess_ = 0;
  std::unique_ptr<Alarms> alarms_ = std::make_unique<Alarms>();
  SmallReads reads_{*alarms_, [this] {
                      ++looks_;
                      return excess_.load();
                    }};
  // No alarm rings once the reads have gone.
  void TearDown() override { alarms_ = nullptr; }
};

TEST_F(SmallReadsTest, WhoReadsIsToldOfTooLittleMemoryOnce) {
  const auto reader = std::make_shared<Reader>();
  reads_.Begin(reader);
  ASSERT_TRUE(Looked());
  EXPECT_EQ(reader->told(), 0);
  excess_ = 1;
  EXPECT_TRUE(testing::Eventually([&] { return reader->told() == 1; }));
  // Looking goes on for the next.
  const auto next = std::make_shared<Reader>();
  reads_.Begin(next);
  EXPECT_TRUE(testing::Eventually([&] { return next->told() == 1; }));
  EXPECT_EQ(reader->told(), 1);
}

TEST_F(SmallReadsTest, WhoHasReadOrIsGoneIsNot) {
  const auto stays = std::make_shared<Reader>();
  const auto ended = std::make_shared<Reader>();
  auto gone = std::make_shared<Reader>();
  for (const auto& reader : {stays, ended, gone}) reads_.Begin(reader);
  reads_.End(*ended);
  gone = nullptr;
  excess_ = 1;
  EXPECT_TRUE(testing::Eventually([&] { return stays->told() == 1; }));
  EXPECT_EQ(ended->told(), 0);
}

TEST(SmallReads, WithoutALookAtMemoryNobodyIsTold) {
  Alarms alarms;
  SmallReads reads(alarms, nullptr);
  const auto reader = std::make_shared<Reader>();
  reads.Begin(reader);
  EXPECT_EQ(reader.use_count(), 1);
  reads.End(*reader);
}

}  // namespace
}  // namespace attnd::server
