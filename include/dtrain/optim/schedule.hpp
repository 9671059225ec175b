// Learning-rate schedules: values that map the number of updates made so far to the rate of the next one.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <numbers>
#include <string_view>

#include "dtrain/core/error.hpp"
#include "dtrain/core/scalar.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain::optim {

/// A schedule: `schedule(step)` is the learning rate of the update made after `step` updates, so the first update of
/// a run takes `schedule(0)`. A pure function: a resumed run continues by calling it with the step it stopped at.
///
/// With `warmup` steps the rate rises linearly from `initial` at step 0 to `peak` at step `warmup`; it falls to
/// `minimum` at `decay_steps` (counted from step 0, warm-up included) and stays there. `decay_steps = 0` means the
/// whole run: `resolved(total_steps)` returns the schedule with that number filled in.
template <class Type>
concept Schedule = std::copyable<Type> && requires(const Type& schedule, Index step) {
  { schedule(step) } -> std::convertible_to<double>;
};

namespace detail {

inline void check_schedule(std::string_view name, double peak, Index warmup, Index decay_steps, double minimum,
                           double initial) {
  const auto bad = [](double rate) { return !(rate >= 0) || !std::isfinite(rate); };
  if (bad(peak) || bad(minimum) || bad(initial))
    throw ConfigurationError(concatenate(name, ": learning rates must be finite and not negative, but peak is ", peak,
                                         ", minimum ", minimum, " and initial ", initial));
  if (minimum > peak || initial > peak)
    throw ConfigurationError(
        concatenate(name, ": peak is ", peak, ", below minimum ", minimum, " or initial ", initial));
  if (warmup < 0 || decay_steps < 0)
    throw ConfigurationError(concatenate(name, ": step counts must not be negative, but warmup is ", warmup,
                                         " and decay_steps ", decay_steps));
  if (decay_steps != 0 && decay_steps < warmup)
    throw ConfigurationError(concatenate(name, ": decay_steps is ", decay_steps, ", less than the warmup of ", warmup,
                                         " steps that it includes"));
}

/// `decay_steps` of a schedule that left it open. A run shorter than its warm-up ends while the rate still rises.
constexpr Index resolve_decay(Index decay_steps, Index warmup, Index total_steps) {
  return decay_steps != 0 ? decay_steps : std::max(total_steps, warmup);
}

inline void require_resolved(std::string_view name, Index decay_steps) {
  if (decay_steps == 0)
    throw ConfigurationError(concatenate(name,
                                         ": the length of the run is not known; set decay_steps, or call "
                                         "resolved(total_steps) before asking for a rate"));
}

constexpr double warming(Index step, Index warmup, double initial, double peak) {
  return initial + (peak - initial) * static_cast<double>(step) / static_cast<double>(warmup);
}

/// How much of the way from `begin` to `end` lies behind, in (0, 1].
constexpr double progress(Index step, Index begin, Index end) {
  return static_cast<double>(step - begin) / static_cast<double>(end - begin);
}

/// From 1 to 0 over `done` in [0, 1] along half a period of the cosine.
inline double cosine_fall(double done) { return 0.5 * (1.0 + std::cos(std::numbers::pi * done)); }

}  // namespace detail

/// The same rate at every step, after an optional warm-up.
struct Constant {
  double rate = 0;
  Index warmup = 0;
  double initial = 0;

  double operator()(Index step) const { return step < warmup ? detail::warming(step, warmup, initial, rate) : rate; }
  void validate() const { detail::check_schedule("Constant", rate, warmup, 0, 0, initial); }
};

/// From `peak` in a straight line to `minimum`.
struct LinearDecay {
  double peak = 0;
  Index warmup = 0;
  Index decay_steps = 0;
  double minimum = 0;
  double initial = 0;

