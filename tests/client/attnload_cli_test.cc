// attnload from outside: its flags, its files, its progress and its exit
// status, against attnd and against servers that misbehave.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/server.h"
#include "tests/client/attnload_program.h"
#include "tests/client/rude_server.h"
#include "tests/hang_limit.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/fakes/slow_backend.h"

namespace attnd {
namespace {

using ::attnd::testing::Ran;
using ::attnd::testing::RunProgram;
using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

using Flags = std::vector<std::string>;

TEST_F(AttnloadTest, JsonOnStdoutIsAllThatIsThere) {
  const std::string log = folder_.File("log");
  const Ran ran =
      RunWithStderrTo(log, {kSmall, "--json=-", "--requests=3", "--warmup=0"});
  EXPECT_EQ(ran.exit_status, kDone);
  const json parsed = json::parse(ran.output, nullptr, false);
  ASSERT_FALSE(parsed.is_discarded()) << ran.output;
  EXPECT_EQ(parsed["levels"][0]["ok"], 3);
  EXPECT_THAT(ReadText(log), HasSubstr("p99.9 ms"));
}

TEST_F(AttnloadTest, ResultsThatCannotBeWrittenAreAnError) {
  // Found before a load that would take a day.
  const std::string path = folder_.File("no/such/folder.json");
  const Ran none = Run({kSmall, "--duration=86400", "--json=" + path});
  EXPECT_EQ(none.exit_status, kBadUsage);
  EXPECT_THAT(none.output, HasSubstr(path));
  const Ran full =
      Run({kSmall, "--requests=1", "--warmup=0", "--json=/dev/full"});
  EXPECT_EQ(full.exit_status, kBadUsage);
  EXPECT_THAT(full.output, HasSubstr("cannot write"));
}

TEST_F(AttnloadTest, AnEmptyValueIsNotTheNextFlag) {
  for (const char* flag :
       {"--json=", "--mix=", "--shape=", "--priority=", "--rate="}) {
    const Ran ran = Run({kSmall, "--warmup=0", flag, "--requests=1"});
    EXPECT_EQ(ran.exit_status, kBadUsage) << flag << "\n" << ran.output;
    EXPECT_THAT(ran.output,
                HasSubstr(std::string(flag, std::strlen(flag) - 1) + ": "));
    EXPECT_FALSE(std::filesystem::exists("--requests=1")) << flag;
  }
}

TEST_F(AttnloadTest, AFullDiskLeavesNoPartOfTheResults) {
  const std::string path = folder_.File("results.json");
  const std::string limit = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
  std::vector<std::string> command = {"/bin/sh", "-c", limit, "sh"};
  for (const std::string& argument :
       Command(server_->tcp(), {kSmall, "--concurrency=1:10:1", "--requests=1",
                                "--warmup=0", "--json=" + path})) {
    command.push_back(argument);
  }
  const Ran ran = RunProgram(command);
  EXPECT_EQ(ran.exit_status, kBadUsage) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("cannot write " + path));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(AttnloadTest, AMixMayComeFromAPipeButNotWithoutEnd) {
  const auto run = [&](const char* mix) {
    std::vector<std::string> command = {"/bin/sh", "-c",
                                        "echo s8:h1:d8 | exec \"$@\"", "sh"};
    for (const std::string& argument :
         Command(server_->tcp(), {mix, "--requests=1", "--warmup=0"})) {
      command.push_back(argument);
    }
    return RunProgram(command);
  };
  const Ran pipe = run("--mix=/dev/stdin");
  EXPECT_EQ(pipe.exit_status, kDone) << pipe.output;
  const Ran endless = run("--mix=/dev/zero");
  EXPECT_EQ(endless.exit_status, kBadUsage);
  EXPECT_THAT(endless.output, HasSubstr("--mix: /dev/zero: longer than 1 MiB"));
}

TEST_F(AttnloadTest, TheTargetMayStandAnywhereAndBeAUnixSocket) {
  const Ran last = RunProgram({ATTND_ATTNLOAD, "--requests=1", "--warmup=0",
                               kSmall, server_->unix_socket()});
  EXPECT_EQ(last.exit_status, kDone) << last.output;
  const Ran spaces = Run({"--shape", "s8:h1:d8", "--requests", "1", "--warmup",
                          "0", "--priority", "high", "--connections", "2"});
  EXPECT_EQ(spaces.exit_status, kDone) << spaces.output;
}

// Each is refused before anything is sent, by a message that names it.
TEST_F(AttnloadTest, BadFlagsAreUsageErrors) {
  const std::string empty = folder_.File("empty"),
                    wrong = folder_.File("wrong");
  std::ofstream(empty) << "# nothing\n";
  std::ofstream(wrong) << "s8:h1:d8\nforward:sideways\n";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"--concurrency", "0"},
      {"--concurrency", "-1"},
      {"--concurrency", "1.5"},
      {"--concurrency", "1048577"},
      {"--concurrency", "many"},
      {"--concurrency", "1:2"},
      {"--concurrency", "4:1:1"},
      {"--concurrency", "1:16:*1"},
      {"--rate", "0"},
      {"--rate", "-5"},
      {"--rate", "0.0009"},
      {"--rate", "1000001"},
      {"--rate", "nan"},
      {"--rate", "1:5:0"},
      {"--rate", "0x10"},
      {"--concurrency", "1:0x10:1"},
      {"--shape", "sideways"},
      {"--shape", "b0"},
      {"--shape", "h3/2"},
      {"--shape", "s8:s9"},
      {"--shape", "forward:backward"},
      {"--shape", "s8@0"},
      {"--shape", "s0x8"},
      {"--shape", "s8@0x2"},
      {"--mix", empty},
      {"--mix", wrong},
      {"--mix", folder_.File("missing")},
      {"--warmup", "-1"},
      {"--warmup", "nan"},
      {"--warmup", "soon"},
      {"--duration", "0"},
      {"--duration", "nan"},
      {"--duration", "86401"},
      {"--requests", "0"},
      {"--requests", "-3"},
      {"--requests", "some"},
      {"--timeout", "0"},
      {"--timeout", "nan"},
      {"--priority", "urgent"},
      {"--transport", "pigeon"},
      {"--gpu", "-1"},
      {"--max_in_flight", "0"},
      {"--max_in_flight", "1048577"},
      {"--connections", "0"},
      {"--connections", "257"},
      {"--attempts", "0"},
      {"--attempts", "101"},
      {"--check", "-0.1"},
      {"--check", "1.1"},
      {"--check", "nan"},
      {"--seed", "-1"},
      {"--seed", "1.5"},
      {"--seed", "0x10"},
      {"--connections", "0x10"},
      {"--duration", "0x10"},
      {"--seed", "18446744073709551616"},
      {"--no_such_flag", "1"},
      {"--shapes", "s8"}};
  for (const auto& [flag, value] : bad) {
    const std::string text = absl::StrCat(flag, "=", value);
    const Ran ran = Run({text, "--json=" + folder_.File("json")});
    EXPECT_EQ(ran.exit_status, kBadUsage) << text << "\n" << ran.output;
    // A flag by its name; of a shape, its text.
    EXPECT_THAT(ran.output, HasSubstr(flag == "--shape" ? value : flag))
        << text;
    EXPECT_THAT(ran.output, Not(HasSubstr(", cpu:0"))) << "talked to it";
  }
  EXPECT_THAT(Run({"--mix=" + wrong}).output,
              AllOf(HasSubstr(wrong), HasSubstr("sideways")));
  EXPECT_EQ(Run({"another:1"}).exit_status, kBadUsage) << "two targets";
  const Ran none = RunProgram({ATTND_ATTNLOAD});
  EXPECT_EQ(none.exit_status, kBadUsage);
  EXPECT_THAT(none.output, HasSubstr("target"));
}

