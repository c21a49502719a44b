#include "proto/wire/metadata.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace attnd::wire {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;

}  // namespace

bool IsRequestId(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxRequestIdBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(c) || absl::StrContains("._:-", c);
         });
}

}  // namespace attnd::wire
