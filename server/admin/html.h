#ifndef ATTND_SERVER_ADMIN_HTML_H_
#define ATTND_SERVER_ADMIN_HTML_H_

// Pieces of a page of HTML. Everything that is given as text is escaped.

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace attnd::server {

// `text` as a browser shows it, whatever is in it.
std::string EscapeHtml(absl::string_view text);

// A table that grows row by row.
class HtmlTable {
 public:
  HtmlTable(std::initializer_list<absl::string_view> columns);

  void Row(const std::vector<std::string>& cells);
  // The whole of it; `nothing` in its place where it has no row.
  std::string Html(absl::string_view nothing) const;

 private:
  std::string head_, rows_;
};

// Two columns: what, and how much or which.
class HtmlList {
 public:
  void Add(absl::string_view name, absl::string_view value);
  std::string Html() const;

 private:
  std::string rows_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_ADMIN_HTML_H_
