// expect: dtrain: the heads do not divide over the ranks
// expect: Divides<6, 5>
// The harness must report that the numbers were not printed: they are 6 and 4.
template <int Heads, int Ranks>
concept Divides = Heads % Ranks == 0;

template <int Heads, int Ranks>
struct Attention {
  static_assert(Divides<Heads, Ranks>, "dtrain: the heads do not divide over the ranks");
};

#ifndef DTRAIN_COMPILE_FAIL_FIXED
template struct Attention<6, 4>;
#endif
