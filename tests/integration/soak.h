#ifndef ATTND_TESTS_INTEGRATION_SOAK_H_
#define ATTND_TESTS_INTEGRATION_SOAK_H_

// A server under everything that clients do at once, and what it holds then and
// afterwards.

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "tests/integration/mixed_load.h"
#include "tests/integration/process.h"

namespace attnd::testing {

class Soak {
 public:
  using Counts = std::array<MixedLoad::Codes, 2>;  // by Op and code (0 to 16)

  // Starts `binary` with --memory_limit=256MiB and two compute threads.
  static absl::StatusOr<std::unique_ptr<Soak>> Start(const std::string& binary);

  // Uses every part once, and remembers what the server holds at rest.
  void WarmUp();
  // `calls` of MixedLoad::Mix::kEverything.
  void Run(int calls);
  // `calls` of MixedLoad::Mix::kLarge: far more than fits at once.
  void RunLarge(int calls);

  // Waits until the server holds no more than it did after WarmUp, or, without
  // one, no memory for requests; what it holds then, or after kHangLimit.
  Usage Rest() const;
  double AccountBytes() const;
  // Waits until the server's counts can be those of the calls that clients saw
  // end; what contradicts that after kHangLimit, or "".
  std::string Contradiction() const;

  // Calls that clients saw end with `code`.
  int Seen(Op op, int code) const { return seen_[static_cast<int>(op)][code]; }
  int Seen(int code) const {
    return Seen(Op::kForward, code) + Seen(Op::kBackward, code);
  }
  // The same as the server counts them.
  Counts ServerCounts() const;

  // A server cannot know what became of an answer that a client gave up waiting
  // for: a cancel and a passed deadline both arrive as a reset stream, which it
  // tells apart by the time. Such calls end with one of these codes.
  static bool GivenUp(int code);
  static std::string Name(int code);

  Usage usage() const { return process_->usage(); }
  const Usage& idle() const { return idle_; }
  std::string log() const { return process_->log(); }
  // Ends the server: its exit status, which in a build with the address
  // sanitizer says whether it leaked; -1 after kHangLimit.
  int Stop();

 private:
  explicit Soak(std::unique_ptr<ServerProcess> process)
      : process_(std::move(process)) {}

  void Load(const std::vector<std::string>& targets, MixedLoad::Mix mix,
            int calls);

  std::unique_ptr<ServerProcess> process_;
  Counts seen_ = {};
  Usage idle_;
};

// "4.1 MiB resident, ..."
std::string Text(const Usage& usage);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_SOAK_H_
