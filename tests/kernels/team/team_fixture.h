#ifndef ATTND_TESTS_KERNELS_TEAM_TEAM_FIXTURE_H_
#define ATTND_TESTS_KERNELS_TEAM_TEAM_FIXTURE_H_

// Virtual CPU devices and a team of them.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/team/team.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/run_group.h"

namespace attnd::testing {

// The memory of every output, in the output's own type.
using Bits = std::vector<std::vector<uint8_t>>;

// What a service can ask for, one segment of columns, small.
inline ProblemOptions ServedOptions() {
  ProblemOptions options;
  options.max_segments = 1;
  options.max_q_len = 260;
  options.max_kv_len = 280;
  options.max_dim = 64;
  options.max_kv_heads = 4;
  return options;
}

// A backend with one of its streams.
struct Device {
  explicit Device(std::unique_ptr<Backend> from)
      : backend(std::move(from)), stream(backend->NewStream().value()) {}

  absl::Status Forward(const ForwardArgs& args, const GroupOptions& options) {
    absl::Status status = RunForward(*stream, {&args, 1}, options);
    return Finish(std::move(status));
  }
  absl::Status Backward(const BackwardArgs& args, const GroupOptions& options) {
    absl::Status status = RunBackward(*stream, {&args, 1}, options);
    return Finish(std::move(status));
  }
  absl::Status Finish(absl::Status status) {
    status.Update(stream->Wait().status());
    if (const PlanReport* said = stream->plan_report()) report = *said;
    stream->Reset();
    return status;
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Stream> stream;
  PlanReport report;  // of the last run
};

inline std::unique_ptr<Backend> OneCpu(int threads = 1) {
  return CreateCpuBackend({.threads = threads}).value();
}

// Devices, and their team, which goes first.
struct TeamOf {
  explicit TeamOf(std::vector<std::unique_ptr<Backend>> of)
      : members(std::move(of)) {
    std::vector<Backend*> all;
    all.reserve(members.size());
    for (const auto& member : members) all.push_back(member.get());
    team = std::make_unique<Device>(CreateTeam(all).value());
  }

  std::vector<std::unique_ptr<Backend>> members;
  std::unique_ptr<Device> team;
};

inline std::vector<std::unique_ptr<Backend>> Cpus(int count) {
  std::vector<std::unique_ptr<Backend>> cpus;
  cpus.reserve(count);
  for (int i = 0; i < count; ++i) cpus.push_back(OneCpu());
  return cpus;
}

inline Bits ForwardBits(Device& device, const RandomProblem& problem,
                        const GroupOptions& options) {
  RandomProblem::ForwardOutputs out = problem.MakeForwardOutputs();
  EXPECT_TRUE(device.Forward(problem.Forward(out), options).ok());
  return {out.o.bytes(), out.lse.bytes()};
}

inline Bits BackwardBits(Device& device, const RandomProblem& problem,
                         const GroupOptions& options) {
  RandomProblem::BackwardOutputs out = problem.MakeBackwardOutputs();
  EXPECT_TRUE(device.Backward(problem.Backward(out), options).ok());
  Bits bits = {out.dq.bytes()};
  for (const OwnedTensor& t : out.dk) bits.push_back(t.bytes());
  for (const OwnedTensor& t : out.dv) bits.push_back(t.bytes());
  return bits;
}

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_TEAM_TEAM_FIXTURE_H_
