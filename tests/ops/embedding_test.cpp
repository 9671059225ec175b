#include "dtrain/ops/host/embedding.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "reference.hpp"

using namespace dtrain;
using test::Tensor;

namespace {

std::vector<std::int32_t> some_tokens(Index count, Index vocabulary) {
  std::vector<std::int32_t> tokens;
  for (Index i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(RandomStream(5, 6).bits(static_cast<std::uint64_t>(i)) %
                                               static_cast<std::uint32_t>(vocabulary)));
  return tokens;
}

}  // namespace

TEST_CASE_TEMPLATE("a lookup returns the token's row; parts of the vocabulary add up to the whole", T, float, double,
                   dtrain::bfloat16, dtrain::float16) {
  for (const Index threads : {1, 2}) {
    Host device({.threads = threads});
    const Index vocabulary = 11, width = 300, rows = 500;
    const auto tokens = some_tokens(rows, vocabulary);
    const auto weight = test::random_tensor<T>(vocabulary, width, 1, 2);
    Tensor<T> y(rows, width, 1), low(rows, width), high(rows, width);
    ops::embedding_forward(device, tokens, weight.view(), {0, vocabulary}, y.view());
    const auto row_of = [&](Index r, Index c) { return weight(tokens[static_cast<std::size_t>(r)], c); };
    test::check_close(y, row_of, 0.0);
    ops::embedding_forward(device, tokens, weight.view().row_range({0, 4}), {0, 4}, low.view());
    ops::embedding_forward(device, tokens, weight.view().row_range({4, 11}), {4, 11}, high.view());
    for (Index r = 0; r < rows; ++r) {
      const bool is_low = tokens[static_cast<std::size_t>(r)] < 4;
      CHECK(low(r, 7) == (is_low ? row_of(r, 7) : 0.0));
      CHECK(high(r, 7) == (is_low ? 0.0 : row_of(r, 7)));
    }
  }
}

TEST_CASE("embedding gradients add up the rows of equal tokens, in the order of the rows") {
  const Index vocabulary = 5, width = 200, rows = 700;
  const auto tokens = some_tokens(rows, vocabulary);
  const auto dy = test::random_tensor<float>(rows, width, 2);
  std::vector<Tensor<float>> results;
  for (const Index threads : {1, 2}) {
    Host device({.threads = threads});
    Tensor<float> dweight(vocabulary, width);
    ops::embedding_backward(device, tokens, dy.view(), {0, vocabulary}, dweight.view());
    test::check_close(dweight, [&](Index v, Index c) {
      double sum = 0;
      for (Index r = 0; r < rows; ++r)
        if (tokens[static_cast<std::size_t>(r)] == v) sum += dy(r, c);
      return sum;
    });
    results.push_back(dweight);

    Tensor<float> part(2, width);
    ops::embedding_backward(device, tokens, dy.view(), {1, 3}, part.view());
    test::check_close(part, [&](Index v, Index c) { return dweight(v + 1, c); }, 0.0);
    ops::embedding_backward(device, tokens, dy.view(), {1, 3}, part.view());
    test::check_close(part, [&](Index v, Index c) { return 2 * dweight(v + 1, c); });
  }
  CHECK(results[0].elements == results[1].elements);
}

TEST_CASE_TEMPLATE("positions count from the first row, modulo the context", T, float, double) {
  for (const Index threads : {1, 2}) {
    Host device({.threads = threads});
    const Index context = 7, width = 130, rows = 1200, first_row = 10;
    const auto x = test::random_tensor<T>(rows, width, 1, 1);
    const auto weight = test::random_tensor<T>(9, width, 2);
    Tensor<T> y(rows, width);
    ops::position_forward(device, x.view(), weight.view(), first_row, context, y.view());
    test::check_close(y, [&](Index r, Index c) { return x(r, c) + weight((first_row + r) % context, c); });
    Tensor<T> in_place = x;
    ops::position_forward(device, in_place.view(), weight.view(), first_row, context, in_place.view());
    test::check_close(in_place, [&](Index r, Index c) { return y(r, c); }, 0.0);

    Tensor<T> dweight(9, width);
    for (auto& element : dweight.elements) element = 1;
    ops::position_backward(device, x.view(), first_row, context, dweight.view());
    test::check_close(dweight, [&](Index p, Index c) {
      double sum = 1;
      for (Index r = 0; r < rows; ++r)
        if ((first_row + r) % context == p) sum += x(r, c);
      return sum;
    });
  }
}

TEST_CASE("a context longer than the table is refused") {
  Host device;
  Tensor<float> x(4, 3), weight(5, 3);
  CHECK_THROWS_AS(ops::position_forward(device, x.view(), weight.view(), 0, 6, x.view()), Error);
}
