// Copies from a peer beside work of its device or the peer's: what both lose,
// and whether a copy starts while its device is busy.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/clock.h"
#include "tests/bench/gpu/peer/kernels.h"
#include "tests/bench/gpu/peer/sections.h"
#include "tests/bench/gpu/peer/work.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr size_t kCopyBytes = 64 * kMiB;
constexpr size_t kRowWidth = 1024;  // of copies in rows
constexpr double kKernelSeconds = 10e-3;
constexpr int kRounds = 12;
// A stream that is held up takes no more than some hundred of them.
constexpr int kFewestCopies = 4, kMostCopies = 100;

// A kernel that leaves no room for others.
struct Busy {
  const char* name;
  bool moves;           // reads and writes memory, else computes in registers
  int64_t rounds = 16;  // that take kKernelSeconds, once calibrated

  void Enqueue(const Member& on, int64_t share = 1) const {
    constexpr size_t kHalf = kBufferBytes / 2;
    const int64_t some = std::max<int64_t>(rounds / share, 1);
    Check(moves ? Move(some, on.multiprocessors, on.busy, on.busy + kHalf,
                       kHalf, on.kernels)
                : Multiply(some, on.multiprocessors,
                           reinterpret_cast<float*>(on.stamps), on.kernels));
  }
};

// The kernel's own time, while nothing else runs.
double Alone(Gate& gate, const Busy& busy, const Member& on) {
  Use(on.device);
  gate.Hold(on.kernels);
  Check(cudaEventRecord(on.kernel_begin, on.kernels));
  busy.Enqueue(on);
  Check(cudaEventRecord(on.kernel_end, on.kernels));
  gate.Open();
  Check(cudaStreamSynchronize(on.kernels));
  return SecondsBetween(on.kernel_begin, on.kernel_end);
}

// How many rounds take kKernelSeconds.
Busy Calibrated(Team& team, Busy busy) {
  for (int i = 0; i < 3; ++i) {
    const double seconds = Alone(team.gate(), busy, team[0]);
    busy.rounds =
        std::max<int64_t>(1, std::llround(static_cast<double>(busy.rounds) *
                                          kKernelSeconds / seconds));
  }
  return busy;
}

// A copy of kCopyBytes from device 1 to device 0: contiguous, or of rows.
struct Pull {
  const char* name;
  bool has_rows;

  void Enqueue(Team& team) const {
    const Member &to = team[0], &from = team[1];
    if (!has_rows) {
      Check(cudaMemcpyPeerAsync(to.target, to.device, from.source, from.device,
                                kCopyBytes, to.copies[0]));
      return;
    }
    Check(cudaMemcpy2DAsync(to.target, kRowWidth, from.source, kPitch,
                            kRowWidth, kCopyBytes / kRowWidth,
                            cudaMemcpyDefault, to.copies[0]));
  }
};

std::vector<Pull> PullsOf(const Team& team) {
  std::vector<Pull> pulls = {{"contiguous", false}};
  if (team.has_pools()) pulls.push_back({"rows", true});
  return pulls;
}

