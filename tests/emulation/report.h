#ifndef ATTND_TESTS_EMULATION_REPORT_H_
#define ATTND_TESTS_EMULATION_REPORT_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/emulation/block.h"

namespace attnd::emulation {

// What each thread of the blocks waits for, neighbours together: what to look
// at when a launch has failed.
std::string Describe(absl::Span<Block* const> blocks);

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_REPORT_H_
