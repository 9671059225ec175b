// A learning-rate schedule of any kind, as an option of the trainer holds it.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/optim/schedule.hpp"

namespace dtrain::optim {

/// Holds any `Schedule`: a number, one of the library's, or a user's function of the step.
///
///     {.learning_rate = 1e-3}
///     {.learning_rate = dt::Cosine{.peak = 3e-4, .warmup = 100}}
///     {.learning_rate = [](dt::Index step) { return 0.1 / double(step + 1); }}
///
/// Copies share the schedule, which is never changed. Construction throws ConfigurationError when the schedule's own
/// `validate()` does, or when a plain number is negative or not finite.
class LearningRate {
 public:
  /// A constant rate.
  explicit(false) LearningRate(double rate) : LearningRate(Constant{.rate = rate}) {}

  template <class Type>
    requires(!std::same_as<std::decay_t<Type>, LearningRate> && !std::is_arithmetic_v<std::decay_t<Type>> &&
             Schedule<std::decay_t<Type>>)
  explicit(false) LearningRate(Type&& schedule)
      : held_(std::make_shared<const Holder<std::decay_t<Type>>>(std::forward<Type>(schedule))) {
    held_->validate();
  }

  /// The rate of the update made after `step` updates. Throws ConfigurationError when `step` is negative, or when the
  /// schedule spans the whole run and `resolved` was not called.
  [[nodiscard]] double operator()(Index step) const {
    if (step < 0) throw ConfigurationError(concatenate("LearningRate: step is ", step, ", but must not be negative"));
    return held_->rate(step);
  }

  /// The schedule with `decay_steps = 0` replaced by the length of the run. Unchanged where nothing was left open.
  [[nodiscard]] LearningRate resolved(Index total_steps) const { return held_->resolved(*this, total_steps); }

 private:
  struct Erased {
    Erased() = default;
    Erased(const Erased&) = delete;
    Erased& operator=(const Erased&) = delete;
    virtual ~Erased() = default;
    virtual double rate(Index step) const = 0;
    virtual LearningRate resolved(const LearningRate& self, Index total_steps) const = 0;
    virtual void validate() const = 0;
  };

  template <class Type>
  struct Holder final : Erased {
    template <class Argument>
    explicit Holder(Argument&& argument) : schedule(std::forward<Argument>(argument)) {}
    double rate(Index step) const override { return schedule(step); }
    LearningRate resolved(const LearningRate& self, Index total_steps) const override {
      if constexpr (requires { schedule.resolved(total_steps); })
        return LearningRate(schedule.resolved(total_steps));
      else
        return self;
    }
    void validate() const override {
      if constexpr (requires { schedule.validate(); }) schedule.validate();
    }
    Type schedule;
  };

  std::shared_ptr<const Erased> held_;
};

static_assert(Schedule<LearningRate>);

}  // namespace dtrain::optim

namespace dtrain {
using optim::LearningRate;
}  // namespace dtrain
