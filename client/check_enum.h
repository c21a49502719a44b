#ifndef ATTND_CLIENT_CHECK_ENUM_H_
#define ATTND_CLIENT_CHECK_ENUM_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/wire/status.h"

namespace attnd::client {

// INVALID_ARGUMENT, naming `field`, where `value` is beyond `last`, the last
// of its enum: a number that was cast, which must not pass for a default.
template <typename Enum>
absl::Status CheckEnum(absl::string_view field, Enum value, Enum last) {
  if (value <= last) return absl::OkStatus();
  return wire::FieldError(
      field, absl::StrCat("unknown value ", static_cast<int>(value)));
}

}  // namespace attnd::client

#endif  // ATTND_CLIENT_CHECK_ENUM_H_
