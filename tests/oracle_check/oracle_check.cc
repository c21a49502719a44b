// oracle_check: how far a server's results are from the float64 oracle, next
// to how far a plain f32 computation of the same is, and from what a model
// computed itself.
//
//   oracle_check DATA RESULTS [--all|--forward]
//
// DATA holds q, k, v, d_o and the model's own o, lse, dq, dk, dv (.npy, f32);
// RESULTS any of o, lse, dq, dk, dv, but at least one; with --all every one,
// with --forward o and lse.
// Gradients are taken to have been computed from the o and lse in RESULTS.
// Exits with 1 when a result is further from the oracle than the service's
// contract allows:
//   max <= 2 x plain's + one rounding,  RMS <= 1.5 x plain's + one rounding
// or when the model's own values are.

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/attnctl/npy.h"
#include "kernels/attention.h"
#include "kernels/reference/reference.h"

namespace attnd {
namespace {

struct Array {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

absl::StatusOr<Array> ReadF32(const std::string& path) {
  absl::StatusOr<client::NpyArray> file = client::ReadNpy(path);
  if (!file.ok()) return file.status();
  if (file->type != client::NpyType::kF32) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not float32"));
  }
  Array array{file->shape, std::vector<float>(file->data.size() / 4)};
  std::memcpy(array.values.data(), file->data.data(), file->data.size());
  return array;
}

ConstTensorView View(const Array& a) {
  return {a.values.data(), DType::kF32, a.shape[1] * a.shape[2] * a.shape[3],
          a.shape[2] * a.shape[3], a.shape[3]};
}
TensorView View(Array& a) {
  return {a.values.data(), DType::kF32, a.shape[1] * a.shape[2] * a.shape[3],
          a.shape[2] * a.shape[3], a.shape[3]};
}
template <typename ArrayType>
auto Rows(ArrayType& a) {
  return BasicRowView<std::remove_pointer_t<decltype(a.values.data())>>{
      a.values.data(), a.shape[1] * a.shape[2], a.shape[2]};
}

struct Error {
  double max = 0, rms = 0;
};

Error Distance(const std::vector<float>& a, const std::vector<double>& b) {
  Error error;
  for (size_t i = 0; i < a.size(); ++i) {
    const double e = std::abs(a[i] - b[i]);
    error.max = std::max(error.max, e);
    error.rms += e * e;  // NaN stays in it
  }
  error.rms = std::sqrt(error.rms / double(a.size()));
  return error;
}

// Whether a result is as near as the contract asks.
bool Within(const Error& error, const Error& plain,
            const std::vector<double>& exact) {
  double largest = 0, squares = 0;
  for (double e : exact) {
    largest = std::max(largest, std::abs(e));
    squares += e * e;
  }
  const double unit = 0x1p-24;
  const double rms = std::sqrt(squares / double(exact.size()));
  return error.max <= 2 * plain.max + unit * largest &&
         error.rms <= 1.5 * plain.rms + unit * rms;
}

class Check {
 public:
  using Names = std::vector<const char*>;

  // None of `required` may be missing from `results`.
  Check(std::string data, std::string results, Names required)
      : data_(std::move(data)),
        results_(std::move(results)),
        required_(std::move(required)) {}

  // Reads DATA and computes what results are compared with.
  absl::Status Prepare();
  // Compares what there is; prints a table.
  absl::Status Compare(bool& agrees);

 private:
  absl::Status CheckPresence() const;
  bool HasResult(const char* name) const {
    return std::filesystem::exists(Result(name));
  }
  std::string Data(const char* name) const {
    return absl::StrCat(data_, "/", name, ".npy");
  }
  std::string Result(const char* name) const {
    return absl::StrCat(results_, "/", name, ".npy");
  }
  absl::Status Read(const std::string& path, int rank, Array& array);
  absl::Status ComputeForward();
  absl::Status ComputeBackward();
  absl::Status CompareOne(const char* name, const Array& plain,
                          const std::vector<double>& exact, bool& agrees);

