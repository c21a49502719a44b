#include "client/attnctl/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "absl/random/random.h"
#include "client/attnctl/npy_header.h"

namespace attnd::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class NpyTest : public ::testing::Test {
 protected:
  NpyTest() {
    std::string name = ::testing::TempDir() + "/npy_testXXXXXX";
    directory_ = mkdtemp(name.data());
    path_ = directory_ + "/a.npy";
  }
  ~NpyTest() override {
    unlink(path_.c_str());
    rmdir(directory_.c_str());
  }

  void Put(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  std::string Get() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // A version 1 file.
  void Put(const std::string& dictionary, size_t data_bytes) {
    std::string bytes("\x93NUMPY\x01\x00", 8);
    bytes += static_cast<char>(dictionary.size() & 0xff);
    bytes += static_cast<char>(dictionary.size() >> 8);
    Put(bytes + dictionary + std::string(data_bytes, 'x'));
  }

  void ExpectRefused(const std::string& why) {
    const auto array = ReadNpy(path_);
    ASSERT_TRUE(absl::IsInvalidArgument(array.status())) << array.status();
    EXPECT_THAT(std::string(array.status().message()), StartsWith(path_));
    EXPECT_THAT(std::string(array.status().message()), HasSubstr(why));
  }

  std::string directory_, path_;
};

TEST_F(NpyTest, ReadsWhatItWrites) {
  absl::BitGen rng;
  const std::vector<std::vector<int64_t>> shapes = {
      {3}, {2, 3, 4}, {1, 0, 5}, {1, 1, 1, 1, 1, 2}};
  for (const NpyType type :
       {NpyType::kF32, NpyType::kF16, NpyType::kBits16, NpyType::kI64}) {
    for (const auto& shape : shapes) {
      int64_t bytes = SizeOf(type);
      for (const int64_t extent : shape) bytes *= extent;
      std::vector<char> data(bytes);
      for (char& c : data) c = absl::Uniform<uint8_t>(rng);
      ASSERT_TRUE(WriteNpy(path_, type, shape, data.data()).ok());
      const auto array = ReadNpy(path_);
      ASSERT_TRUE(array.ok()) << array.status();
      EXPECT_EQ(array->type, type);
      EXPECT_EQ(array->shape, shape);
      EXPECT_EQ(array->data, data);
    }
  }
}

TEST_F(NpyTest, WritesWhatNumpyWrites) {
  const std::vector<float> data = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(WriteNpy(path_, NpyType::kF32, {2, 3}, data.data()).ok());
  // np.save(path, np.arange(1, 7, dtype='f4').reshape(2, 3))
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  expected += "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  expected.resize(127, ' ');
  expected += '\n';
  expected.append(reinterpret_cast<const char*>(data.data()), 24);
  EXPECT_EQ(Get(), expected);
}

TEST_F(NpyTest, ReadsVersionsTwoAndThree) {
  for (const char version : {'\x02', '\x03'}) {
    const std::string dictionary =
        "{'shape':(2,),\"descr\":'<f2','fortran_order':False}";
    std::string bytes("\x93NUMPY", 6);
    bytes += {version, '\0', static_cast<char>(dictionary.size()), 0, 0, 0};
    Put(bytes + dictionary + "abcd");
    const auto array = ReadNpy(path_);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->type, NpyType::kF16);
    EXPECT_THAT(array->shape, ElementsAre(2));
  }
}

TEST_F(NpyTest, ReadsTheModelsFiles) {
  const auto array = ReadNpy(ATTND_TEST_DATA "/minilm/layer0/q.npy");
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->type, NpyType::kF32);
  EXPECT_THAT(array->shape, ElementsAre(1, 67, 12, 32));
}

TEST_F(NpyTest, OneDimensionHasNoOrder) {
  Put("{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }", 8);
  EXPECT_TRUE(ReadNpy(path_).ok());
}

TEST_F(NpyTest, AMissingFileIsNotFound) {
  const auto array = ReadNpy(path_);
  EXPECT_TRUE(absl::IsNotFound(array.status())) << array.status();
  EXPECT_THAT(std::string(array.status().message()), HasSubstr(path_));
}

TEST_F(NpyTest, RefusesADirectory) {
  path_ = directory_;
  ExpectRefused("not a regular file");
  path_ = directory_ + "/a.npy";
}

// A FIFO whose writer never comes would be waited for.
TEST_F(NpyTest, RefusesAFifoAtOnce) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ExpectRefused("not a regular file");
}

