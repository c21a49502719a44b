#include "server/telemetry/http_page.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "prometheus/text_serializer.h"

namespace attnd::server {
namespace {

std::string Answer(absl::string_view status, absl::string_view headers,
                   absl::string_view body, bool with_body = true) {
  return absl::StrCat(
      "HTTP/1.1 ", status, "\r\n", headers, "Content-Length: ", body.size(),
      "\r\nConnection: close\r\n\r\n", with_body ? body : absl::string_view());
}

}  // namespace

std::string RefuseHttp(absl::string_view status, absl::string_view headers) {
  return Answer(status, absl::StrCat(headers, "Content-Type: text/plain\r\n"),
                absl::StrCat(status, "\n"));
}

std::string AnswerHttp(absl::string_view head, const HttpPages& pages) {
  const absl::string_view line = head.substr(0, head.find("\r\n"));
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/")) {
    return RefuseHttp("400 Bad Request");
  }
  if (!absl::StartsWith(words[2], "HTTP/1.")) {
    return RefuseHttp("505 HTTP Version Not Supported");
  }
  absl::string_view target = words[1];
  if (absl::ConsumePrefix(&target, "http://")) {
    target.remove_prefix(std::min(target.find('/'), target.size()));
  }
  const auto found = pages.find(target.substr(0, target.find('?')));
  if (found == pages.end()) return RefuseHttp("404 Not Found");
  if (words[0] != "GET" && words[0] != "HEAD") {
    return RefuseHttp("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
  }
  const HttpPage page = found->second();
  return Answer(page.available ? "200 OK" : "503 Service Unavailable",
                absl::StrCat("Content-Type: ", page.content_type, "\r\n"),
                page.body,
                /*with_body=*/words[0] == "GET");
}

std::function<HttpPage()> MetricsPage(
    std::shared_ptr<const prometheus::Collectable> metrics) {
  return [metrics = std::move(metrics)] {
    return HttpPage{
        .content_type = "text/plain; version=0.0.4; charset=utf-8",
        .body = prometheus::TextSerializer().Serialize(metrics->Collect())};
  };
}

}  // namespace attnd::server
