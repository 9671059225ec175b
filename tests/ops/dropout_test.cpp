#include "dtrain/ops/host/dropout.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "reference.hpp"

using namespace dtrain;
using test::Tensor;

TEST_CASE_TEMPLATE("an element is kept iff its uniform number is at least p, and scaled by 1/(1-p)", T, float, double,
                   dtrain::bfloat16, dtrain::float16) {
  const RandomStream stream(1, hash_name("dropout"), 3);
  for (const Index threads : {1, 2})
    for (const double p : {0.0, 0.1, 0.5, 0.999})
      for (const Index width : {1, 3, 97, 300}) {
        Host device({.threads = threads});
        const Index rows = 90, first_row = 5, first_column = 2, total = 303;
        auto x = test::random_tensor<T>(rows, width, 1, 1);
        Tensor<T> y(rows, width, 2), dx(rows, width);
        ops::dropout_forward(device, p, stream, x.view(), y.view(), first_row, first_column, total);
        test::check_close(y, [&](Index r, Index c) {
          const auto element = static_cast<std::uint64_t>((first_row + r) * total + first_column + c);
          return stream.uniform(element) >= p ? x(r, c) / (1 - p) : 0.0;
        });
        // fault E9: the backward pass draws the mask of the forward pass again, bit for bit
        ops::dropout_backward(device, p, stream, x.view(), dx.view(), first_row, first_column, total);
        test::check_close(dx, [&](Index r, Index c) { return y(r, c); }, 0.0);
        ops::dropout_forward(device, p, stream, x.view(), x.view(), first_row, first_column, total);
        test::check_close(x, [&](Index r, Index c) { return y(r, c); }, 0.0);
      }
}

TEST_CASE("the mask is the same for any cut of the global matrix and differs between steps") {
  Host device;
  const Index rows = 8, width = 50;
  Tensor<float> ones(rows, width), whole(rows, width), parts(rows, width), later(rows, width);
  device.fill(ones.span(), 1.0f);
  const RandomStream stream(7, 1, 1);
  ops::dropout_forward(device, 0.5, stream, ones.view(), whole.view(), 0, 0, width);
  for (const Range r : {Range{0, 3}, Range{3, 8}})
    for (const Range c : {Range{0, 21}, Range{21, 50}})
      ops::dropout_forward(device, 0.5, stream, ones.view().row_range(r).column_range(c),
                           parts.view().row_range(r).column_range(c), r.begin, c.begin, width);
  CHECK(parts.elements == whole.elements);
  ops::dropout_forward(device, 0.5, RandomStream(7, 1, 2), ones.view(), later.view(), 0, 0, width);
  CHECK(later.elements != whole.elements);
}

TEST_CASE("probabilities outside [0, 1) are refused") {
  Host device;
  Tensor<float> x(1, 4);
  for (const double p : {-0.1, 1.0, 2.0, std::nan("")})
    CHECK_THROWS_AS(ops::dropout_forward(device, p, RandomStream(), x.view(), x.view(), 0, 0, 4), Error);
}
