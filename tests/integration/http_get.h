#ifndef ATTND_TESTS_INTEGRATION_HTTP_GET_H_
#define ATTND_TESTS_INTEGRATION_HTTP_GET_H_

#include <optional>
#include <string>

namespace attnd::testing {

// The body of http://127.0.0.1:`port``path`; empty when there is none, or
// nothing comes within kHangLimit.
std::string HttpGet(int port, const std::string& path);

// The value of the series `series`, spelled as Prometheus' text format does
// ("attnd_account_bytes"), in `text`.
std::optional<double> MetricValue(const std::string& text,
                                  const std::string& series);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_HTTP_GET_H_
