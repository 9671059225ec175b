#include "dtrain/ops/host/attention.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "reference.hpp"

using namespace dtrain;
using ops::AttentionShape;
using test::Tensor;

namespace {

struct Case {
  AttentionShape shape;
  Index samples;
};

constexpr Index first_sample = 3, first_head = 2, total_heads = 9;

double mask_factor(const AttentionShape& shape, const RandomStream& stream, Index sample, Index head, Index i,
                   Index j) {
  const Index element =
      (((first_sample + sample) * total_heads + first_head + head) * shape.context + i) * shape.context + j;
  return stream.uniform(static_cast<std::uint64_t>(element)) >= shape.dropout ? 1 / (1 - shape.dropout) : 0.0;
}

/// y by the definition, in double; `log_sums` by sample, head and query.
template <class T>
Tensor<double> reference(const AttentionShape& shape, const Tensor<T>& qkv, const RandomStream& stream,
                         std::vector<double>& log_sums) {
  const Index size = shape.head_size, context = shape.context;
  Tensor<double> y(qkv.rows, shape.heads * size);
  for (Index sample = 0; sample < qkv.rows / context; ++sample)
    for (Index head = 0; head < shape.heads; ++head) {
      const Index shared = head / (shape.heads / shape.key_value_heads);
      const Index query = head * size, key = (shape.heads + shared) * size,
                  value = (shape.heads + shape.key_value_heads + shared) * size;
      for (Index i = 0; i < context; ++i) {
        const Index row = sample * context + i;
        std::vector<double> exponentials;
        double sum = 0;
        for (Index j = 0; j <= i; ++j) {
          double score = 0;
          for (Index d = 0; d < size; ++d) score += qkv(row, query + d) * qkv(sample * context + j, key + d);
          exponentials.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
          sum += exponentials.back();
        }
        log_sums.push_back(std::log(sum));
        for (Index j = 0; j <= i; ++j) {
          const double weight =
              exponentials[static_cast<std::size_t>(j)] / sum * mask_factor(shape, stream, sample, head, i, j);
          for (Index d = 0; d < size; ++d) y.view()(row, query + d) += weight * qkv(sample * context + j, value + d);
        }
      }
    }
  return y;
}

const std::vector<Case> cases{
    {{.heads = 1, .key_value_heads = 1, .head_size = 1, .context = 1}, 2},
    {{.heads = 3, .key_value_heads = 3, .head_size = 5, .context = 7}, 3},
    {{.heads = 4, .key_value_heads = 2, .head_size = 8, .context = 70, .dropout = 0.3}, 8},
    {{.heads = 2, .key_value_heads = 1, .head_size = 16, .context = 131}, 2},
    {{.heads = 1, .key_value_heads = 1, .head_size = 4, .context = 1100, .dropout = 0.1}, 1},
};

}  // namespace

TEST_CASE_TEMPLATE("attention agrees with its definition in double", T, float, double, dtrain::bfloat16,
                   dtrain::float16) {
  const RandomStream stream(11, hash_name("attention"), 5);
  for (const Index threads : {1, 2})
    for (const Case& test : cases) {
      Host device({.threads = threads});
      const AttentionShape& shape = test.shape;
      const Index rows = test.samples * shape.context;
      const auto qkv = test::random_tensor<T>(rows, shape.packed_columns(), 1, 3);
      Tensor<T> y(rows, shape.heads * shape.head_size, 1);
      Tensor<Accumulator<T>> log_sums(1, rows * shape.heads);
      ops::attention_forward(device, shape, qkv.view(), y.view(), log_sums.span(), stream, first_sample, first_head,
                             total_heads);
      std::vector<double> expected_log_sums;
      const Tensor<double> expected = reference(shape, qkv, stream, expected_log_sums);
      test::check_close(y, [&](Index r, Index c) { return expected(r, c); });
      test::check_close(
          log_sums, [&](Index, Index c) { return expected_log_sums[static_cast<std::size_t>(c)]; },
          std::same_as<T, double> ? 1e-13 : 3e-6);
    }
}

TEST_CASE("attention gradients agree with finite differences") {
  const RandomStream stream(11, hash_name("attention"), 6);
  for (const Index threads : {1, 2})
    for (const Case& test : {Case{{.heads = 2, .key_value_heads = 2, .head_size = 3, .context = 5}, 2},
                             Case{{.heads = 4, .key_value_heads = 2, .head_size = 2, .context = 6, .dropout = 0.4}, 2},
                             Case{{.heads = 3, .key_value_heads = 1, .head_size = 2, .context = 70, .dropout = 0.2}, 1},
                             Case{{.heads = 1, .key_value_heads = 1, .head_size = 2, .context = 131}, 1}}) {
      Host device({.threads = threads});
      const AttentionShape& shape = test.shape;
      const Index rows = test.samples * shape.context;
      auto qkv = test::random_tensor<double>(rows, shape.packed_columns(), 1);
      const auto dy = test::random_tensor<double>(rows, shape.heads * shape.head_size, 2);
      Tensor<double> y(rows, dy.columns), log_sums(1, rows * shape.heads);
      const auto loss = [&] {
        ops::attention_forward(device, shape, qkv.view(), y.view(), log_sums.span(), stream, first_sample, first_head,
                               total_heads);
        return test::inner(y, dy);
      };
      (void)loss();
      auto dqkv = test::random_tensor<double>(rows, shape.packed_columns(), 3);  // to be overwritten
      ops::attention_backward(device, shape, qkv.view(), y.view(), log_sums.span(), dy.view(), dqkv.view(), stream,
                              first_sample, first_head, total_heads);
      test::check_gradient("qkv", qkv, dqkv, loss);
    }
}

