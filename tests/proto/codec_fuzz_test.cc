// The codec against generated protobuf on hostile bytes: random mutations of
// valid messages for a few seconds, and the corpus that libFuzzer found.

#include <chrono>
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

using Clock = std::chrono::steady_clock;

TEST(CodecFuzz, MutatedMessagesAreReadAsGeneratedCodeReadsThem) {
  constexpr int kMost = 200'000;
  const auto end = Clock::now() + std::chrono::seconds(5);
  std::mt19937_64 random(5);
  const std::vector<const Message*> types = AllTypes();
  const auto fresh = [&](const Message& type) {
    std::unique_ptr<Message> message(type.New());
    FillRandom(random, *message);
    return message->SerializeAsString();
  };
  int inputs = 0, accepted = 0;
  for (; inputs < kMost && Clock::now() < end; ++inputs) {
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
  RecordProperty("inputs", inputs);
  RecordProperty("accepted", accepted);
  std::cout << inputs << " inputs, " << accepted << " accepted\n";
  // Both outcomes are being compared, not one.
  EXPECT_GT(accepted, inputs / 50);
  EXPECT_LT(accepted, inputs * 49 / 50);
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