TEST_F(NpyTest, RefusesWhatIsNotNpy) {
  for (const char* bytes : {"", "\x93NUM", "PK\x03\x04 a zip file, say"}) {
    Put(bytes);
    ExpectRefused("not a .npy file");
  }
}

TEST_F(NpyTest, RefusesOtherVersions) {
  Put(std::string("\x93NUMPY\x04\x00\x00\x00\x00\x00", 12));
  ExpectRefused("version 4");
}

TEST_F(NpyTest, RefusesFortranOrder) {
  Put("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", 16);
  ExpectRefused("Fortran-ordered");
}

TEST_F(NpyTest, RefusesOtherTypes) {
  const auto descr = [this](const std::string& type) {
    Put("{'descr': " + type + ", 'fortran_order': False, 'shape': (2,), }", 16);
  };
  descr("'<f8'");
  ExpectRefused("float64");
  descr("'>f4'");
  ExpectRefused("big-endian");
  descr("'<i4'");
  ExpectRefused("'<i4'");
  descr("'|O'");
  ExpectRefused("'|O'");
  descr("[('a', '<f4')]");
  ExpectRefused("structured");
  descr("'\x1b[2J'");
  ExpectRefused("\\x1b[2J");
}

TEST_F(NpyTest, RefusesZeroDimensions) {
  Put("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 4);
  ExpectRefused("0-dimensional");
}

TEST_F(NpyTest, RefusesTooMuchOrTooLittleData) {
  const char* dictionary =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  Put(dictionary, 23);
  ExpectRefused("truncated");
  Put(dictionary, 25);
  ExpectRefused("too long");
  Put("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0), }", 1);
  ExpectRefused("too long");
}

TEST_F(NpyTest, RefusesEveryCutOfAFile) {
  const std::vector<float> data = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(WriteNpy(path_, NpyType::kF32, {2, 3}, data.data()).ok());
  const std::string whole = Get();
  for (size_t size = 0; size < whole.size(); ++size) {
    Put(whole.substr(0, size));
    EXPECT_TRUE(absl::IsInvalidArgument(ReadNpy(path_).status())) << size;
  }
}

// The sizes that a header claims are checked against the file before memory
// is taken for them.
TEST_F(NpyTest, RefusesAbsurdSizesWithoutAllocatingThem) {
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  for (const char* shape :
       {"(9223372036854775807,)", "(4294967296, 4294967296, 4)",
        "(4611686018427387904, 4)", "(1, 1099511627776)", "(2147483648,)"}) {
    Put(std::string("{'descr': '<f4', 'fortran_order': False, 'shape': ") +
            shape + ", }",
        16);
    ExpectRefused("truncated");
  }
  Put(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12));
  ExpectRefused("a header of 4294967295 bytes");
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 << 10) << "KiB";
}

TEST_F(NpyTest, RefusesGarbledHeaders) {
  for (const char* dictionary : {
           "",
           "{",
           "[]",
           "{'descr'",
           "{'descr': '<f4}",
           "{'descr': '<f4', 'fortran_order': False}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}",
           "{'descr':'<f4','descr':'<f4','fortran_order':False,'shape':(2,)}",
           "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': [2]}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
           // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): it is one
           "{'descr': '<f4', 'fortran_order': False, 'shape': "
           "(99999999999999999999,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} + 1",
           "{'descr': '<f4' 'fortran_order': False 'shape': (2,)}",
       }) {
    Put(dictionary, 8);
    ExpectRefused("header: ");
  }
}

// Whatever a header holds, reading it ends with a header or an error.
TEST(NpyHeaderTest, SurvivesRandomChanges) {
  absl::BitGen rng;
  const std::string good =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 67, 12, 32), }";
  const std::string alphabet = "{}()[]'\":,\\ \nTrueFals0123456789-.<f4\xff";
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (int n = absl::Uniform(rng, 1, 4); n > 0; --n) {
      const size_t at = absl::Uniform<size_t>(rng, 0, text.size());
      const char c = alphabet[absl::Uniform<size_t>(rng, 0, alphabet.size())];
      if (absl::Bernoulli(rng, 0.5)) {
        text[at] = c;
      } else {
        text.erase(at, 1);
      }
    }
    const auto header = ParseNpyHeader(text);
    if (!header.ok()) continue;
    EXPECT_LE(header->shape.size(), 32);
    for (const int64_t extent : header->shape) EXPECT_GE(extent, 0);
  }
}

TEST_F(NpyTest, SaysWhereItCannotWrite) {
  const float value = 0;
  const absl::Status status =
      WriteNpy(directory_ + "/no/such/place.npy", NpyType::kF32, {1}, &value);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
}

}  // namespace
}  // namespace attnd::client
