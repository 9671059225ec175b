// The harness must report that this expects nothing.
#ifndef DTRAIN_COMPILE_FAIL_FIXED
static_assert(sizeof(int) == 0);
#endif
