// attnctl from outside: real data, bad files and what the server says.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/float16.h"
#include "client/attnctl/npy.h"
#include "tests/client/attnctl_fixture.h"
#include "tests/client/rude_server.h"
#include "tests/integration/process.h"

namespace attnd::client {
namespace {

using ::attnd::testing::Ran;
using ::attnd::testing::RunProgram;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(AttnctlTest, ForwardAndBackwardOfRealDataAgreeWithTheModel) {
  for (const char* layer : {"layer0", "layer5"}) {
    const auto data = [&](const char* name) {
      return std::string(ATTND_TEST_DATA "/minilm/") + layer + "/" + name +
             ".npy";
    };
    const Ran forward = Run(
        {"forward", "--q=" + data("q"), "--k=" + data("k"), "--v=" + data("v"),
         "--o=" + folder_.File("o.npy"), "--lse=" + folder_.File("lse.npy"),
         "--expect_o=" + data("o"), "--expect_lse=" + data("lse")});
    EXPECT_EQ(forward.exit_status, kDone) << forward.output;
    for (const char* part :
         {"device", "kernel", "compute", "total", "TFLOP/s", "agrees with"}) {
      EXPECT_THAT(forward.output, HasSubstr(part));
    }
    const Ran backward = Run(
        {"backward", "--q=" + data("q"), "--k=" + data("k"), "--v=" + data("v"),
         "--d_o=" + data("d_o"), "--o=" + folder_.File("o.npy"),
         "--lse=" + folder_.File("lse.npy"), "--dq=" + folder_.File("dq.npy"),
         "--expect_dq=" + data("dq"), "--expect_dk=" + data("dk"),
         "--expect_dv=" + data("dv"), "--deterministic"});
    EXPECT_EQ(backward.exit_status, kDone) << backward.output;
    EXPECT_TRUE(std::filesystem::exists(folder_.File("dq.npy")));
  }
}

TEST_F(AttnctlTest, ADifferenceFailsAndIsSaid) {
  const Ran ran = Forward({"--causal", "--expect_o=" + Data("o")});
  EXPECT_EQ(ran.exit_status, kDiffers) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("DIFFERS"));
  EXPECT_EQ(Forward({"--causal", "--expect_o=" + Data("o"), "--tolerance=9"})
                .exit_status,
            kDone);
}

TEST_F(AttnctlTest, JsonIsOneObjectWithTheReport) {
  const Ran ran = Forward({"--json", "--expect_o=" + Data("o")});
  ASSERT_EQ(ran.exit_status, kDone) << ran.output;
  const auto json = nlohmann::json::parse(ran.output);
  EXPECT_TRUE(json["outputs"]["o"]["agrees"]);
  EXPECT_LT(json["outputs"]["o"]["rms_difference"], 1e-5);
  EXPECT_FALSE(json["outputs"].contains("lse")) << "not asked for";
  EXPECT_GT(json["flops"], 0);
  EXPECT_GT(json["milliseconds"]["total"], 0);
  EXPECT_EQ(json["attempts"], 1);
  EXPECT_EQ(json["transport"], "unary");
  EXPECT_EQ(json["streams"], 1);
}

TEST_F(AttnctlTest, EveryAlgorithmIsReachedByItsName) {
  for (const char* name :
       {"naive", "online_softmax", "flash_attention_1", "flash_attention_2"}) {
    const Ran ran = Forward({std::string("--algorithm=") + name, "--json",
                             "--expect_o=" + Data("o")});
    ASSERT_EQ(ran.exit_status, kDone) << name << ran.output;
    EXPECT_EQ(nlohmann::json::parse(ran.output)["algorithm"], name);
  }
}

// bfloat16 as numpy can hold it: 16-bit integers.
TEST_F(AttnctlTest, Bfloat16TravelsAs16BitIntegers) {
  std::vector<std::string> files;
  for (const char* name : {"q", "k", "v"}) {
    const auto array = ReadNpy(Data(name));
    ASSERT_TRUE(array.ok()) << array.status();
    std::vector<uint16_t> bits(array->data.size() / 4);
    for (size_t i = 0; i < bits.size(); ++i) {
      float value;
      std::memcpy(&value, &array->data[i * 4], 4);
      bits[i] = FloatToBF16(value);
    }
    files.push_back(folder_.File(std::string(name) + ".npy"));
    ASSERT_TRUE(
        WriteNpy(files.back(), NpyType::kBits16, array->shape, bits.data())
            .ok());
  }
  const std::vector<std::string> inputs = {
      "forward", "--q=" + files[0], "--k=" + files[1], "--v=" + files[2]};
  const Ran refused = Run(inputs);
  EXPECT_EQ(refused.exit_status, kBadInput);
  EXPECT_THAT(refused.output, HasSubstr("--dtype=bf16"));

  std::vector<std::string> command = inputs;
  command.insert(command.end(),
                 {"--dtype=bf16", "--o=" + folder_.File("from_bits.npy")});
  EXPECT_EQ(Run(command).exit_status, kDone);
  // The float32 files, rounded by attnctl, give the same bits.
  const Ran rounded =
      Forward({"--dtype=bf16", "--expect_o=" + folder_.File("from_bits.npy"),
               "--tolerance=0"});
  EXPECT_EQ(rounded.exit_status, kDone) << rounded.output;
  // And O can be had in f32, within bf16's accuracy of the model's.
  const Ran wide = Forward({"--dtype=bf16", "--out_dtype=f32",
                            "--expect_o=" + Data("o"), "--tolerance=0.02"});
  EXPECT_EQ(wide.exit_status, kDone) << wide.output;
}

// Two packed sequences are the two sequences one by one.
TEST_F(AttnctlTest, PackedSequencesTakeTheirLengths) {
  const int64_t tokens = 5, heads = 2, dim = 4;
  std::vector<float> values(tokens * heads * dim);
  for (size_t i = 0; i < values.size(); ++i) values[i] = (i * 37 % 19) / 19.f;
  const std::string packed = folder_.File("packed.npy");
  ASSERT_TRUE(
      WriteNpy(packed, NpyType::kF32, {tokens, heads, dim}, values.data())
          .ok());
  const std::vector<int64_t> lens = {2, 3};
  const std::string lens_file = folder_.File("lens.npy");
  ASSERT_TRUE(WriteNpy(lens_file, NpyType::kI64, {2}, lens.data()).ok());
  const std::string o = folder_.File("o.npy");
  const std::vector<std::string> inputs = {"forward", "--layout=packed",
                                           "--q=" + packed, "--k=" + packed,
                                           "--v=" + packed};
  std::vector<std::string> command = inputs;
  command.insert(command.end(),
                 {"--q_lens=2,3", "--kv_lens=" + lens_file, "--o=" + o});
  const Ran ran = Run(command);
  ASSERT_EQ(ran.exit_status, kDone) << ran.output;

  const std::string second = folder_.File("second.npy");
  ASSERT_TRUE(WriteNpy(second, NpyType::kF32, {1, 3, heads, dim},
                       values.data() + 2 * heads * dim)
                  .ok());
  const std::string second_o = folder_.File("second_o.npy");
  ASSERT_EQ(Run({"forward", "--q=" + second, "--k=" + second, "--v=" + second,
                 "--o=" + second_o})
                .exit_status,
            kDone);
  const auto whole = ReadNpy(o), part = ReadNpy(second_o);
  ASSERT_TRUE(whole.ok() && part.ok());
  EXPECT_TRUE(std::equal(part->data.begin(), part->data.end(),
                         whole->data.end() - part->data.size()));

  command = inputs;
  command.insert(command.end(), {"--q_lens=2,x"});
  const Ran bad = Run(command);
  EXPECT_EQ(bad.exit_status, kBadInput);
  EXPECT_THAT(bad.output, HasSubstr("'x' is not an integer"));
}

TEST_F(AttnctlTest, BadFilesAreNamedAndNothingIsSent) {
  ExpectBadFile(folder_.File("missing.npy"), "No such file");
  const std::string path = folder_.File("bad.npy");
  // The whole of a good file, but for its end.
  std::ifstream good(Data("q"), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(good), {}};
  const auto put = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  };
  put(bytes.substr(0, bytes.size() - 1));
  ExpectBadFile(path, "truncated");
  put(bytes.substr(0, 20));
  ExpectBadFile(path, "truncated");
  std::string changed = bytes;
  changed.replace(changed.find("False"), 5, "True ");
  put(changed);
  ExpectBadFile(path, "Fortran-ordered");
  changed = bytes;
  changed.replace(changed.find("<f4"), 3, "<f8");
  put(changed);
  ExpectBadFile(path, "float64");
  changed = bytes;
  changed.replace(changed.find("<f4"), 3, "<i4");
  put(changed);
  ExpectBadFile(path, "'<i4'");
  changed = bytes;
  changed.replace(changed.find("<f4"), 3, ">f4");
  put(changed);
  ExpectBadFile(path, "big-endian");
  const int64_t integer = 1;
  ASSERT_TRUE(WriteNpy(path, NpyType::kI64, {1}, &integer).ok());
  ExpectBadFile(path, "int64");
  put("not a numpy file at all");
  ExpectBadFile(path, "not a .npy file");
}

