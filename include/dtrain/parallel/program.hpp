// The program that one rank runs: a model lowered by a strategy, executed by the tables of its schedule.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtrain/parallel/batch_shape.hpp"
#include "dtrain/parallel/mesh.hpp"
#include "dtrain/parallel/pending_messages.hpp"
#include "dtrain/parallel/rank_agreement.hpp"
#include "dtrain/parallel/rank_chunks.hpp"
#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/stages.hpp"

namespace dtrain::parallel {

/// The backward pass does not read the model's output again, which the loss turns into its own gradient in place.
template <bool ReadAgain, class LastUnit>
concept OutputIsFree = !ReadAgain;

/// What a step or an evaluation gives, the same on every rank.
struct BatchResult {
  double loss_sum = 0.0;
  Index tokens = 0;  ///< counted targets of the global batch
  /// Mean over the counted targets; 0 where there are none.
  [[nodiscard]] double loss() const { return tokens > 0 ? loss_sum / static_cast<double>(tokens) : 0.0; }
};

/// One rank's program. `Format` is a scalar or a `Precision`; `C` is the communicator of the world. Every member that
/// communicates is called by all ranks.
template <class Model, class S, NumberFormat Format, class Device, class C>
class Program {
  using T = typename PrecisionOf<Format>::Parameter;

 public:
  using Lowered = LoweredFor<Model, S, T>;
  using Cuts = Stages<Lowered, S>;
  using Element = T;
  using Gradient = typename PrecisionOf<Format>::Gradient;
  static constexpr int stages = S::Pipeline::degree;
  /// Classes that the logits tell apart.
  static constexpr Index classes = CrossEntropy<Lowered, T>::classes;
  static_assert(Lowered::check());
  static_assert(Cuts::check());
  static_assert(OutputIsFree<Lowered::template UnitOf<Lowered::elements - 1>::plan.output_is_read_again,
                             typename Lowered::template UnitOf<Lowered::elements - 1>>,
                "dtrain: the model ends in a layer that reads its own output again, but the loss overwrites it");

