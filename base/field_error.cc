#include "base/field_error.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace attnd {
namespace {

// Appends one length-delimited protobuf field.
void AppendField(int number, absl::string_view bytes, std::string& out) {
  out.push_back(static_cast<char>(number << 3 | 2));
  size_t size = bytes.size();
  for (; size >= 0x80; size >>= 7)
    out.push_back(static_cast<char>(size | 0x80));
  out.push_back(static_cast<char>(size));
  out.append(bytes.data(), bytes.size());
}

}  // namespace

void AddFieldViolation(absl::string_view field, absl::string_view description,
                       absl::Status& status) {
  // BadRequest { repeated FieldViolation field_violations = 1 },
  // FieldViolation { string field = 1; string description = 2 }.
  std::string violation;
  AppendField(1, field, violation);
  AppendField(2, description, violation);
  std::string bad_request;
  AppendField(1, violation, bad_request);
  absl::Cord payload = status.GetPayload(kBadRequestUrl).value_or(absl::Cord());
  payload.Append(bad_request);
  status.SetPayload(kBadRequestUrl, payload);
}

absl::Status FieldError(absl::string_view field,
                        absl::string_view description) {
  absl::Status status =
      absl::InvalidArgumentError(absl::StrCat(field, ": ", description));
  AddFieldViolation(field, description, status);
  return status;
}

}  // namespace attnd
