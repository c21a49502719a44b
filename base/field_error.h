#ifndef ATTND_BASE_FIELD_ERROR_H_
#define ATTND_BASE_FIELD_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attnd {

// INVALID_ARGUMENT "<field>: <description>", with a google.rpc.BadRequest
// payload that names the field, e.g. FieldError("k.shape", "...").
absl::Status FieldError(absl::string_view field, absl::string_view description);

// The payload's type URL and the code-independent encoder behind FieldError.
inline constexpr absl::string_view kBadRequestUrl =
    "type.googleapis.com/google.rpc.BadRequest";
void AddFieldViolation(absl::string_view field, absl::string_view description,
                       absl::Status& status);

}  // namespace attnd

#endif  // ATTND_BASE_FIELD_ERROR_H_
