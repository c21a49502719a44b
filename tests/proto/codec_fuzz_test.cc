// The codec against generated protobuf on hostile bytes: random mutations of
// valid messages, and the corpus that libFuzzer found. Other mutations in every
// round:
//   codec_test --gtest_filter='*Mutated*' --gtest_shuffle --gtest_repeat=ROUNDS

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/proto/fuzz/check.h"
#include "tests/proto/mutate.h"
#include "tests/proto/plain.h"

namespace attnd::wire::testing {
namespace {

TEST(CodecFuzz, MutatedMessagesAreReadAsGeneratedCodeReadsThem) {
  constexpr int kInputs = 50'000;
  // Where tests are shuffled, every round has a seed of its own.
  const bool shuffled = GTEST_FLAG_GET(shuffle);
  std::mt19937_64 random(
      shuffled ? ::testing::UnitTest::GetInstance()->random_seed() : 5);
  const std::vector<const Message*> types = AllTypes();
  const auto fresh = [&](const Message& type) {
    std::unique_ptr<Message> message(type.New());
    FillRandom(random, *message);
    return message->SerializeAsString();
  };
  int accepted = 0;
  for (int i = 0; i < kInputs; ++i) {
    const Message& type = *types[random() % types.size()];
    const Message& other = *types[random() % types.size()];
    std::string bytes = fresh(type);
    for (int n = random() % 3; n >= 0; --n) {
      bytes = Mutate(random, bytes, fresh(other));
    }
    bool ok = false;
    const absl::Status status = CheckAgainstGenerated(type, bytes, random, &ok);
    ASSERT_TRUE(status.ok()) << status;
    accepted += ok;
  }
  RecordProperty("accepted", accepted);
  // Both outcomes are being compared, not one.
  EXPECT_GT(accepted, kInputs / 50);
  EXPECT_LT(accepted, kInputs * 49 / 50);
}

TEST(CodecFuzz, BytesCutAnywhereAreReadAsGeneratedCodeReadsThem) {
  std::mt19937_64 random(6);
  for (const Message* type : AllTypes()) {
    std::unique_ptr<Message> message(type->New());
    FillRandom(random, *message);
    const std::string bytes = message->SerializeAsString();
    for (size_t i = 0; i < bytes.size() && i < 2000; ++i) {
      const absl::Status status = CheckAgainstGenerated(
          *type, absl::string_view(bytes).substr(0, i), random);
      ASSERT_TRUE(status.ok()) << status;
    }
  }
}

TEST(CodecFuzz, TheCorpusStillPasses) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(ATTND_CODEC_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const absl::Status status = CheckFuzzInput(bytes);
    EXPECT_TRUE(status.ok()) << entry.path() << ": " << status;
    ++files;
  }
  EXPECT_GT(files, 10);
}

}  // namespace
}  // namespace attnd::wire::testing
