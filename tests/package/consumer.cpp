// A user's program: the umbrella header alone, and a call that needs BLAS to be linked.
#include <cblas.h>

#include <dtrain/dtrain.hpp>

namespace dt = dtrain;

int main() {
  const float one[2] = {3.0f, 4.0f};
  const bool blas_works = cblas_sdot(2, one, 1, one, 1) == 25.0f;
  const bool shares_work = dt::even_share(10, 4, 1) == dt::Range{3, 6};
  return blas_works && shares_work ? 0 : 1;
}