TEST_F(AttnloadTest, ARegionNeedsItsServersSocket) {
  for (const char* transport : {"region", "device_region"}) {
    const Ran none = Run({kSmall, absl::StrCat("--transport=", transport)});
    EXPECT_EQ(none.exit_status, kBadUsage) << none.output;
    EXPECT_THAT(none.output, HasSubstr("--region_socket"));
  }
  const Ran nobody =
      Run({kSmall, "--transport=region", "--region_socket=/nowhere/at/all"});
  EXPECT_EQ(nobody.exit_status, kBadOrNone) << nobody.output;
  EXPECT_THAT(nobody.output, HasSubstr("/nowhere/at/all"));
}

TEST_F(AttnloadTest, HelpSaysEveryFlagAndSucceeds) {
  const Ran ran = RunProgram({ATTND_ATTNLOAD, "--help"});
  EXPECT_EQ(ran.exit_status, kDone);
  for (const char* part :
       {"--concurrency", "--rate", "--shape", "--mix", "--warmup", "--duration",
        "--requests", "--timeout", "--priority", "--max_in_flight",
        "--connections", "--transport", "--region_socket", "--gpu",
        "--attempts", "--check", "--seed", "--json", "Exit status"}) {
    EXPECT_THAT(ran.output, HasSubstr(part));
  }
}

TEST_F(AttnloadTest, WithoutAServerItSaysSo) {
  const std::string target = "unix:" + folder_.File("nobody");
  const Ran ran = RunProgram({ATTND_ATTNLOAD, target, kSmall, "--timeout=20"});
  EXPECT_EQ(ran.exit_status, kBadOrNone);
  EXPECT_THAT(ran.output, HasSubstr(folder_.File("nobody")));
}

