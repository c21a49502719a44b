#include "proto/wire/place.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "proto/wire/status.h"

namespace attnd::wire {

std::string PathOf(const Place* place) {
  if (place == nullptr) return "";
  std::string path = PathOf(place->outer);
  if (!path.empty()) path += '.';
  return path + place->rules->field->name();
}

absl::Status ErrorAt(const Place* place, absl::string_view description) {
  if (place == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("message: ", description));
  }
  return FieldError(PathOf(place), description);
}

}  // namespace attnd::wire
