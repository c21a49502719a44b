#include "server/admin/html.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace attnd::server {

std::string EscapeHtml(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"},
                                    {"<", "&lt;"},
                                    {">", "&gt;"},
                                    {"\"", "&quot;"},
                                    {"'", "&#39;"}});
}

HtmlTable::HtmlTable(std::initializer_list<absl::string_view> columns) {
  for (const absl::string_view column : columns) {
    absl::StrAppend(&head_, "<th>", EscapeHtml(column), "</th>");
  }
}

void HtmlTable::Row(const std::vector<std::string>& cells) {
  absl::StrAppend(&rows_, "<tr>");
  for (const std::string& cell : cells) {
    absl::StrAppend(&rows_, "<td>", EscapeHtml(cell), "</td>");
  }
  absl::StrAppend(&rows_, "</tr>\n");
}

std::string HtmlTable::Html(absl::string_view nothing) const {
  if (rows_.empty()) return absl::StrCat("<p>", EscapeHtml(nothing), "</p>\n");
  return absl::StrCat("<table>\n<tr>", head_, "</tr>\n", rows_, "</table>\n");
}

void HtmlList::Add(absl::string_view name, absl::string_view value) {
  absl::StrAppend(&rows_, "<tr><th>", EscapeHtml(name), "</th><td>",
                  EscapeHtml(value), "</td></tr>\n");
}

std::string HtmlList::Html() const {
  return absl::StrCat("<table>\n", rows_, "</table>\n");
}

}  // namespace attnd::server