  double operator()(Index step) const {
    detail::require_resolved("LinearDecay", decay_steps);
    if (step < warmup) return detail::warming(step, warmup, initial, peak);
    if (step >= decay_steps) return step == warmup ? peak : minimum;
    return minimum + (peak - minimum) * (1.0 - detail::progress(step, warmup, decay_steps));
  }
  [[nodiscard]] LinearDecay resolved(Index total_steps) const {
    LinearDecay copy = *this;
    copy.decay_steps = detail::resolve_decay(decay_steps, warmup, total_steps);
    return copy;
  }
  void validate() const { detail::check_schedule("LinearDecay", peak, warmup, decay_steps, minimum, initial); }
};

/// From `peak` along half a cosine to `minimum`: I. Loshchilov and F. Hutter, "SGDR", ICLR 2017, equation 5, without
/// restarts.
struct Cosine {
  double peak = 0;
  Index warmup = 0;
  Index decay_steps = 0;
  double minimum = 0;
  double initial = 0;

  double operator()(Index step) const {
    detail::require_resolved("Cosine", decay_steps);
    if (step < warmup) return detail::warming(step, warmup, initial, peak);
    if (step >= decay_steps) return step == warmup ? peak : minimum;
    return minimum + (peak - minimum) * detail::cosine_fall(detail::progress(step, warmup, decay_steps));
  }
  [[nodiscard]] Cosine resolved(Index total_steps) const {
    Cosine copy = *this;
    copy.decay_steps = detail::resolve_decay(decay_steps, warmup, total_steps);
    return copy;
  }
  void validate() const { detail::check_schedule("Cosine", peak, warmup, decay_steps, minimum, initial); }
};

/// The curve of the last part of `WarmupStableDecay`.
enum class Annealing { linear, cosine, one_minus_sqrt };

/// `peak` for most of the run, then down to `minimum` in its last `annealing_steps` (0: the last tenth of
/// `decay_steps`). S. Hu et al., "MiniCPM", 2024, section 4.1; the one-minus-square-root curve is A. Hägele et al.,
/// "Scaling laws and compute-optimal training beyond fixed training durations", 2024, equation 2.
struct WarmupStableDecay {
  double peak = 0;
  Index warmup = 0;
  Index decay_steps = 0;
  Index annealing_steps = 0;
  Annealing annealing = Annealing::linear;
  double minimum = 0;
  double initial = 0;

  double operator()(Index step) const {
    detail::require_resolved("WarmupStableDecay", decay_steps);
    if (step < warmup) return detail::warming(step, warmup, initial, peak);
    const Index length = annealing_steps != 0 ? annealing_steps : decay_steps / 10;
    const Index begin = std::max(warmup, decay_steps - length);
    if (step <= begin) return peak;
    if (step >= decay_steps) return minimum;
    return minimum + (peak - minimum) * remaining(detail::progress(step, begin, decay_steps));
  }
  [[nodiscard]] WarmupStableDecay resolved(Index total_steps) const {
    WarmupStableDecay copy = *this;
    copy.decay_steps = detail::resolve_decay(decay_steps, warmup, total_steps);
    return copy;
  }
  void validate() const {
    detail::check_schedule("WarmupStableDecay", peak, warmup, decay_steps, minimum, initial);
    if (annealing_steps < 0)
      throw ConfigurationError(
          concatenate("WarmupStableDecay: annealing_steps is ", annealing_steps, ", but must not be negative"));
    if (decay_steps != 0 && warmup + annealing_steps > decay_steps)
      throw ConfigurationError(concatenate("WarmupStableDecay: ", warmup, " steps of warm-up and ", annealing_steps,
                                           " of annealing do not fit into decay_steps, ", decay_steps));
  }

 private:
  [[nodiscard]] double remaining(double done) const {
    switch (annealing) {
      case Annealing::cosine:
        return detail::cosine_fall(done);
      case Annealing::one_minus_sqrt:
        return 1.0 - std::sqrt(done);
      case Annealing::linear:
        break;
    }
    return 1.0 - done;
  }
};

static_assert(Schedule<Constant> && Schedule<LinearDecay> && Schedule<Cosine> && Schedule<WarmupStableDecay>);

}  // namespace dtrain::optim

namespace dtrain {
using optim::Annealing;
using optim::Constant;
using optim::Cosine;
using optim::LinearDecay;
using optim::WarmupStableDecay;
}  // namespace dtrain
