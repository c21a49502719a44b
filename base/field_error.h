#ifndef ATTND_BASE_FIELD_ERROR_H_
#define ATTND_BASE_FIELD_ERROR_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attnd {

// INVALID_ARGUMENT "<field>: <description>", which remembers the field's name,
// e.g. FieldError("k.shape", "..."). On the wire it becomes a
// google.rpc.BadRequest that names the field (proto/wire/status.h).
absl::Status FieldError(absl::string_view field, absl::string_view description);

// The payload of such an error: the field's name and nothing else.
inline constexpr absl::string_view kFieldUrl = "attnd/field";

// The field that FieldError gave `status`; none for any other status. Its
// message then begins with "<field>: ", and the rest is the description.
std::optional<std::string> ErrorField(const absl::Status& status);

}  // namespace attnd

#endif  // ATTND_BASE_FIELD_ERROR_H_
