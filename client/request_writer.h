#ifndef ATTND_CLIENT_REQUEST_WRITER_H_
#define ATTND_CLIENT_REQUEST_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "attnd/client.h"
#include "client/messages.h"
#include "client/placement.h"
#include "google/protobuf/message.h"
#include "proto/wire/codec.h"
#include "proto/wire/fields.h"

namespace attnd::client {

// Fills a request's tensor and output fields, by their numbers, and keeps the
// first thing wrong with them; names come from the schema.
class RequestWriter {
 public:
  using Shape = std::vector<int64_t>;

  virtual ~RequestWriter() = default;

  void Input(int field, const ConstTensor& tensor);
  // `expected`: the shape that the inputs give it; empty: unknown.
  void Wanted(int field, const Tensor& tensor, const Shape& expected);
  // The first thing wrong.
  const absl::Status& status() const { return status_; }

  struct PlacedOutput {
    bool streamed = false;
    int64_t bytes = 0;
  };
  // In the order in which they were wanted.
  const std::vector<PlacedOutput>& outputs() const { return outputs_; }

 protected:
  // `placement`, which outlives it, says what goes by reference. All other
  // tensors of a direction have at most `max_bytes`, which has `limit_name`.
  RequestWriter(google::protobuf::Message& request, const Placement& placement,
                int64_t max_bytes, absl::string_view limit_name)
      : fields_(request),
        placement_(placement),
        max_bytes_(max_bytes),
        limit_name_(limit_name) {}

  wire::Fields& fields() { return fields_; }

 private:
  // Where the tensor's bytes are, once its type and shape are filled in.
  virtual void Place(int field, absl::string_view bytes) = 0;
  // The same of an output that is wanted; whether it comes in chunks.
  virtual bool PlaceOutput(int field, int64_t bytes) = 0;

  const std::string& Name(int field) const { return fields_.Name(field); }
  int64_t Bytes(int field, DType dtype, const Shape& shape);
  // Adds to `total`, the bytes of the tensors in one direction.
  void Count(int field, const Shape& shape, const void* data, int64_t bytes,
             const char* message, int64_t& total);

  wire::Fields fields_;
  const Placement& placement_;
  const int64_t max_bytes_;
  const absl::string_view limit_name_;
  int64_t sent_bytes_ = 0;
  int64_t received_bytes_ = 0;
  std::vector<PlacedOutput> outputs_;
  absl::Status status_;
};

// Of a unary call: all tensors are in the message, or in regions.
class UnaryWriter final : public RequestWriter {
 public:
  UnaryWriter(google::protobuf::Message& request, const Placement& placement,
              int64_t max_message_bytes)
      : RequestWriter(request, placement, max_message_bytes,
                      "max_message_bytes") {}

  const std::vector<wire::TensorData>& data() const { return data_; }

 private:
  void Place(int field, absl::string_view bytes) override;
  bool PlaceOutput(int, int64_t) override { return false; }

  std::vector<wire::TensorData> data_;
};

// Of an Exchange: small tensors are in its header or its response, and others
// travel in chunks, unless they are in regions. No limit but that int64 can
// count them.
class ExchangeWriter final : public RequestWriter {
 public:
  ExchangeWriter(google::protobuf::Message& request, const Placement& placement)
      : RequestWriter(request, placement, int64_t{1} << 62,
                      "what can be counted") {}

  std::vector<StreamedInput>& inputs() { return inputs_; }

 private:
  void Place(int field, absl::string_view bytes) override;
  bool PlaceOutput(int field, int64_t bytes) override;
  // Whether a tensor is one of the small ones, which then leaves less `room`.
  static bool IsInline(int64_t bytes, int64_t& room);

  int64_t header_room_ = kInlineMessageBytes;
  int64_t response_room_ = kInlineMessageBytes;
  std::vector<StreamedInput> inputs_;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_REQUEST_WRITER_H_
