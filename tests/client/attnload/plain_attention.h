#ifndef ATTND_TESTS_CLIENT_ATTNLOAD_PLAIN_ATTENTION_H_
#define ATTND_TESTS_CLIENT_ATTNLOAD_PLAIN_ATTENTION_H_

#include "client/attnload/payload.h"

namespace attnd::attnload {

// A small attention of its own, in float, outputs rounded to the type: what
// any server that is right may answer. For small shapes.
// `scale_factor` other than 1 makes it wrong: it multiplies attention's scale.
void ComputePlainly(const Payload& payload, Answer& answer,
                    double scale_factor = 1);

}  // namespace attnd::attnload

#endif  // ATTND_TESTS_CLIENT_ATTNLOAD_PLAIN_ATTENTION_H_
