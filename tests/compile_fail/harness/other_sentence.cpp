// expect: dtrain: the heads do not divide over the ranks
// The harness must report that the sentence was not printed: the failure is another one.
#ifndef DTRAIN_COMPILE_FAIL_FIXED
static_assert(sizeof(int) == 0, "dtrain: the width does not divide over the ranks");
#endif
