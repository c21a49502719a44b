#ifndef ATTND_SERVER_TELEMETRY_FAMILIES_H_
#define ATTND_SERVER_TELEMETRY_FAMILIES_H_

// Prometheus' families of what is counted elsewhere and read at every scrape.

#include <string>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"

namespace attnd::server {

class Families {
 public:
  using Label = std::pair<const char*, std::string>;

  // One metric without labels.
  void Gauge(const char* name, const char* help, double value) {
    Begin(name, help, prometheus::MetricType::Gauge);
    Add({}, value);
  }
  void Counter(const char* name, const char* help, double value) {
    Begin(name, help, prometheus::MetricType::Counter);
    Add({}, value);
  }

  // A family, and then its metrics.
  void Begin(const char* name, const char* help, prometheus::MetricType type) {
    all_.push_back({name, help, type, {}});
  }
  void Add(const std::vector<Label>& labels, double value) {
    prometheus::MetricFamily& family = all_.back();
    auto& metric = family.metric.emplace_back();
    for (const auto& [name, text] : labels)
      metric.label.push_back({name, text});
    if (family.type == prometheus::MetricType::Gauge) {
      metric.gauge.value = value;
    } else {
      metric.counter.value = value;
    }
  }

  std::vector<prometheus::MetricFamily> Take() { return std::move(all_); }

 private:
  std::vector<prometheus::MetricFamily> all_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_FAMILIES_H_
