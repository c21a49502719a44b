#include "base/field_error.h"

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace attnd {

absl::Status FieldError(absl::string_view field,
                        absl::string_view description) {
  absl::Status status =
      absl::InvalidArgumentError(absl::StrCat(field, ": ", description));
  status.SetPayload(kFieldUrl, absl::Cord(field));
  return status;
}

std::optional<std::string> ErrorField(const absl::Status& status) {
  const auto payload = status.GetPayload(kFieldUrl);
  if (!payload) return std::nullopt;
  std::string field(*payload);
  // A status from the wire may have any payload beside any message.
  if (!absl::StartsWith(status.message(), absl::StrCat(field, ": "))) {
    return std::nullopt;
  }
  return field;
}

}  // namespace attnd
