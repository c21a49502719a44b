#ifndef ATTND_TESTS_SERVER_FIELD_USES_H_
#define ATTND_TESTS_SERVER_FIELD_USES_H_

// What each field of a ForwardRequest and a BackwardRequest does.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "kernels/attention.h"

namespace attnd::testing {

using google::protobuf::Message;

// One field, and what shows that it is used: set to `change` (text format, over
// the call's base request), it makes `aspect` of what is decoded `becomes`,
// which it is not before.
struct FieldUse {
  std::string path;  // in the request, "attention.q_stride"
  std::string change;
  std::string aspect;  // "status" where it is refused
  std::string becomes;
};

// What a request of `op` is.
const google::protobuf::Descriptor& TypeOf(Op op);
// Every field of it.
std::vector<FieldUse> UsesOf(Op op);
// The valid request that `use` changes.
std::unique_ptr<Message> BaseOf(Op op, const FieldUse& use);
// A status and the fields it names: "INVALID_ARGUMENT q.shape".
std::string Refusal(const absl::Status& status);

// What a request was decoded to, by aspect; of one that was refused its status
// alone, as Refusal says it.
using Aspects = std::map<std::string, std::string>;
Aspects DecodeUnary(Op op, const std::string& bytes);
// The same in the header of an Exchange. `call`: one of ForwardRequest or
// BackwardRequest.
Aspects DecodeExchanged(const Message& call);

// Those of `paths` that `others` lacks.
std::vector<std::string> OnlyIn(const std::set<std::string>& paths,
                                const std::set<std::string>& others);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_SERVER_FIELD_USES_H_
