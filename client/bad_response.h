#ifndef ATTND_CLIENT_BAD_RESPONSE_H_
#define ATTND_CLIENT_BAD_RESPONSE_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/wire/status.h"

namespace attnd::client {

// INTERNAL, naming `field`: messages of other servers than ours may be garbled,
// which is not the caller's INVALID_ARGUMENT.
inline absl::Status BadResponse(absl::string_view field,
                                absl::string_view description) {
  absl::Status status = absl::InternalError(
      absl::StrCat("the server's response: ", field, ": ", description));
  wire::AddFieldViolation(field, description, status);
  return status;
}

}  // namespace attnd::client

#endif  // ATTND_CLIENT_BAD_RESPONSE_H_
