#ifndef ATTND_TESTS_SERVER_FUZZ_CORPUS_H_
#define ATTND_TESTS_SERVER_FUZZ_CORPUS_H_

// What tests take from libFuzzer's targets.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace attnd::server::testing {

// The same in every run, but where tests are shuffled: then every round has one
// of its own.
inline unsigned FuzzSeed() {
  return GTEST_FLAG_GET(shuffle)
             ? ::testing::UnitTest::GetInstance()->random_seed()
             : 5;
}

// The inputs of a target that are kept, with their names, in the same order
// everywhere.
inline std::vector<std::pair<std::string, std::string>> Corpus(
    const std::string& target) {
  std::vector<std::pair<std::string, std::string>> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::string(ATTND_FUZZ_CORPUS) + "/" + target)) {
    std::ifstream file(entry.path(), std::ios::binary);
    inputs.emplace_back(entry.path().filename(),
                        std::string{std::istreambuf_iterator<char>(file), {}});
  }
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

}  // namespace attnd::server::testing

#endif  // ATTND_TESTS_SERVER_FUZZ_CORPUS_H_
