// Trains a model under a strategy: whole runs, or single steps for those who write their own loop.
#pragma once

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtrain/data/source.hpp"
#include "dtrain/optim/adamw.hpp"
#include "dtrain/optim/clip.hpp"
#include "dtrain/optim/learning_rate.hpp"
#include "dtrain/optim/loss_scaling.hpp"
#include "dtrain/optim/training_clock.hpp"
#include "dtrain/parallel/program.hpp"
#include "dtrain/train/optimizer_state.hpp"
#include "dtrain/train/rank.hpp"
#include "dtrain/train/reports.hpp"

namespace dtrain::train {

/// How a trainer trains.
template <class Optimizer>
struct TrainerOptions {
  optim::LearningRate learning_rate = 1e-3;
  Optimizer optimizer{};
  /// Largest global norm of the gradients; 0: no clipping.
  double clip = 1.0;
  /// Of initial weights, dropout and the order of the data.
  std::uint64_t seed = 1;
  /// Unless it is set: dynamic for float16, none for other types.
  std::optional<optim::LossScaling> loss_scaling{};
};

/// One rank's part in training `Model` under `S`, in the numbers of `Format`: a scalar
/// or a `Precision`. Every member is called by all ranks together.
template <class Model, class S, class Optimizer = AdamW, NumberFormat Format = float, class Device = Host>
class Trainer {
  using T = typename PrecisionOf<Format>::Parameter;

 public:
  using RankType = Rank<S, Device>;
  using Program = parallel::Program<Model, S, Format, Device, typename RankType::Communicator>;
  using Options = TrainerOptions<Optimizer>;

  /// Allocates parameters, gradients and optimizer state, and sets the parameters to their start.
  /// Throws ConfigurationError for hyperparameters out of range.
  explicit Trainer(RankType& rank, Options options = {})
      : rank_(rank), options_(checked(std::move(options))), program_(rank.device(), rank.axes(), options_.seed) {
    optimizers_.reserve(program_.chunks().size());
    for (auto& chunk : program_.chunks())
      optimizers_.emplace_back(rank.device(), std::as_const(*chunk).stage().store(), options_.seed);
  }

  template <class OtherRank>
    requires(!std::is_same_v<OtherRank, RankType>)
  explicit Trainer(OtherRank&, Options = {}) {
    static_assert(std::is_same_v<typename OtherRank::Strategy, S> && std::is_same_v<typename OtherRank::Device, Device>,
                  "dtrain: the trainer's strategy or device is not the one that was launched");
  }

  [[nodiscard]] Program& program() { return program_; }
  [[nodiscard]] RankType& rank() { return rank_; }
  /// The optimizer's state of each of the program's chunks.
  [[nodiscard]] std::vector<OptimizerState<Optimizer, Format, Device>>& optimizer_states() { return optimizers_; }

  /// Updates made and skipped so far, the next sample of the data and the loss scale: what a run resumes from, with the
  /// weights and the optimizer's state.
  [[nodiscard]] const optim::TrainingClock& clock() const { return clock_; }
  [[nodiscard]] data::Position position() const { return position_; }
  [[nodiscard]] const optim::LossScale& loss_scale() const { return loss_scale_; }
  void resume(optim::TrainingClock clock, data::Position position) {
    clock_ = clock;
    position_ = position;
  }
  void resume(optim::TrainingClock clock, data::Position position, const optim::LossScale& loss_scale) {
    resume(clock, position);
    loss_scale_ = loss_scale;
  }

  /// Bytes of this rank by kind, the optimizer's state among them.
  [[nodiscard]] MemoryReport memory() const {
    MemoryReport report{.program = program_.memory()};
    for (const auto& optimizer : optimizers_) report.optimizer += optimizer.bytes();
    return report;
  }

  /// The batch that `samples` samples make; `micro_batches` of 0: see `parallel::deal_out`.
  [[nodiscard]] parallel::BatchShape batch_shape(Index samples, Index context, int micro_batches = 0) const {
    return parallel::deal_out(samples, context, micro_batches, rank_.axes().mesh().batch_share().size, Program::stages);
  }

  /// One training step on a batch of the caller's: forward, backward, reduction, clipping, update.
  /// `feed(samples, inputs, targets)` fills the rows of a range of samples of the global batch; either span may be
  /// empty. Throws NumericalError, on every rank, when the loss is not a finite number; gradients that are not finite
  /// skip the update on all ranks, and lower a dynamic loss scale.
  template <class Feed>
  StepReport step(const parallel::BatchShape& shape, Feed&& feed) {
    return step_at(options_.learning_rate, shape, feed);
  }

