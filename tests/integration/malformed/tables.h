#ifndef ATTND_TESTS_INTEGRATION_MALFORMED_TABLES_H_
#define ATTND_TESTS_INTEGRATION_MALFORMED_TABLES_H_

#include "tests/integration/malformed/case.h"

namespace attnd::testing {

// The parts of the table, each in a file of its own.
MalformedCases ConnectionStartCases();
MalformedCases FrameSizeCases();
MalformedCases StreamStateCases();
MalformedCases ConnectionFrameCases();  // SETTINGS, GOAWAY, windows
MalformedCases HeaderBlockCases();      // frames of a header block, and between
MalformedCases HpackCases();
MalformedCases PseudoHeaderCases();
MalformedCases HeaderCases();
MalformedCases GrpcCases();
MalformedCases ToleratedCases();  // unusual and right: these are served

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_MALFORMED_TABLES_H_
