// expect: dtrain: 6 heads do not divide over 4 ranks
// The harness must report that this compiles.
#ifndef DTRAIN_COMPILE_FAIL_FIXED
#endif