  /// One step on the next `shape.samples` samples of a source.
  template <class Source>
  StepReport step(const Source& source, const parallel::BatchShape& shape) {
    require_source<Source>();
    check_source(source, shape);
    return step_on(options_.learning_rate, source, shape);
  }

  /// Adds a batch of the caller's to the next step, without reducing its gradients over the data axis (PyTorch's
  /// `no_sync`): the step is then as on all these batches together. `feed` as for `step`.
  template <class Feed>
  void accumulate(const parallel::BatchShape& shape, Feed&& feed) {
    program_.accumulate(shape, static_cast<std::uint64_t>(clock_.attempts()), feed, loss_scale_.scale);
    accumulated_tokens_ += shape.samples * shape.context;
  }
  /// The same on the next `shape.samples` samples of a source.
  template <class Source>
  void accumulate(const Source& source, const parallel::BatchShape& shape) {
    require_source<Source>();
    check_source(source, shape);
    accumulate(shape, training_feed(source));
    position_ = position_.advanced(shape.samples, source.training_samples());
  }

  /// Mean loss over the whole held-out part of a source, without dropout; `shape` is how much is run at once.
  template <class Source>
  EvaluationReport evaluate(const Source& source, const parallel::BatchShape& shape) {
    require_source<Source>();
    check_source(source, shape);
    EvaluationReport report;
    for (Index first = 0; first < source.validation_samples(); first += shape.samples) {
      const auto result = program_.evaluate(shape, [&](Range samples, auto inputs, std::span<std::int32_t> targets) {
        source.fill_validation({first + samples.begin, first + samples.end},
                               batch_of(source, samples, inputs, targets));
      });
      report.loss_sum += result.loss_sum;
      report.tokens += result.tokens;
    }
    return report;
  }

  /// Trains for `options.steps` steps from where the trainer stands. Everything is checked before the first step.
  /// A learning rate that leaves its length open ends with these steps; one that is to go on after a resumption needs
  /// its `decay_steps`. Returns the report of the last step.
  template <class Source>
  StepReport fit(const Source& source, const FitOptions& options) {
    require_source<Source>();
    const parallel::BatchShape shape = batch_shape(options.batch, context_of(source), options.micro_batches);
    check_fit(source, options, shape);
    const optim::LearningRate rate = options_.learning_rate.resolved(clock_.schedule_step() + options.steps);
    program_.prepare(shape, true);
    StepReport report;
    auto last = Clock::now();
    for (Index s = 0; s < options.steps; ++s) {
      report = step_on(rate, source, shape);
      // From the end of the step before: whatever a user waits for is in it.
      report.seconds = seconds_since(last);
      last = Clock::now();
      if (options.on_step && rank_.is_first()) options.on_step(report);
    }
    return report;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  }

  static Options checked(Options options) {
    optim::validate(options.optimizer);
    if (!options.loss_scaling)
      options.loss_scaling = std::is_same_v<T, float16> ? optim::LossScaling{} : optim::LossScaling::fixed(1.0);
    options.loss_scaling->validate();
    if (!(options.clip >= 0.0))
      throw ConfigurationError(concatenate("dtrain: gradients cannot be clipped to a norm of ", options.clip,
                                           "; give a number of at least 0, where 0 turns clipping off."));
    return options;
  }

  template <class Feed>
  StepReport step_at(const optim::LearningRate& rate, const parallel::BatchShape& shape, Feed&& feed) {
    const auto begin = Clock::now();
    double waited = 0.0;
    const auto timed = [&](Range samples, auto inputs, std::span<std::int32_t> targets) {
      const auto from = Clock::now();
      feed(samples, inputs, targets);
      waited += seconds_since(from);
    };
    StepReport report{.step = clock_.attempts() + 1,
                      .learning_rate = rate(clock_.schedule_step()),
                      .tokens = std::exchange(accumulated_tokens_, 0) + shape.samples * shape.context,
                      .loss_scale = loss_scale_.scale};
    const auto result =
        program_.gradients(shape, static_cast<std::uint64_t>(clock_.attempts()), timed, report.loss_scale);
    report.loss = result.loss();
    report.counted_tokens = result.tokens;
    require_finite(report);
    report.gradient_norm = program_.gradient_norm() / report.loss_scale;
    update(report);
    report.seconds = seconds_since(begin);
    report.waiting_seconds = waited;
    return report;
  }
  template <class Source>
  StepReport step_on(const optim::LearningRate& rate, const Source& source, const parallel::BatchShape& shape) {
    const StepReport report = step_at(rate, shape, training_feed(source));
    position_ = position_.advanced(shape.samples, source.training_samples());
    return report;
  }

