#include "dtrain/ops/host/optimizer.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "reference.hpp"

using namespace dtrain;
using ops::AdamWStep;
using ops::SgdStep;
using test::Tensor;

TEST_CASE_TEMPLATE("Adam counts its steps from 1 and goes on from where it was", T, float, double) {
  // fault F1
  Host device;
  std::vector<T> w{1}, m{0}, v{0};
  const std::vector<T> g{1};
  const auto step = [&](Index number) {
    ops::adamw_update(device, std::span<T>(w), g, std::span<T>(m), std::span<T>(v),
                      {.learning_rate = 0.1, .step = number});
  };
  step(1);
  step(2);
  CHECK(static_cast<double>(w[0]) == doctest::Approx(0.8).epsilon(1e-6));
  const std::vector<T> saved_w = w, saved_m = m, saved_v = v;
  step(3);
  CHECK(static_cast<double>(w[0]) == doctest::Approx(0.7).epsilon(1e-6));
  w = saved_w;
  m = saved_m;
  v = saved_v;
  step(1);  // what a lost step count would do
  CHECK(static_cast<double>(w[0]) == doctest::Approx(0.64346).epsilon(1e-4));
  CHECK_THROWS_AS(step(0), Error);
}

TEST_CASE("weight decay is decoupled from the gradient") {
  // fault D11: the kernel's part; which parameters decay is decided by their descriptions
  Host device;
  std::vector<double> w{1}, m{0}, v{0};
  const std::vector<double> g{0};
  ops::adamw_update(device, std::span<double>(w), g, std::span<double>(m), std::span<double>(v),
                    {.learning_rate = 0.1, .weight_decay = 0.1});
  CHECK(w[0] == doctest::Approx(0.99).epsilon(1e-15));
  w[0] = 1;
  ops::adamw_update(device, std::span<double>(w), g, std::span<double>(m), std::span<double>(v),
                    {.learning_rate = 0.1, .weight_decay = 0.0});
  CHECK(w[0] == 1.0);
}

TEST_CASE_TEMPLATE("AdamW agrees with its recurrences in double over several steps", T, float, double) {
  const Index count = 40003;
  for (const Index threads : {1, 2}) {
    Host device({.threads = threads});
    auto w = test::random_tensor<T>(1, count, 1);
    Tensor<T> m(1, count), v(1, count);
    std::vector<double> rw, rm(count), rv(count);
    for (const T value : w.elements) rw.push_back(static_cast<double>(value));
    for (Index step = 1; step <= 4; ++step) {
      const auto g = test::random_tensor<T>(1, count, 10 + static_cast<std::uint64_t>(step));
      const AdamWStep options{.learning_rate = 0.01 * static_cast<double>(step),
                              .beta1 = 0.8,
                              .beta2 = 0.95,
                              .epsilon = 1e-6,
                              .weight_decay = 0.3,
                              .gradient_scale = 0.5,
                              .step = step};
      ops::adamw_update(device, w.span(), g.span(), m.span(), v.span(), options);
      for (std::size_t i = 0; i < rw.size(); ++i) {
        const double gradient = 0.5 * static_cast<double>(g.elements[i]);
        rm[i] = 0.8 * rm[i] + 0.2 * gradient;
        rv[i] = 0.95 * rv[i] + 0.05 * gradient * gradient;
        rw[i] -= options.learning_rate * 0.3 * rw[i];
        const double first = rm[i] / (1 - std::pow(0.8, step));
        const double second = rv[i] / (1 - std::pow(0.95, step));
        rw[i] -= options.learning_rate * first / (std::sqrt(second) + 1e-6);
      }
    }
    test::check_close(w, [&](Index, Index c) { return rw[static_cast<std::size_t>(c)]; });
    test::check_close(m, [&](Index, Index c) { return rm[static_cast<std::size_t>(c)]; });
    test::check_close(v, [&](Index, Index c) { return rv[static_cast<std::size_t>(c)]; });
  }
}

TEST_CASE_TEMPLATE("SGD agrees with its recurrences in double", T, float, double) {
  const Index count = 40003;
  for (const Index threads : {1, 2})
    for (const double momentum : {0.0, 0.9})
      for (const bool nesterov : {false, true}) {
        Host device({.threads = threads});
        auto w = test::random_tensor<T>(1, count, 1);
        auto b = test::random_tensor<T>(1, count, 2);  // step 1 must not read this
        std::vector<double> rw, rb(count);
        for (const T value : w.elements) rw.push_back(static_cast<double>(value));
        for (Index step = 1; step <= 3; ++step) {
          const auto g = test::random_tensor<T>(1, count, 10 + static_cast<std::uint64_t>(step));
          const double dampening = nesterov ? 0.0 : 0.25;
          ops::sgd_update(device, w.span(), g.span(), momentum == 0 ? std::span<T>{} : b.span(),
                          {.learning_rate = 0.1,
                           .momentum = momentum,
                           .dampening = dampening,
                           .nesterov = nesterov,
                           .weight_decay = 0.2,
                           .gradient_scale = 2.0,
                           .step = step});
          for (std::size_t i = 0; i < rw.size(); ++i) {
            double gradient = 2 * static_cast<double>(g.elements[i]) + 0.2 * rw[i];
            if (momentum != 0) {
              rb[i] = step == 1 ? gradient : momentum * rb[i] + (1 - dampening) * gradient;
              gradient = nesterov ? gradient + momentum * rb[i] : rb[i];
            }
            rw[i] -= 0.1 * gradient;
          }
        }
        test::check_close(w, [&](Index, Index c) { return rw[static_cast<std::size_t>(c)]; });
      }
}

TEST_CASE("lengths that differ are errors") {
  Host device;
  std::vector<float> four(4), three(3);
  CHECK_THROWS_AS(
      ops::adamw_update(device, std::span<float>(four), three, std::span<float>(four), std::span<float>(four), {}),
      Error);
  CHECK_THROWS_AS(ops::sgd_update(device, std::span<float>(four), four, std::span<float>(three), {.momentum = 0.9}),
                  Error);
}