// Copies, one right after the other, without a kernel or beside one.
class Beside {
 public:
  Beside(Team& team, const Pull& pull) : team_(team), pull_(pull) {
    Use(team[0].device);
    for (int i = 0; i <= kMostCopies; ++i) {
      marks_.push_back(MakeEvent(cudaEventDefault));
    }
    // The first may have something to set up, which must not wait for the gate.
    pull.Enqueue(team);
    Check(cudaStreamSynchronize(team[0].copies[0]));
    std::vector<double> copies;
    for (int i = 0; i < 3; ++i) copies = Copies(kFewestCopies);
    alone_ = Median(copies);
  }
  ~Beside() {
    for (cudaEvent_t mark : marks_) Check(cudaEventDestroy(mark));
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  void Measure(Report& report, const std::string& name, const Busy& busy,
               const Member& on) {
    // Enough to last longer than the kernel, whatever it becomes.
    count_ =
        std::clamp(static_cast<int>(std::ceil(1.3 * kKernelSeconds / alone_)),
                   kFewestCopies, kMostCopies);
    std::vector<double> kernel_alone, kernel_beside, alone, beside;
    for (int round = 0; round <= kRounds; ++round) {
      const double kernel = Alone(team_.gate(), busy, on);
      const std::vector<double> copies = Copies(count_);
      std::vector<double> beside_kernel;
      const double slowed = Together(busy, on, beside_kernel);
      if (round == 0) continue;
      kernel_alone.push_back(kernel);
      kernel_beside.push_back(slowed);
      Append(copies, alone);
      Append(beside_kernel, beside);
    }
    report.Row(name + ".kernel_alone", 1e6 * Median(kernel_alone), "us");
    report.Row(name + ".kernel_slowdown",
               MedianRatio(kernel_beside, kernel_alone), "ratio");
    report.Row(name + ".copy_alone", 1e6 * Median(alone), "us");
    report.Row(name + ".copy_slowdown", Median(beside) / Median(alone),
               "ratio");
    report.Row(name + ".copies_in_kernel",
               static_cast<double>(beside.size()) / kRounds, "copies");
  }

 private:
  void EnqueueCopies(int count) {
    const cudaStream_t stream = team_[0].copies[0];
    Check(cudaEventRecord(marks_[0], stream));
    for (int i = 0; i < count; ++i) {
      pull_.Enqueue(team_);
      Check(cudaEventRecord(marks_[i + 1], stream));
    }
  }

  // Seconds of each.
  std::vector<double> Copies(int count) {
    Use(team_[0].device);
    team_.gate().Hold(team_[0].copies[0]);
    EnqueueCopies(count);
    team_.gate().Open();
    Check(cudaStreamSynchronize(team_[0].copies[0]));
    std::vector<double> seconds;
    for (int i = 0; i < count; ++i) {
      seconds.push_back(SecondsBetween(marks_[i], marks_[i + 1]));
    }
    return seconds;
  }

  // The kernel's seconds, and those of the copies that ended before it did.
  double Together(const Busy& busy, const Member& on,
                  std::vector<double>& copies) {
    Use(on.device);
    team_.gate().Hold(on.kernels);
    Check(cudaEventRecord(on.kernel_begin, on.kernels));
    busy.Enqueue(on);
    Check(cudaEventRecord(on.kernel_end, on.kernels));
    Use(team_[0].device);
    Check(cudaStreamWaitEvent(team_[0].copies[0], on.kernel_begin, 0));
    EnqueueCopies(count_);
    team_.gate().Open();
    Check(cudaStreamSynchronize(on.kernels));
    Check(cudaStreamSynchronize(team_[0].copies[0]));
    const double kernel = SecondsBetween(on.kernel_begin, on.kernel_end);
    for (int i = 0; i < count_; ++i) {
      // The last may have had some of its time after the kernel's end.
      if (SecondsBetween(marks_[0], marks_[i + 1]) > 0.95 * kernel) break;
      copies.push_back(SecondsBetween(marks_[i], marks_[i + 1]));
    }
    return kernel;
  }

  Team& team_;
  const Pull pull_;
  std::vector<cudaEvent_t> marks_;
  double alone_ = 0;
  int count_ = 0;
};

// What keeps device 0 busy for some ten milliseconds when a copy comes.
struct Occupation {
  const char* name;
  std::function<void()> enqueue;
  // Whether it has been running for a while by then.
  bool runs = true;
};

void MeasureStart(Team& team, Report& report, const std::string& name,
                  const Pull& pull, const Occupation& occupation) {
  Member& to = team[0];
  Work work;
  work.members = {&to};
  work.enqueue = [&](Member&, int, cudaStream_t) { pull.Enqueue(team); };
  std::vector<double> alone, beside;
  int still_busy = 0;
  for (int round = 0; round <= kRounds; ++round) {
    const double idle = WallSeconds(work);
    Use(to.device);
    occupation.enqueue();
    Check(cudaEventRecord(to.computed, to.kernels));
    if (occupation.runs) {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    const double busy = WallSeconds(work);
    const bool is_busy = !IsDone(to.computed);
    Check(cudaStreamSynchronize(to.kernels));
    if (round == 0) continue;
    alone.push_back(idle);
    beside.push_back(busy);
    still_busy += is_busy ? 1 : 0;
  }
  report.Row(name + ".alone", 1e6 * Median(alone), "us");
  report.Row(name + ".until_done", 1e6 * Median(beside), "us");
  report.Row(name + ".until_done_max", 1e6 * Quantile(beside, 1), "us");
  report.Row(name + ".still_busy", static_cast<double>(still_busy) / kRounds,
             "share");
}

}  // namespace

void MeasureBeside(Team& team, Report& report) {
  Report::Note(
      "copies of 64 MiB from device 1 to 0, one after another, beside a kernel "
      "of 10 ms on all multiprocessors of 0 (reader) or 1 (owner); rows: 1 KiB "
      "of every 4");
  for (const Pull& pull : PullsOf(team)) {
    Beside beside(team, pull);
    for (const Busy& kind : {Busy{"multiply", false}, Busy{"move", true}}) {
      const Busy busy = Calibrated(team, kind);
      for (int member : {0, 1}) {
        beside.Measure(report,
                       absl::StrCat(pull.name, ".", busy.name, ".",
                                    member == 0 ? "reader" : "owner"),
                       busy, team[member]);
      }
    }
  }
}

void MeasureStarts(Team& team, Report& report) {
  Report::Note(
      "a copy of 64 MiB from device 1 to 0, enqueued to done, after other work "
      "of device 0 on another stream; still_busy: in how many rounds that work "
      "outlasted the copy, which must be 1 beside kernels");
  const Busy multiply = Calibrated(team, {"multiply", false});
  const Busy move = Calibrated(team, {"move", true});
  const Member& busy = team[0];
  void* memory = nullptr;
  Use(busy.device);
  Check(cudaHostAlloc(&memory, kCopyBytes, cudaHostAllocPortable));
  Check(cudaMemcpy(memory, busy.source, kCopyBytes, cudaMemcpyDeviceToHost));
  const auto transfer = [&](cudaMemcpyKind kind) {
    const bool up = kind == cudaMemcpyHostToDevice;
    for (int i = 0; i < 8; ++i) {
      Check(cudaMemcpyAsync(up ? busy.busy : memory, up ? memory : busy.busy,
                            kCopyBytes, kind, busy.kernels));
    }
  };
  const Occupation occupations[] = {
      {"multiply", [&] { multiply.Enqueue(busy); }},
      {"move", [&] { move.Enqueue(busy); }},
      {"just_enqueued", [&] { multiply.Enqueue(busy); }, false},
      {"four_kernels",
       [&] {
         for (int i = 0; i < 4; ++i) multiply.Enqueue(busy, 4);
       },
       false},
      {"uploads", [&] { transfer(cudaMemcpyHostToDevice); }},
      {"downloads", [&] { transfer(cudaMemcpyDeviceToHost); }},
  };
  for (const Pull& pull : PullsOf(team)) {
    for (const Occupation& occupation : occupations) {
      MeasureStart(team, report, absl::StrCat(pull.name, ".", occupation.name),
                   pull, occupation);
    }
  }
  Check(cudaFreeHost(memory));
}

}  // namespace attnd::bench