TEST_F(AttnctlTest, TheServersRefusalNamesTheField) {
  const Ran ran = Forward({"--k=" + Data("lse")});
  EXPECT_NE(ran.exit_status, kDone) << "--k twice";
  const Ran softcap = Forward({"--softcap=-1"});
  EXPECT_EQ(softcap.exit_status, kCallFailed);
  EXPECT_THAT(softcap.output, HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(softcap.output, HasSubstr("attention.softcap"));
  const Ran json = Forward({"--q_stride=0", "--json"});
  EXPECT_EQ(json.exit_status, kCallFailed);
  EXPECT_THAT(json.output, HasSubstr("\"field\": \"attention.q_stride\""));
}

TEST_F(AttnctlTest, AFailedCallHasAnIdByWhichTheServersLogHasIt) {
  const Ran given = Forward({"--softcap=-1", "--request_id=job-7"});
  EXPECT_EQ(given.exit_status, kCallFailed);
  EXPECT_THAT(given.output, HasSubstr("  request id job-7\n"));
  EXPECT_TRUE(server_->AwaitLog("request_id=job-7 ")) << server_->log();
  const Ran json = Forward({"--softcap=-1", "--json", "--request_id=job-8"});
  EXPECT_THAT(json.output, HasSubstr("\"request_id\": \"job-8\""));
  EXPECT_THAT(Forward({"--softcap=-1"}).output, HasSubstr("  request id "));

  const Ran bad = Forward({"--request_id=a b"});
  EXPECT_EQ(bad.exit_status, kBadInput);
  EXPECT_THAT(bad.output, HasSubstr("--request_id: \"a b\""));
  const Ran trace = Forward({"--traceparent=00-1-2-01"});
  EXPECT_EQ(trace.exit_status, kBadInput);
  EXPECT_THAT(trace.output, HasSubstr("--traceparent: "));
}

TEST_F(AttnctlTest, InfoAndHealthOfALiveServer) {
  const Ran info = Run({"info", "--json"});
  ASSERT_EQ(info.exit_status, kDone) << info.output;
  const auto json = nlohmann::json::parse(info.output);
  EXPECT_EQ(json["devices"][0]["kind"], "cpu");
  EXPECT_EQ(json["server_instance_id"].get<std::string>().size(), 32);
  EXPECT_THAT(Run({"info"}).output, HasSubstr("head_dim 256, 16384 sequences"));
  const Ran health = Run({"health"});
  EXPECT_EQ(health.exit_status, kDone);
  EXPECT_EQ(health.output, "SERVING\n");
  const Ran unix_health =
      RunProgram({ATTND_ATTNCTL, "health", "--server", server_->unix_socket()});
  EXPECT_EQ(unix_health.exit_status, kDone) << unix_health.output;
  EXPECT_EQ(Run({"health", "--service=no.such.Service"}).exit_status,
            kCallFailed);
}

TEST_F(AttnctlTest, WithoutAServerItSaysSo) {
  const Ran ran = RunProgram({ATTND_ATTNCTL, "health", "--timeout=20s",
                              "--server=unix:" + folder_.File("nobody")});
  EXPECT_EQ(ran.exit_status, kCallFailed);
  EXPECT_THAT(ran.output, HasSubstr("UNAVAILABLE"));
}

TEST_F(AttnctlTest, WhatAServerSaysIsPrintedWithoutControlBytes) {
  const RudeServer server;
  for (const char* json : {"--json", ""}) {
    std::vector<std::string> info = {ATTND_ATTNCTL, "info",
                                     "--server=" + server.address()};
    std::vector<std::string> forward = {
        ATTND_ATTNCTL,      "forward",          "--server=" + server.address(),
        "--q=" + Data("q"), "--k=" + Data("k"), "--v=" + Data("v")};
    if (*json != 0) {
      info.push_back(json);
      forward.push_back(json);
    }
    const Ran told = RunProgram(info);
    EXPECT_EQ(told.exit_status, kDone) << told.output;
    EXPECT_THAT(told.output, HasSubstr("[31m"));
    EXPECT_THAT(Controls(told.output), IsEmpty());
    const Ran refused = RunProgram(forward);
    EXPECT_EQ(refused.exit_status, kCallFailed);
    EXPECT_THAT(refused.output,
                HasSubstr("\\x1b[2J\\x0aattnctl: all is well\n"));
    EXPECT_THAT(Controls(refused.output), IsEmpty());
  }
}

}  // namespace
}  // namespace attnd::client
