#ifndef ATTND_TESTS_INTEGRATION_MALFORMED_RUNNER_H_
#define ATTND_TESTS_INTEGRATION_MALFORMED_RUNNER_H_

// Sends a case to a server and tells what became of it. Nothing depends on how
// fast anyone is: what a server does about a case comes before what it does
// about the bytes behind it, and a call that is to be answered is awaited.

#include <map>
#include <string>

#include "tests/integration/malformed/case.h"

namespace attnd::testing {

// Runs `c` on a connection of its own to "host:port". Of several outcomes the
// end of the connection counts first, then that of a stream. Unexpected where
// the call that follows fails though the connection lives, or nothing comes
// within kHangLimit.
Outcome OutcomeOf(const MalformedCase& c, const std::string& address);

// "", or what is wrong with `outcome` for `c`: neither expected nor what is
// listed, or listed though it was to be expected.
std::string Mismatch(const MalformedCase& c, const Outcome& outcome);

// Which cases went which way, to be printed.
class Summary {
 public:
  void Add(const MalformedCase& c, const Outcome& outcome);
  std::string ToString() const;

 private:
  struct Difference {
    int refused = 0;   // though not as the RFC says
    int accepted = 0;  // what the RFC wants refused
    std::string cases;
  };
  int as_expected_ = 0;
  int served_as_expected_ = 0;
  std::map<std::string, Difference> by_reason_;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_MALFORMED_RUNNER_H_