TEST_F(AttnloadTest, WhatAServerSaysIsPrintedWithoutControlBytes) {
  const RudeServer server;
  const Ran ran = RunProgram(
      Command(server.address(), {kSmall, "--requests=2", "--warmup=0"}));
  EXPECT_EQ(ran.exit_status, kBadOrNone);
  EXPECT_THAT(ran.output, HasSubstr("[31m"));
  EXPECT_THAT(ran.output, HasSubstr("\\x1b[2J\\x0aattnctl: all is well\n"));
  EXPECT_EQ(Controls(ran.output), "");
}

// Servers that misbehave, in this process.
class AttnloadOnFakes : public AttnloadTest {
 protected:
  void SetUp() override {}

  Measured MeasureOn(std::vector<std::unique_ptr<Backend>> backends,
                     const Flags& flags) {
    auto server = server::Server::Start({}, std::move(backends));
    EXPECT_TRUE(server.ok()) << server.status();
    if (!server.ok()) return {};
    return Measure(absl::StrCat("127.0.0.1:", (*server)->port()), flags);
  }
  Measured MeasureOn(std::unique_ptr<Backend> backend, const Flags& flags) {
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::move(backend));
    return MeasureOn(std::move(backends), flags);
  }
};

TEST_F(AttnloadOnFakes, WrongAnswersFailAndTheWorstIsShown) {
  const Flags flags = {"--shape=s16:h1:d8", "--requests=5", "--warmup=0"};
  for (const char* check : {"--check=1", "--check=0"}) {
    Flags all = flags;
    all.push_back(check);
    // O is Q's bytes.
    const Measured m =
        MeasureOn(std::make_unique<server::IdentityBackend>(), all);
    const json& level = m.levels[0];
    EXPECT_EQ(level["ok"], 5);
    EXPECT_EQ(level["answers_wrong"], level["answers_checked"]);
    if (check == std::string("--check=0")) {
      EXPECT_EQ(m.ran.exit_status, kDone);
      EXPECT_EQ(level["answers_checked"], 0);
      continue;
    }
    EXPECT_EQ(m.ran.exit_status, kBadOrNone);
    const int64_t wrong = level["answers_wrong"];
    EXPECT_GT(wrong, 0);
    EXPECT_THAT(m.ran.output, HasSubstr(absl::StrCat("wrong: ", wrong, "\n")));
    EXPECT_THAT(m.ran.output, ContainsRegex("worst .*should be"));
  }
}

TEST_F(AttnloadOnFakes, ADeadlineEndsARequest) {
  std::vector<std::unique_ptr<Backend>> devices;
  devices.push_back(std::make_unique<server::SlowBackend>(absl::Hours(1)));
  const auto server = server::Server::Start({}, std::move(devices));
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string target = absl::StrCat("127.0.0.1:", (*server)->port());
  const std::string path = folder_.File("results.json");
  // What the server is must be known within it as well, however slow that is.
  double timeout = 0.1;
  Ran ran;
  while (!std::filesystem::exists(path)) {
    timeout *= 2;
    ASSERT_LT(timeout, absl::ToDoubleSeconds(testing::kHangLimit));
    ran = RunProgram(Command(
        target, {kSmall, absl::StrCat("--timeout=", timeout), "--requests=2",
                 "--concurrency=2", "--warmup=0", "--json=" + path}));
    EXPECT_EQ(ran.exit_status, kBadOrNone) << ran.output;
  }
  const json level = json::parse(ReadText(path), nullptr, false)["levels"][0];
  EXPECT_EQ(level["sent_by_code"], json({{"DEADLINE_EXCEEDED", 2}}));
  // Not before.
  EXPECT_GT(level["elapsed_s"], 0.9 * timeout);
}

// It would go on for an hour.
TEST_F(AttnloadTest, AnInterruptEndsTheLoadAndLeavesItsResults) {
  const std::string pid_file = folder_.File("pid");
  const std::string path = folder_.File("results.json");
  std::vector<std::string> command = {
      "/bin/sh", "-c", "echo $$ >\"$0\".new; mv \"$0\".new \"$0\"; exec \"$@\"",
      pid_file};
  const std::vector<std::string> load =
      Command(server_->tcp(), {kSmall, "--concurrency=2,4", "--warmup=0",
                               "--duration=3600", "--json=" + path});
  command.insert(command.end(), load.begin(), load.end());
  Ran ran;
  std::thread running([&] { ran = RunProgram(command); });
  const auto counted = [this] {
    return Counted("attnd_requests_total{code=\"OK\",method=\"Forward\"}");
  };
  EXPECT_TRUE(testing::Eventually([&] { return counted() >= 5; }));
  EXPECT_EQ(kill(std::stoi(ReadText(pid_file)), SIGINT), 0);
  running.join();
  EXPECT_EQ(ran.exit_status, kDone) << ran.output;
  const json levels = json::parse(ReadText(path), nullptr, false)["levels"];
  ASSERT_EQ(levels.size(), 1) << "the second level had not begun";
  EXPECT_GE(levels[0]["ok"], 5);
  EXPECT_EQ(levels[0]["sent"], levels[0]["ok"]);
  const double sent = levels[0]["sent"];
  EXPECT_EQ(Requests(sent, "Forward"), sent);
}