  template <class Source>
  static consteval void require_source() {
    if constexpr (Program::Lowered::takes_tokens)
      static_assert(data::TokenSource<Source>, "dtrain: a model that reads tokens is trained on a TokenSource");
    else
      static_assert(data::FeatureSource<Source, T>,
                    "dtrain: a model that reads features is trained on a FeatureSource");
  }
  template <class Source>
  static Index context_of(const Source& source) {
    if constexpr (Program::Lowered::takes_tokens)
      return source.context();
    else
      return 1;
  }
  template <class Source, class Input>
  static auto batch_of(const Source& source, Range samples, std::span<Input> inputs, std::span<std::int32_t> targets) {
    if constexpr (Program::Lowered::takes_tokens)
      return data::TokenBatch{inputs, targets, samples.size(), source.context()};
    else
      return data::FeatureBatch<T>{inputs, targets, samples.size(), source.features()};
  }
  template <class Source>
  auto training_feed(const Source& source) {
    return [&source, this](Range samples, auto inputs, std::span<std::int32_t> targets) {
      source.fill_training(options_.seed, position_, samples, batch_of(source, samples, inputs, targets));
    };
  }

  template <class Source>
  void check_fit(const Source& source, const FitOptions& options, const parallel::BatchShape& shape) {
    if (options.steps < 0)
      throw ConfigurationError(
          concatenate("dtrain: a run of ", options.steps, " steps was asked for; give 0 or more."));
    Program::check(shape, rank_.axes().mesh().batch_share().size);
    check_source(source, shape);
  }
  template <class Source>
  [[gnu::cold]] static void check_source(const Source& source, const parallel::BatchShape& shape) {
    if constexpr (Program::Lowered::takes_tokens) {
      constexpr Index vocabulary = Program::Lowered::template UnitOf<0>::template Layer<0>::vocabulary;
      if (source.vocabulary() > vocabulary)
        throw ConfigurationError(concatenate("dtrain: the data has a vocabulary of ", source.vocabulary(),
                                             " tokens, but the model only ", vocabulary, "."));
    } else if (source.features() != Program::Lowered::input_width) {
      throw ConfigurationError(concatenate("dtrain: the data has ", source.features(),
                                           " features per sample, but the model takes ", Program::Lowered::input_width,
                                           "."));
    }
    if (shape.context != context_of(source))
      throw ConfigurationError(concatenate("dtrain: the batch has a context of ", shape.context,
                                           ", but a sample of the data ", context_of(source),
                                           Program::Lowered::takes_tokens ? " tokens" : " row",
                                           "; make the shape by batch_shape(samples, ", context_of(source), ")."));
  }

  // The ranks whose part of the loss is not finite are asked for only when the sum is not.
  void require_finite(const StepReport& report) {
    if (std::isfinite(report.loss)) return;
    std::array<std::int64_t, 1> first{program_.loss_is_finite() ? std::numeric_limits<std::int64_t>::max()
                                                                : rank_.index()};
    rank_.world().all_reduce(std::span(first), comm::Reduction::minimum).wait();
    throw NumericalError(
        concatenate("dtrain: the loss of step ", report.step, " is ", std::abs(report.loss), "; rank ", first[0],
                    " is the first to compute it so. Nothing was updated. Lower the learning rate (now ",
                    report.learning_rate, ") or look at the data of this step."));
  }

  void update(StepReport& report) {
    const optim::ClipVerdict verdict = optim::clip_coefficient(report.gradient_norm, options_.clip, report.loss_scale);
    // A batch without a counted token has no gradient: decay alone would still move the weights.
    report.skipped = verdict.skip || report.counted_tokens == 0;
    if (!report.skipped) {
      for (std::size_t c = 0; c < optimizers_.size(); ++c) {
        auto& stage = program_.chunks()[c]->stage();
        optimizers_[c].update(options_.optimizer, stage.parameters(), stage.gradients(), report.learning_rate,
                              verdict.coefficient, clock_.optimizer_step());
      }
      program_.publish_parameters();
    }
    clock_.advance(!report.skipped);
    if (report.counted_tokens > 0) loss_scale_ = loss_scale_.after(verdict.skip, *options_.loss_scaling);
    report.skipped_so_far = clock_.skipped;
  }

  RankType& rank_;
  Options options_;
  Program program_;
  std::vector<OptimizerState<Optimizer, Format, Device>> optimizers_{};
  optim::TrainingClock clock_{};
  optim::LossScale loss_scale_ = optim::LossScale::start(*options_.loss_scaling);
  data::Position position_{};
  Index accumulated_tokens_ = 0;
};

}  // namespace dtrain::train

namespace dtrain {
using train::Trainer;
using train::TrainerOptions;
}  // namespace dtrain