  const std::string data_, results_;
  const Names required_;
  Array q_, k_, v_;
  std::vector<KvSegment> segments_;
  Problem problem_;
  Array plain_o_, plain_lse_, plain_dq_, plain_dk_, plain_dv_;
  reference::ExactForward forward_;
  reference::ExactBackward backward_;
};

absl::Status Check::Read(const std::string& path, int rank, Array& array) {
  absl::StatusOr<Array> read = ReadF32(path);
  if (!read.ok()) return read.status();
  if (read->shape.size() != rank || read->values.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a filled array of rank ", rank));
  }
  array = *std::move(read);
  return absl::OkStatus();
}

absl::Status Check::CheckPresence() const {
  for (const char* name : required_) {
    if (!HasResult(name)) {
      return absl::NotFoundError(absl::StrCat(Result(name), ": missing"));
    }
  }
  for (const char* name : {"o", "lse", "dq", "dk", "dv"}) {
    if (HasResult(name)) return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat(results_, ": no results"));
}

absl::Status Check::Prepare() {
  if (absl::Status s = CheckPresence(); !s.ok()) return s;
  if (absl::Status s = Read(Data("q"), 4, q_); !s.ok()) return s;
  if (absl::Status s = Read(Data("k"), 4, k_); !s.ok()) return s;
  if (absl::Status s = Read(Data("v"), 4, v_); !s.ok()) return s;
  if (q_.shape[0] != k_.shape[0] || q_.shape[3] != k_.shape[3] ||
      q_.shape[2] % k_.shape[2] != 0 || k_.shape[0] != v_.shape[0] ||
      k_.shape[1] != v_.shape[1] || k_.shape[2] != v_.shape[2]) {
    return absl::InvalidArgumentError(
        absl::StrCat(data_, ": the shapes of q, k and v disagree"));
  }
  problem_.batch = q_.shape[0];
  problem_.q_len = q_.shape[1];
  problem_.q_heads = q_.shape[2];
  problem_.kv_heads = k_.shape[2];
  problem_.head_dim = q_.shape[3];
  problem_.value_dim = v_.shape[3];
  problem_.scale = float(1 / std::sqrt(double(problem_.head_dim)));
  problem_.q = View(std::as_const(q_));
  segments_.resize(1);
  segments_[0].k = View(std::as_const(k_));
  segments_[0].v = View(std::as_const(v_));
  segments_[0].len = k_.shape[1];
  problem_.kv = segments_;
  if (absl::Status s = ComputeForward(); !s.ok()) return s;
  const bool backward = HasResult("dq") || HasResult("dk") || HasResult("dv");
  return backward ? ComputeBackward() : absl::OkStatus();
}

Array Zeros(std::vector<int64_t> shape) {
  int64_t elements = 1;
  for (int64_t dim : shape) elements *= dim;
  return {std::move(shape), std::vector<float>(elements)};
}

absl::Status Check::ComputeForward() {
  plain_o_ = Zeros(
      {problem_.batch, problem_.q_len, problem_.q_heads, problem_.value_dim});
  plain_lse_ = Zeros({problem_.batch, problem_.q_heads, problem_.q_len});
  ForwardArgs args{problem_, View(plain_o_), Rows(plain_lse_)};
  forward_ = reference::OracleForward(problem_);
  return reference::Forward(args, Algorithm::kNaive);
}

absl::Status Check::ComputeBackward() {
  Array d_o, o, lse;
  if (absl::Status s = Read(Data("d_o"), 4, d_o); !s.ok()) return s;
  if (absl::Status s = Read(Result("o"), 4, o); !s.ok()) return s;
  if (absl::Status s = Read(Result("lse"), 3, lse); !s.ok()) return s;
  if (d_o.shape != plain_o_.shape || o.shape != plain_o_.shape ||
      lse.shape != plain_lse_.shape) {
    return absl::InvalidArgumentError(
        "the shapes of d_o, o or lse disagree with q and v");
  }
  plain_dq_ = Zeros(q_.shape);
  plain_dk_ = Zeros(k_.shape);
  plain_dv_ = Zeros(v_.shape);
  BackwardArgs args;
  args.problem = problem_;
  args.d_o = View(std::as_const(d_o));
  args.o = View(std::as_const(o));
  args.lse = Rows(std::as_const(lse));
  args.dq = View(plain_dq_);
  segments_[0].dk = View(plain_dk_);
  segments_[0].dv = View(plain_dv_);
  backward_ = reference::OracleBackward(args);
  return reference::Backward(args, Algorithm::kNaive);
}

absl::Status Check::CompareOne(const char* name, const Array& plain,
                               const std::vector<double>& exact, bool& agrees) {
  if (!HasResult(name)) return absl::OkStatus();
  const int rank = int(plain.shape.size());
  Array result, model;
  if (absl::Status s = Read(Result(name), rank, result); !s.ok()) return s;
  if (absl::Status s = Read(Data(name), rank, model); !s.ok()) return s;
  if (result.shape != plain.shape || model.shape != plain.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has another shape than [",
                     absl::StrJoin(plain.shape, ", "), "]"));
  }
  const std::vector<double> own(model.values.begin(), model.values.end());
  const Error to_model = Distance(result.values, own);
  const Error error = Distance(result.values, exact);
  const Error plain_error = Distance(plain.values, exact);
  const bool good = Within(error, plain_error, exact) &&
                    Within(Distance(model.values, exact), plain_error, exact);
  agrees &= good;
  std::printf("  %-4s %10.2e %12.2e %10.2e %12.2e %10.2e   %s\n", name,
              to_model.max, error.max, plain_error.max, error.rms,
              plain_error.rms, good ? "agrees" : "DISAGREES");
  return absl::OkStatus();
}

absl::Status Check::Compare(bool& agrees) {
  std::printf("  %-4s %10s %12s %10s %12s %10s\n", "", "to model", "to oracle",
              "plain f32", "RMS", "plain f32");
  const std::vector<double> none;
  const auto first = [&none](const std::vector<std::vector<double>>& segments) {
    return segments.empty() ? none : segments[0];
  };
  absl::Status s = CompareOne("o", plain_o_, forward_.o, agrees);
  if (s.ok()) s = CompareOne("lse", plain_lse_, forward_.lse, agrees);
  if (s.ok()) s = CompareOne("dq", plain_dq_, backward_.dq, agrees);
  if (s.ok()) s = CompareOne("dk", plain_dk_, first(backward_.dk), agrees);
  if (s.ok()) s = CompareOne("dv", plain_dv_, first(backward_.dv), agrees);
  return s;
}

int Run(const std::string& data, const std::string& results,
        const Check::Names& required) {
  Check check(data, results, required);
  bool agrees = true;
  absl::Status status = check.Prepare();
  if (status.ok()) status = check.Compare(agrees);
  if (!status.ok()) {
    std::cerr << "oracle_check: " << status.message() << "\n";
    return 1;
  }
  return agrees ? 0 : 1;
}

}  // namespace
}  // namespace attnd

int main(int argc, char** argv) {
  attnd::Check::Names required;
  const std::string flag = argc == 4 ? argv[3] : "";
  if (flag == "--all") required = {"o", "lse", "dq", "dk", "dv"};
  if (flag == "--forward") required = {"o", "lse"};
  if (argc != 3 && required.empty()) {
    std::cerr
        << "usage: oracle_check DATA RESULTS [--all|--forward]\n"
           "Compares .npy results with the float64 oracle and with the "
           "model's own values in DATA. With --all none may be missing, with "
           "--forward neither o nor lse.\n";
    return 2;
  }
  return attnd::Run(argv[1], argv[2], required);
}
