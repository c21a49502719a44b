#include "tests/proto/fuzz/check.h"

#include <cstdint>
#include <random>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/wire/status.h"
#include "tests/proto/plain.h"

namespace attnd::wire::testing {
namespace {

absl::Status CheckStatus(absl::string_view bytes) {
  absl::Status status;
  if (!DecodeStatus(bytes, status).ok()) return absl::OkStatus();
  FieldViolations(status);
  RetryDelay(status);
  absl::Status again;
  const absl::Status read = DecodeStatus(EncodeStatus(status), again);
  if (read.ok() && again == status) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("status changes: ", absl::BytesToHexString(bytes)));
}

}  // namespace

absl::Status CheckFuzzInput(absl::string_view input) {
  if (input.empty()) return absl::OkStatus();
  static const auto& types = *new std::vector<const Message*>(AllTypes());
  const size_t kind = static_cast<uint8_t>(input[0]) % (types.size() + 1);
  const absl::string_view bytes = input.substr(1);
  if (kind == types.size()) return CheckStatus(bytes);
  std::mt19937_64 random(input.size());  // the same cuts on every replay
  return CheckAgainstGenerated(*types[kind], bytes, random);
}

}  // namespace attnd::wire::testing