TEST_CASE_TEMPLATE("attention gradients agree with those in double", T, float, dtrain::bfloat16, dtrain::float16) {
  const RandomStream stream(11, hash_name("attention"), 7);
  for (const Index threads : {1, 2})
    for (const Case& test : cases) {
      Host device({.threads = threads});
      const AttentionShape& shape = test.shape;
      const Index rows = test.samples * shape.context;
      const auto widen = [](const auto& narrow) {
        Tensor<double> wide(narrow.rows, narrow.columns);
        for (Index r = 0; r < narrow.rows; ++r)
          for (Index c = 0; c < narrow.columns; ++c) wide.view()(r, c) = narrow(r, c);
        return wide;
      };
      const auto qkv = test::random_tensor<T>(rows, shape.packed_columns(), 1);
      const auto dy = test::random_tensor<T>(rows, shape.heads * shape.head_size, 2);
      const auto run = [&](const auto& in, const auto& slope, auto element) {
        using E = decltype(element);
        Tensor<E> y(rows, dy.columns), dqkv(rows, in.columns);
        Tensor<Accumulator<E>> log_sums(1, rows * shape.heads);
        ops::attention_forward(device, shape, in.view(), y.view(), log_sums.span(), stream, first_sample, first_head,
                               total_heads);
        ops::attention_backward(device, shape, in.view(), y.view(), log_sums.span(), slope.view(), dqkv.view(), stream,
                                first_sample, first_head, total_heads);
        return dqkv;
      };
      const Tensor<double> expected = run(widen(qkv), widen(dy), double{});
      test::check_close(run(qkv, dy, T{}), [&](Index r, Index c) { return expected(r, c); });
    }
}

TEST_CASE("attention allocates nothing after its first call") {
  for (const Index threads : {1, 2}) {
    Host device({.threads = threads});
    const AttentionShape shape{.heads = 4, .key_value_heads = 2, .head_size = 16, .context = 33, .dropout = 0.1};
    const Index rows = 20 * shape.context;
    const auto qkv = test::random_tensor<float>(rows, shape.packed_columns(), 1);
    const auto dy = test::random_tensor<float>(rows, 64, 2);
    Tensor<float> y(rows, 64), log_sums(1, rows * 4), dqkv(rows, shape.packed_columns());
    const auto step = [&] {
      ops::attention_forward(device, shape, qkv.view(), y.view(), log_sums.span(), {}, 0, 0, 4);
      ops::attention_backward(device, shape, qkv.view(), y.view(), log_sums.span(), dy.view(), dqkv.view(), {}, 0, 0,
                              4);
    };
    step();
    const Index warm = device.allocations();
    const Tensor<float> first = dqkv;
    step();
    CHECK(device.allocations() == warm);
    CHECK(first.elements == dqkv.elements);
  }
}

TEST_CASE("large scores do not overflow") {
  Host device;
  const AttentionShape shape{.heads = 1, .key_value_heads = 1, .head_size = 2, .context = 3};
  Tensor<float> qkv(3, 6), y(3, 2), log_sums(1, 3);
  qkv.elements = {100, 100, 100, 100, 1, 2, -100, 100, 100, -100, 3, 4, 300, 300, 1, 1, 5, 6};
  ops::attention_forward(device, shape, qkv.view(), y.view(), log_sums.span(), {}, 0, 0, 1);
  CHECK(y(0, 0) == 1.0);
  CHECK(y(1, 1) == 2.0);  // scores 0 and -14142
  for (const float value : y.elements) CHECK(std::isfinite(value));
  for (const float value : log_sums.elements) CHECK(std::isfinite(value));
}

TEST_CASE("shapes that do not fit are refused") {
  Host device;
  Tensor<float> qkv(6, 10), y(6, 4), log_sums(1, 12);
  const auto run = [&](AttentionShape shape) {
    ops::attention_forward(device, shape, qkv.view(), y.view(), log_sums.span(), {}, 0, 0, 2);
  };
  CHECK_THROWS_AS(run({.heads = 3, .key_value_heads = 2, .head_size = 2, .context = 3}), Error);
  CHECK_THROWS_AS(run({.heads = 2, .key_value_heads = 1, .head_size = 2, .context = 4}), Error);
  CHECK_THROWS_AS(run({.heads = 2, .key_value_heads = 2, .head_size = 2, .context = 3}), Error);
  CHECK_THROWS_AS(run({.heads = 2, .key_value_heads = 1, .head_size = 2, .context = 3, .dropout = 1.0}), Error);
}
