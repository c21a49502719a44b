#include "tests/service_fuzz/in_region.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace attnd::fuzz {
namespace {

using client::BackwardCall;
using client::CallOptions;
using client::ConstTensor;
using client::DType;
using client::ForwardCall;
using client::Region;
using client::Report;
using client::Tensor;

int64_t BytesOf(DType dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = client::SizeOf(dtype);
  for (int64_t dim : shape) bytes *= dim;
  return bytes;
}

// A call's tensors, some of them in a region for as long as this lives.
class Moved {
 public:
  Moved(Region& region, const RegionCopies& copies)
      : region_(region), copies_(copies) {}
  ~Moved() {
    for (const Tensor& tensor : taken_) region_.Free(tensor);
  }

  void In(ConstTensor& tensor) {
    if (tensor.shape.empty() || !Moves(tensor.shape)) return;
    if (const auto place = Take(tensor.dtype, tensor.shape)) {
      const int64_t bytes = BytesOf(tensor.dtype, tensor.shape);
      if (bytes > 0) copies_.in(place, tensor.data, bytes);
      tensor.data = place;
    }
  }
  void Out(Tensor& tensor) {
    if (tensor.shape.empty() || !Moves(tensor.shape)) return;
    if (const auto place = Take(tensor.dtype, tensor.shape)) {
      const int64_t bytes = BytesOf(tensor.dtype, tensor.shape);
      // What it holds is NaN, as whoever asked for it has filled it.
      if (bytes > 0) copies_.in(place, tensor.data, bytes);
      results_.push_back({tensor.data, place, bytes});
      tensor.data = place;
    }
  }

  absl::Status Back(const Report& report) {
    if (!status_.ok()) return status_;
    if (!report.fallback.empty()) return absl::InternalError(report.fallback);
    if (moved_bytes_ > 0 && report.transport == client::TransportKind::kUnary) {
      return absl::InternalError("nothing travelled by reference");
    }
    for (const Result& result : results_) {
      if (result.bytes > 0) copies_.out(result.to, result.from, result.bytes);
    }
    return absl::OkStatus();
  }

 private:
  struct Result {
    void* to;
    const void* from;
    int64_t bytes;
  };

  // Three of four.
  bool Moves(const std::vector<int64_t>& shape) {
    uint64_t hash = ++seen_ * 7;
    for (int64_t dim : shape) hash = hash * 31 + static_cast<uint64_t>(dim);
    return (hash ^ hash >> 7) % 4 != 0;
  }
  void* Take(DType dtype, const std::vector<int64_t>& shape) {
    absl::StatusOr<Tensor> place = region_.Allocate(dtype, shape);
    if (!place.ok()) {
      status_.Update(absl::InternalError(place.status().message()));
      return nullptr;
    }
    taken_.push_back(*place);
    moved_bytes_ += BytesOf(dtype, shape);
    return place->data;
  }

  Region& region_;
  const RegionCopies& copies_;
  uint64_t seen_ = 0;
  absl::Status status_;
  int64_t moved_bytes_ = 0;  // a tensor without any travels in the message
  std::vector<Tensor> taken_;
  std::vector<Result> results_;
};

class RegionClient final : public client::Client {
 public:
  RegionClient(std::unique_ptr<client::Client> client,
               std::shared_ptr<Region> region, RegionCopies copies)
      : client_(std::move(client)),
        region_(std::move(region)),
        copies_(std::move(copies)) {
    client_->AddRegion(region_);
  }

  absl::StatusOr<Report> Forward(const ForwardCall& call,
                                 const CallOptions& options) override {
    ForwardCall moved = call;
    Moved tensors(*region_, copies_);
    for (ConstTensor* t : {&moved.q, &moved.k, &moved.v, &moved.bias}) {
      tensors.In(*t);
    }
    for (Tensor* t : {&moved.o, &moved.lse}) tensors.Out(*t);
    return Finish(client_->Forward(moved, options), tensors);
  }

  absl::StatusOr<Report> Backward(const BackwardCall& call,
                                  const CallOptions& options) override {
    BackwardCall moved = call;
    Moved tensors(*region_, copies_);
    for (ConstTensor* t :
         {&moved.q, &moved.k, &moved.v, &moved.bias, &moved.d_o, &moved.lse,
          &moved.o, &moved.delta, &moved.d_lse}) {
      tensors.In(*t);
    }
    for (Tensor* t : {&moved.dq, &moved.dk, &moved.dv}) tensors.Out(*t);
    return Finish(client_->Backward(moved, options), tensors);
  }

  std::function<void()> ForwardAsync(const ForwardCall& call,
                                     const CallOptions& options,
                                     Callback done) override {
    return client_->ForwardAsync(call, options, std::move(done));
  }
  std::function<void()> BackwardAsync(const BackwardCall& call,
                                      const CallOptions& options,
                                      Callback done) override {
    return client_->BackwardAsync(call, options, std::move(done));
  }
  void AddRegion(std::shared_ptr<Region> region) override {
    client_->AddRegion(std::move(region));
  }
  void RemoveRegion(const std::shared_ptr<Region>& region) override {
    client_->RemoveRegion(region);
  }
  absl::StatusOr<client::ServerInfo> GetServerInfo(
      const CallOptions& options) override {
    return client_->GetServerInfo(options);
  }
  absl::Status CheckHealth(const std::string& service,
                           const CallOptions& options) override {
    return client_->CheckHealth(service, options);
  }

 private:
  static absl::StatusOr<Report> Finish(absl::StatusOr<Report> report,
                                       Moved& tensors) {
    if (!report.ok()) return report;
    if (absl::Status status = tensors.Back(*report); !status.ok()) {
      return status;
    }
    return report;
  }

  const std::unique_ptr<client::Client> client_;
  const std::shared_ptr<Region> region_;
  const RegionCopies copies_;
};

}  // namespace

RegionCopies HostCopies() {
  const auto copy = [](void* to, const void* from, int64_t bytes) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  };
  return {copy, copy};
}

std::unique_ptr<client::Client> InRegion(std::unique_ptr<client::Client> client,
                                         std::shared_ptr<Region> region,
                                         RegionCopies copies) {
  return std::make_unique<RegionClient>(std::move(client), std::move(region),
                                        std::move(copies));
}

}  // namespace attnd::fuzz
