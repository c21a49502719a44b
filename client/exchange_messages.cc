#include "client/exchange_messages.h"

#include <optional>
#include <utility>

#include "attn/v1/attention.pb.h"
#include "client/bad_response.h"
#include "proto/wire/codec.h"
#include "proto/wire/wire_format.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;
using Request = v1::ExchangeRequest;
using Response = v1::ExchangeResponse;
using wire::WireType;

Pieces Whole(const Request& request) {
  Pieces pieces(1);
  pieces[0].owned = request.SerializeAsString();
  return pieces;
}

void AppendNumber(int field, uint64_t value, std::string& out) {
  wire::AppendTag({field, WireType::kVarint}, out);
  wire::AppendVarint(value, out);
}

// The number of the message's first field; 0: it has none that can be read.
int FirstField(Fragments fragments) {
  wire::Reader reader(fragments);
  wire::Tag tag;
  return reader.left() > 0 && reader.ReadTag(tag) ? tag.number : 0;
}

// A message that is nothing but a chunk, and that chunk nothing but its three
// fields, as all servers write it. Any other is left to the codec.
std::optional<ResultChunk> ReadPlainChunk(Fragments fragments) {
  wire::Reader reader(fragments);
  wire::Tag tag;
  int64_t length = 0;
  if (!reader.ReadTag(tag) || tag.number != Response::kChunkFieldNumber ||
      tag.type != WireType::kBytes || !reader.ReadLength(length) ||
      length != reader.left()) {
    return std::nullopt;
  }
  ResultChunk chunk;
  uint64_t value = 0;
  int last = 0;
  while (reader.left() > 0) {
    // In ascending order, and so each once.
    if (!reader.ReadTag(tag) || tag.number <= last) return std::nullopt;
    last = tag.number;
    if (tag.number == v1::Chunk::kDataFieldNumber) {
      if (tag.type != WireType::kBytes || !reader.ReadLength(chunk.bytes)) {
        return std::nullopt;
      }
      reader.ViewInto(chunk.pieces, chunk.bytes);
      continue;
    }
    if (tag.type != WireType::kVarint || !reader.ReadVarint(value)) {
      return std::nullopt;
    }
    if (tag.number == v1::Chunk::kTensorFieldNumber) {
      chunk.tensor = static_cast<int>(value);
    } else if (tag.number == v1::Chunk::kOffsetFieldNumber) {
      chunk.offset = static_cast<int64_t>(value);
    } else {
      return std::nullopt;
    }
  }
  return chunk;
}

ResultChunk ToChunk(const v1::Chunk& from,
                    absl::Span<const wire::TensorData> data) {
  ResultChunk chunk;
  chunk.tensor = from.tensor();
  chunk.offset = from.offset();
  for (const wire::TensorData& entry : data) {
    chunk.pieces.assign(entry.pieces.begin(), entry.pieces.end());
    chunk.bytes = entry.bytes();
  }
  return chunk;
}

MissingInputs ToMissing(const v1::Missing& from) {
  MissingInputs missing;
  for (const v1::Missing::Range& range : from.ranges()) {
    missing.ranges.push_back({range.tensor(), {range.offset(), range.bytes()}});
  }
  return missing;
}

}  // namespace

Pieces EncodeJoin(absl::string_view transfer) {
  Request request;
  request.mutable_join()->set_transfer(transfer.data(), transfer.size());
  return Whole(request);
}

Pieces EncodeChunk(const InputChunk& chunk) {
  std::string body;
  AppendNumber(v1::Chunk::kTensorFieldNumber, chunk.tensor, body);
  AppendNumber(v1::Chunk::kOffsetFieldNumber, chunk.offset, body);
  wire::AppendTag({v1::Chunk::kDataFieldNumber, WireType::kBytes}, body);
  wire::AppendVarint(chunk.bytes.size(), body);

  Pieces pieces(1);
  std::string& own = pieces[0].owned;
  wire::AppendTag({Request::kChunkFieldNumber, WireType::kBytes}, own);
  wire::AppendVarint(body.size() + chunk.bytes.size(), own);
  own += body;
  pieces[0].borrowed = chunk.bytes;
  return pieces;
}

Pieces EncodeInputsSent(int streams) {
  Request request;
  request.mutable_inputs_sent()->set_streams(streams);
  return Whole(request);
}

Pieces EncodeMissing(absl::Span<const TensorRange> ranges) {
  Request request;
  for (const TensorRange& range : ranges) {
    v1::Missing::Range& to = *request.mutable_missing()->add_ranges();
    to.set_tensor(range.tensor);
    to.set_offset(range.range.offset);
    to.set_bytes(range.range.bytes);
  }
  return Whole(request);
}

absl::StatusOr<ServerPart> ReadPart(Fragments fragments) {
  switch (FirstField(fragments)) {
    case Response::kForwardFieldNumber:
    case Response::kBackwardFieldNumber:
      return FinalResponse();
    case Response::kChunkFieldNumber:
      if (auto chunk = ReadPlainChunk(fragments)) return *std::move(chunk);
  }
  Response response;
  std::vector<wire::TensorData> data;
  const absl::Status status =
      wire::Decode(fragments, wire::UnknownFields::kIgnore, response, data);
  if (!status.ok()) {
    return BadResponse(Response::descriptor()->name(), status.message());
  }
  switch (response.part_case()) {
    case Response::kAdmitted:
      return Grant{response.admitted().transfer(),
                   response.admitted().streams(),
                   response.admitted().chunk_bytes()};
    case Response::kMissing:
      return ToMissing(response.missing());
    case Response::kChunk:
      return ToChunk(response.chunk(), data);
    case Response::kForward:
    case Response::kBackward:
      return FinalResponse();
    case Response::PART_NOT_SET:
      break;
  }
  return UnknownPart();
}

}  // namespace attnd::client
