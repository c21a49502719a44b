#ifndef ATTND_SERVER_ADMIN_JSON_H_
#define ATTND_SERVER_ADMIN_JSON_H_

// Writes JSON, indented by two.

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace attnd::server {

// Members are written in the order of the calls. What is opened is closed.
class JsonWriter {
 public:
  JsonWriter() { Open("", '{'); }

  // `name` is empty for the elements of an array.
  void Object(absl::string_view name) { Open(name, '{'); }
  void Array(absl::string_view name) { Open(name, '['); }
  void Close();
  void Add(absl::string_view name, absl::string_view text);
  void Add(absl::string_view name, const char* text) {
    Add(name, absl::string_view(text));
  }
  void Add(absl::string_view name, bool value) {
    Value(name, value ? "true" : "false");
  }
  void Add(absl::string_view name, int64_t value);
  void Add(absl::string_view name, int value) { Add(name, int64_t{value}); }
  // A number that is not finite is null.
  void Add(absl::string_view name, double value);

  // Closes what is open, and ends.
  std::string Take();

 private:
  void Open(absl::string_view name, char bracket);
  void Value(absl::string_view name, absl::string_view value);
  // The next line, and its name.
  void Begin(absl::string_view name);

  std::string text_;
  std::string closing_;  // brackets, the innermost last
  bool first_ = true;    // in the innermost
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_ADMIN_JSON_H_