// What one attnload says on its way, of two requests one after the other: the
// server keeps it waiting for the second until that has been seen.
class HeldLoad {
 public:
  explicit HeldLoad(std::vector<std::string> command_before) {
    auto device = std::make_unique<server::ManualBackend>();
    device_ = device.get();
    std::vector<std::unique_ptr<Backend>> devices;
    devices.push_back(std::move(device));
    auto server = server::Server::Start({}, std::move(devices));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    command_before.insert(
        command_before.end(),
        {ATTND_ATTNLOAD, absl::StrCat("127.0.0.1:", server_->port()), kSmall,
         "--requests=2", "--warmup=0", "--check=0"});
    program_ = std::thread([this, command = std::move(command_before)] {
      ran_ = RunProgram(command);
    });
    device_->Finish(device_->Await());
    device_->Await();
  }
  // Lets it go on to its end.
  Ran End() {
    device_->FinishAll();
    program_.join();
    return ran_;
  }

 private:
  server::ManualBackend* device_ = nullptr;
  std::unique_ptr<server::Server> server_;
  Ran ran_;
  std::thread program_;
};

// A terminal has one line that changes every second; a file gets a line every
// five.
TEST_F(AttnloadOnFakes, SaysHowItGoesWhileItRuns) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  // Held open, or what was written is gone with the last writer.
  const std::string name = ptsname(terminal);
  const int held = open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(held, 0);
  const std::string log = folder_.File("log");
  HeldLoad on_terminal(StderrTo(name)), on_file(StderrTo(log));

  const std::string line =
      "\\[1 at once\\] +[0-9]+ s  [0-9.]+ requests/s  p50 [0-9.]+ ms  "
      "p99 [0-9.]+ ms  1 in flight  0 failed";
  std::string seen;
  const auto read_until = [&](const std::string& regex) {
    while (!::testing::Value(seen, ContainsRegex(regex))) {
      char text[4096];
      const ssize_t size = read(terminal, text, sizeof(text));
      ASSERT_GT(size, 0);
      seen.append(text, size);
    }
  };
  read_until("\r\033\\[K" + line);
  const Ran with_terminal = on_terminal.End();
  EXPECT_EQ(with_terminal.exit_status, kDone) << with_terminal.output;
  EXPECT_EQ(with_terminal.output.find("load  "), 0) << "the table alone";
  // It goes when the level ends.
  read_until("failed\r\033\\[K");
  close(held);
  close(terminal);

  EXPECT_TRUE(testing::Eventually([&] {
    return ::testing::Value(ReadText(log), ContainsRegex(line + "\n"));
  })) << ReadText(log);
  EXPECT_THAT(ReadText(log), Not(HasSubstr("\033")));
  EXPECT_EQ(on_file.End().exit_status, kDone);
}

// The first run on any of the devices that share `failed` takes its device
// out of service.
class FirstRunFails : public server::IdentityBackend {
 public:
  FirstRunFails(int index, std::shared_ptr<std::atomic<bool>> failed)
      : IdentityBackend(index), failed_(std::move(failed)) {}

  absl::Status On(Stage stage, Group) override {
    if (stage != Stage::kRun || failed_->exchange(true)) {
      return absl::OkStatus();
    }
    return absl::UnavailableError("gone");
  }

 private:
  const std::shared_ptr<std::atomic<bool>> failed_;
};

TEST_F(AttnloadOnFakes, AnotherAttemptFindsTheOtherDevice) {
  for (const bool again : {false, true}) {
    const auto failed = std::make_shared<std::atomic<bool>>(false);
    std::vector<std::unique_ptr<Backend>> devices;
    devices.push_back(std::make_unique<FirstRunFails>(0, failed));
    devices.push_back(std::make_unique<FirstRunFails>(1, failed));
    const Measured m = MeasureOn(
        std::move(devices), {kSmall, "--requests=4", "--warmup=0", "--check=0",
                             again ? "--attempts=3" : "--attempts=1"});
    EXPECT_EQ(m.ran.exit_status, kDone) << m.ran.output;
    EXPECT_EQ(m.levels[0]["failed"], again ? 0 : 1);
    EXPECT_EQ(m.levels[0]["ok"], again ? 4 : 3);
  }
}

}  // namespace
}  // namespace attnd
