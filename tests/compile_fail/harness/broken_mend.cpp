// expect: dtrain: the heads do not divide over the ranks
// The harness must report that the mended form does not compile either.
#ifndef DTRAIN_COMPILE_FAIL_FIXED
#endif
static_assert(sizeof(int) == 0, "dtrain: the heads do not divide over the ranks");
