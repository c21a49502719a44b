#ifndef ATTND_TESTS_SERVICE_FUZZ_ENTRIES_H_
#define ATTND_TESTS_SERVICE_FUZZ_ENTRIES_H_

// What tensors are filled with.

#include <functional>
#include <string>

#include "tests/service_fuzz/problem.h"
#include "tests/service_fuzz/random.h"

namespace attnd::fuzz {

enum class Entries {
  kNormal,
  kConstant,        // all one value
  kTokenConstants,  // a few values, one to a token
  kOneHot,          // one element of a token
  kSubnormal,       // multiples of the type's least, below its least normal
  kOutlier,         // normal, but for one token that is far larger
  kSparse,          // normal, most elements 0
};
const char* Name(Entries entries);

// Calls fill(b, t, h, i) for every token within its sequence's length; i is its
// first element in a tensor of `dim` elements to a token.
void ForEachToken(const FuzzProblem& problem, bool of_q, int64_t heads,
                  int64_t dim,
                  const std::function<void(int64_t b, int64_t t, int64_t h,
                                           int64_t i)>& fill);

// A tensor [.., dim] of q's or of k's tokens whose elements are about as large
// as `magnitude`. What lies past a sequence's length is NaN.
Buffer Fill(const FuzzProblem& problem, bool of_q, DType dtype, int64_t dim,
            Entries entries, double magnitude, Random& random);

// Scores that are given: K has score / (scale q) in one dimension, in which all
// of Q is alike, and rows' maxima jump by 0 to 400 at or near tiles' ends.
// Fills Q and K.
void FillJumps(FuzzProblem& problem, double scale, Random& random);

// Scores in and out of f32's range: by the scale, which it gives back, or, with
// `scale`, by q . k itself, which f16 does not have. Q and K have one dimension
// that is not 0, and powers of 2 in it, none of whose products is near the
// range's end. Fills Q and K.
double FillOutOfRange(FuzzProblem& problem, double scale, Random& random);

// The largest |element|, NaN aside.
double Most(const Buffer& tensor);
// Multiplies all elements.
void Scale(Buffer& tensor, double factor);
// The least normal and the largest values that are drawn.
double LeastNormal(DType dtype);
double MostDrawn(DType dtype);

}  // namespace attnd::fuzz

#endif  // ATTND_TESTS_SERVICE_FUZZ_ENTRIES_H_
