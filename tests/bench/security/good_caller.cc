#include "tests/bench/security/good_caller.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"

namespace attnd::bench {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);

client::ClientOptions OptionsOf(client::TlsOptions tls) {
  client::ClientOptions options;
  options.tls = std::move(tls);
  // A failure is to be seen.
  options.max_attempts = 1;
  return options;
}

}  // namespace

GoodCaller::GoodCaller(const std::string& target, client::TlsOptions tls)
    : target_(target),
      options_(OptionsOf(std::move(tls))),
      kept_(target, options_) {}

GoodCalls GoodCaller::CallFor(absl::Duration time) {
  GoodCalls calls;
  const absl::Time end = MonotonicNow() + time;
  while (MonotonicNow() < end) {
    Time(&kept_, calls.kept_ms, calls);
    Time(nullptr, calls.fresh_ms, calls);
  }
  return calls;
}

void GoodCaller::Time(SmallestCaller* kept, std::vector<double>& to,
                      GoodCalls& calls) {
  const absl::Time start = MonotonicNow();
  std::optional<SmallestCaller> fresh;
  if (kept == nullptr) kept = &fresh.emplace(target_, options_);
  client::CallOptions options;
  options.timeout = kTimeout;
  const absl::Status status = kept->Call(options);
  to.push_back(absl::ToDoubleMilliseconds(MonotonicNow() - start));
  if (status.ok()) return;
  if (calls.failed++ == 0) calls.first_error = status.ToString();
}

}  // namespace attnd::bench