  /// Allocates the parameters of this rank's chunks and sets them to their start.
  /// Throws ConfigurationError when ranks hold different models or were given different seeds.
  Program(Device& device, AxisCommunicators<S, C>& axes, std::uint64_t seed)
      : device_(device), axes_(axes), held_(device, axes, seed) {
    if constexpr (S::static_ranks > 1 || S::has_dynamic) verify_same_seed(axes.world(), seed);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  /// The chunks of this rank, in the order of its schedule's numbers: one, unless the schedule has more.
  [[nodiscard]] auto& chunks() { return held_.chunks(); }
  /// The first chunk.
  [[nodiscard]] auto& stage() { return held_.chunks().front()->stage(); }
  [[nodiscard]] AxisCommunicators<S, C>& axes() { return axes_; }
  [[nodiscard]] const RankPlan<Lowered, Format>& plan() const { return held_.plan(); }
  /// Planned bytes, for the largest batches that were prepared; and the bytes of the arenas.
  [[nodiscard]] MemoryPlan memory() const { return held_.memory(); }
  [[nodiscard]] MemoryPlan allocated() const { return held_.allocated(); }

  /// Refuses, before anything is allocated, a batch that cannot be dealt out to `shares` ranks or that is longer than
  /// the model's context.
  static void check(const BatchShape& shape, int shares) { check_batch(shape, shares, Lowered::max_context); }

  /// Loss and gradients of a global batch. Afterwards every rank keeps the gradient of the mean loss over all counted
  /// targets of the global batch, reduced over all axes, not clipped.
  /// `feed(samples, inputs, targets)` fills the rows of a range of samples of the global batch; either span may be
  /// empty. `step` separates the random numbers of one step from those of the next. All gradients are multiplied by
  /// `loss_scale`, those of activations included. Throws ConfigurationError, on every rank, when ranks were given
  /// different shapes that exchange the same messages.
  template <class Feed>
  BatchResult gradients(const BatchShape& shape, std::uint64_t step, Feed&& feed, double loss_scale = 1.0) {
    begin_batch(shape, feed, shape.micro_batches);
    const Index tokens = count_targets(counted_.targets);
    // Batches that were accumulated before could not know how many targets there would be.
    const double divisor = counted_.batches > 0 ? counted_.divisor : static_cast<double>(tokens);
    run(shape, training_, step, Goal::gradients, tokens > 0 ? loss_scale / divisor : 0.0);
    held_.finish_gradients();
    if (counted_.batches > 0) scale_to_mean(divisor, tokens);
    counted_ = {};
    return share_result(shape, tokens);
  }

  /// Adds the gradients of a batch to those of the next call of `gradients`, without reducing them over the ranks that
  /// share the batch (where ranks keep shards of gradients, they must be). That call then gives loss and gradients of
  /// all these batches together, as if they were one. All have the same context.
  template <class Feed>
  void accumulate(const BatchShape& shape, std::uint64_t step, Feed&& feed, double loss_scale = 1.0) {
    // One pass more than there are: the last one reduces.
    begin_batch(shape, feed, shape.micro_batches + 1);
    counted_.targets += counted_targets();
    if (counted_.batches == 0) counted_.divisor = static_cast<double>(shape.samples * shape.context);
    run(shape, training_, step, Goal::gradients, loss_scale / counted_.divisor);
    ++counted_.batches;
    counted_.samples += shape.samples;
    counted_.context = shape.context;
  }

  /// Loss of a global batch, without gradients and without dropout.
  template <class Feed>
  BatchResult evaluate(const BatchShape& shape, Feed&& feed) {
    prepare(shape, false);
    load(shape, feed);
    loss_ = {};
    const Index tokens = count_targets(0);
    run(shape, evaluation_, 0, Goal::loss, 0.0);
    return share_result(shape, tokens);
  }

  /// The logits of one row of one sample of `context` rows, the same on all ranks: `feed(inputs)` fills the sample,
  /// `result` holds one element per class. Throws ConfigurationError for a row that the sample does not have.
  template <class Feed>
  void logits(Index context, Index row, Feed&& feed, std::span<T> result) {
    check_logits(context, row, result.size());
    const int data = axes_.mesh().batch_share().size;
    const BatchShape shape{.samples = data, .context = context, .micro_batches = 1};
    prepare(shape, false);
    load(shape, [&](Range samples, auto inputs, std::span<std::int32_t> targets) {
      for (auto& target : targets) target = ignored_target;
      if (!inputs.empty())
        for (Index s = 0; s < samples.size(); ++s)
          feed(inputs.subspan(inputs.size() / static_cast<std::size_t>(samples.size()) * static_cast<std::size_t>(s),
                              inputs.size() / static_cast<std::size_t>(samples.size())));
    });
    run(shape, evaluation_, 0, Goal::logits, 0.0);
    gather_logits(row, result);
  }

  /// Completes the sums over all axes, as `gradients` does once every pass has added its own.
  void finish_gradients() { held_.finish_gradients(); }
  /// The global norm of the gradients: every element of every whole parameter counted once.
  [[nodiscard]] double gradient_norm() { return held_.gradient_norm(); }
  /// Gives every rank the parameters that others have updated, where ranks share out the optimizer's state.
  void publish_parameters() { held_.publish_parameters(); }

  /// Whether this rank's own part of the last batch's loss is a finite number.
  [[nodiscard]] bool loss_is_finite() const { return std::isfinite(loss_.sum); }

  [[nodiscard]] const std::vector<schedule::Table>& training_tables() const { return training_; }
  [[nodiscard]] int stage_index() const { return axes_.mesh().template along<axes::Pipeline>().rank; }

  /// Makes room for a batch. `gradients` and `evaluate` call it themselves.
  void prepare(const BatchShape& shape, bool training) {
    check(shape, axes_.mesh().batch_share().size);
    if (training && shape.micro_batches != training_micro_batches_) {
      training_ = schedule::build_tables<typename S::Pipeline::Schedule>(stages, shape.micro_batches, chunks_per_rank);
      training_micro_batches_ = shape.micro_batches;
    }
    if (!training && shape.micro_batches != evaluation_micro_batches_) {
      evaluation_ =
          schedule::build_forward_only_tables(stages, shape.micro_batches, chunks_per_rank, S::Pipeline::placement);
      evaluation_micro_batches_ = shape.micro_batches;
    }
    const schedule::Table& table = table_of(training ? training_ : evaluation_);
    const int shares = axes_.mesh().batch_share().size;
    local_samples_ = shape.samples / shares;
    held_.reserve(shape.micro_batch_rows(shares), shape.context, table.slots, shape.local_rows(shares));
  }

 private:
  using PipelineHandle =
      typename std::remove_cvref_t<decltype(std::declval<AxisCommunicators<S, C>&>().pipeline())>::Handle;
  // With one stage there are none.
  struct NoMessages {};
  // What a run of the tables is for.
  enum class Goal : unsigned char { gradients, loss, logits };
  // Whether the last unit runs together with the loss, in chunks of rows.
  static constexpr bool loss_apart = LossUnit<Lowered, T>::apart;

  static constexpr int chunks_per_rank = S::Pipeline::chunks;
  using ChunkType = Chunk<Lowered, S, Format, Device, C>;

  [[nodiscard]] ChunkType& chunk(int number) { return *held_.chunks()[static_cast<std::size_t>(number)]; }

  [[gnu::cold]] static void check_logits(Index context, Index row, std::size_t room) {
    if (context < 1 || (Lowered::max_context > 0 && context > Lowered::max_context))
      throw ConfigurationError(concatenate(
          "dtrain: logits were asked for with a context of ", context, " rows; the model takes at least 1",
          Lowered::max_context > 0 ? concatenate(" and at most ", Lowered::max_context) : std::string{}, "."));
    if (row < 0 || row >= context)
      throw ConfigurationError(concatenate("dtrain: the logits of row ", row, " were asked for, but a sample of ",
                                           context, " rows has the rows 0 to ", context - 1, "."));
    if (room != static_cast<std::size_t>(classes))
      throw Error(concatenate("dtrain: the logits of ", classes, " classes do not fit into ", room, " elements."));
  }

  [[nodiscard]] const schedule::Table& table_of(const std::vector<schedule::Table>& tables) const {
    return tables[static_cast<std::size_t>(stage_index())];
  }

  template <class Feed>
  void load(const BatchShape& shape, Feed&& feed) {
    const Index first = axes_.mesh().batch_share().rank * local_samples_;
    const Range samples{first, first + local_samples_};
    const auto rows = static_cast<std::size_t>(local_samples_ * shape.context);
    local_targets_ = held_.fill(samples, rows, feed);
  }

  // Only the last stage has counted targets.
  void scale_to_mean(double divisor, Index tokens) {
    std::array<std::int64_t, 1> count{tokens};
    if constexpr (stages > 1) axes_.pipeline().all_reduce(std::span(count)).wait();
    held_.scale_gradients(count[0] > 0 ? divisor / static_cast<double>(count[0]) : 0.0);
  }
  template <class Feed>
  void begin_batch(const BatchShape& shape, Feed&& feed, int passes) {
    if (counted_.batches > 0 && shape.context != counted_.context)
      throw ConfigurationError(concatenate("dtrain: a batch with a context of ", shape.context,
                                           " tokens cannot be added to batches of ", counted_.context, "."));
    prepare(shape, true);
    held_.restart(passes, counted_.batches == 0);
    load(shape, feed);
    if (counted_.batches == 0) loss_ = {};
  }
  [[nodiscard]] Index counted_targets() const {
    return static_cast<Index>(
        std::ranges::count_if(local_targets_, [](std::int32_t target) { return target != ignored_target; }));
  }
  // Comes before the backward pass, so that gradients are of the global mean. `before`: of batches accumulated before.
  [[nodiscard]] Index count_targets(Index before) {
    std::array<std::int64_t, 1> count{before + counted_targets()};
    if (held_.last_stage() == nullptr) return 0;
    axes_.for_batch_axes([&]<class P>(auto& communicator) { communicator.all_reduce(std::span(count)).wait(); });
    return count[0];
  }

  void run(const BatchShape& shape, const std::vector<schedule::Table>& tables, std::uint64_t step, Goal goal,
           double scale) {
    using schedule::ActionKind;
    const auto& actions = table_of(tables).actions;
    std::conditional_t<(stages > 1), PendingMessages<PipelineHandle>, NoMessages> pending;
    for (const schedule::Action& action : actions) {
      if (schedule::is_message(action.kind)) {
        if constexpr (stages > 1) pending.keep(action, post(shape, action));
        continue;
      }
      if constexpr (stages > 1) pending.before(action);
      if (schedule::is_hand(action.kind)) {
        if constexpr (chunks_per_rank > 1) hand(shape, action);
      } else if (action.kind == ActionKind::forward) {
        forward(shape, action, step, goal);
      } else {
        if (action.kind != ActionKind::backward_weight) backward(shape, action, step, scale);
        if constexpr (Lowered::unit_options.splits_backward)
          if (action.kind != ActionKind::backward_input) backward_weights(shape, action, step);
      }
    }
    if constexpr (stages > 1) pending.finish();
  }

  [[nodiscard]] Index rows_of(const BatchShape& shape) const {
    return shape.micro_batch_rows(axes_.mesh().batch_share().size);
  }
  [[nodiscard]] MicroBatch<Device> batch_of(const BatchShape& shape, const schedule::Action& action, bool training,
                                            std::uint64_t step) {
    const Index rows = rows_of(shape);
    const Index first = (counted_.samples + axes_.mesh().batch_share().rank * local_samples_) * shape.context;
    const Index local = action.micro_batch * rows;
    return chunk(action.chunk).stage().micro_batch(local, first + local, rows, training, step);
  }

  void forward(const BatchShape& shape, const schedule::Action& action, std::uint64_t step, Goal goal) {
    ChunkType& held = chunk(action.chunk);
    const auto batch = batch_of(shape, action, goal == Goal::gradients, step);
    const Index local_row = action.micro_batch * rows_of(shape);
    held.stage().forward(batch, action.slot, local_row, axes_.tensor(), held);
    if (!held.stage().last()) return;
    if constexpr (loss_apart) {
      // A training step finds it in the backward pass.
      if (goal == Goal::loss) loss_ += held.stage().loss_in_chunks(batch, action.slot, local_row, axes_.tensor(), held);
    } else {
      if (goal != Goal::logits) loss_ += held.stage().loss(batch, action.slot, local_row, axes_.tensor()).forward();
    }
  }
  void backward(const BatchShape& shape, const schedule::Action& action, std::uint64_t step, double scale) {
    ChunkType& held = chunk(action.chunk);
    const auto batch = batch_of(shape, action, true, step);
    const Index local_row = action.micro_batch * rows_of(shape);
    Matrix<T> incoming;
    if (!held.stage().last()) {
      incoming = held.stage().output_gradient(batch, action.slot);
    } else if constexpr (loss_apart) {
      loss_ += held.stage().backward_from_loss(batch, action.slot, local_row, scale, axes_.tensor(), held);
      return;
    } else {
      const auto loss = held.stage().loss(batch, action.slot, local_row, axes_.tensor());
      loss.backward(scale);
      incoming = loss.logits;
    }
    held.stage().backward(batch, action.slot, local_row, incoming, axes_.tensor(), held);
  }
  void backward_weights(const BatchShape& shape, const schedule::Action& action, std::uint64_t step) {
    ChunkType& held = chunk(action.chunk);
    held.stage().backward_weights(batch_of(shape, action, true, step), action.slot, action.micro_batch * rows_of(shape),
                                  held);
  }

  // A value of a boundary that two chunks of this rank share.
  void hand(const BatchShape& shape, const schedule::Action& action) {
    const auto batch = batch_of(shape, action, true, 0);
    auto& taker = chunk(action.chunk).stage();
    auto& giver = chunk(schedule::giving_chunk(action)).stage();
    if (action.kind == schedule::ActionKind::hand_forward)
      device_.copy(std::span<const T>(giver.output(batch, action.from_slot).flat()),
                   taker.input(batch, action.slot).flat());
    else
      device_.copy(std::span<const T>(giver.input_gradient(batch, action.from_slot).flat()),
                   taker.output_gradient(batch, action.slot).flat());
  }

  [[nodiscard]] auto post(const BatchShape& shape, const schedule::Action& action) {
    const auto batch = batch_of(shape, action, true, 0);
    auto& stage = chunk(action.chunk).stage();
    const int peer = schedule::partner_of(S::Pipeline::pipeline, action.kind, {stage_index(), action.chunk}).stage;
    auto& pipeline = axes_.pipeline();
    switch (action.kind) {
      case schedule::ActionKind::send_forward:
        return pipeline.send(std::span<const T>(stage.output(batch, action.slot).flat()), peer);
      case schedule::ActionKind::receive_forward:
        return pipeline.receive(stage.input(batch, action.slot).flat(), peer);
      case schedule::ActionKind::send_backward:
        return pipeline.send(std::span<const T>(stage.input_gradient(batch, action.slot).flat()), peer);
      default:
        return pipeline.receive(stage.output_gradient(batch, action.slot).flat(), peer);
    }
  }

  // Only ranks of the last stage know a loss; all ranks learn the sum over the data axis and the tensor axis. Beside it
  // travels whether all were given the same batch: n numbers are equal where n times their squares' sum is the square
  // of their sum.
  [[nodiscard]] BatchResult share_result(const BatchShape& shape, Index tokens) {
    const bool counts = held_.last_stage() != nullptr && axes_.mesh().template along<axes::Tensor>().rank == 0 &&
                        axes_.mesh().batch_share().rank == 0;
    std::array<double, 8> numbers{loss_.sum, counts ? static_cast<double>(tokens) : 0.0};
    if constexpr (S::static_ranks > 1 || S::has_dynamic) {
      const std::array<Index, 3> sizes{shape.samples, shape.context, shape.micro_batches};
      for (std::size_t i = 0; i < 3; ++i) {
        const auto size = static_cast<double>(sizes[i]);
        numbers[2 + i] = size;
        numbers[5 + i] = size * size;
      }
      axes_.world().all_reduce(std::span(numbers)).wait();
      const auto ranks = static_cast<double>(axes_.mesh().ranks());
      for (std::size_t i = 2; i < 5; ++i) {
        if (ranks * numbers[3 + i] != numbers[i] * numbers[i]) verify_same_shape(axes_.world(), shape);
      }
    }
    return {numbers[0], static_cast<Index>(std::llround(numbers[1]))};
  }
  // Called by all ranks or none. Sizes so large that the sums above were rounded are equal all the same.

  void gather_logits(Index row, std::span<T> result) {
    if (auto* const held = held_.last_chunk())
      held->gather_logits(local_samples_ * held->stage().context(), row, axes_.tensor(), result);
    if constexpr (S::static_ranks > 1 || S::has_dynamic) {
      axes_.world().broadcast(result, last_stage_root()).wait();
    }
  }
  // The rank of the last stage that is first along every other axis.
  [[nodiscard]] int last_stage_root() const {
    const int ranks_per_stage = axes_.mesh().ranks() / stages;
    return S::Pipeline::pipeline.place(S::Pipeline::virtual_stages - 1).stage * ranks_per_stage;
  }

  Device& device_;
  AxisCommunicators<S, C>& axes_;
  RankChunks<Lowered, S, Format, Device, C> held_;
  std::vector<schedule::Table> training_{};
  std::vector<schedule::Table> evaluation_{};
  int training_micro_batches_ = 0;
  int evaluation_micro_batches_ = 0;
  // Batches that were accumulated since the last step.
  struct Counted {
    int batches = 0;
    Index samples = 0;
    Index context = 0;
    Index targets = 0;     // on this rank
    double divisor = 1.0;  // of their losses
  };

  Index local_samples_ = 0;
  Counted counted_{};
  std::span<const std::int32_t> local_targets_{};
  LossSum loss_{};
};

}  // namespace dtrain::parallel
