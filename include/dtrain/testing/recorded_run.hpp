// Trains a model under a strategy on in-process ranks for a few steps, and keeps whatever must not depend on the
// layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/device/host.hpp"
#include "dtrain/optim/adamw.hpp"
#include "dtrain/parallel/memory.hpp"
#include "dtrain/parallel/program.hpp"
#include "dtrain/train/launch.hpp"
#include "dtrain/train/trainer.hpp"

namespace dtrain::testing {

/// What is trained on: batches that are a function of (seed, step, sample, position), so that every layout sees the
/// same ones.
struct RunOptions {
  Index samples = 24;  ///< of the global batch
  Index context = 8;
  int micro_batches = 1;
  int steps = 5;
  std::uint64_t seed = 1;
  int threads_per_rank = 1;
  double learning_rate = 1e-2;
  double max_norm = 1.0;  ///< gradients are clipped to this norm; 0: never
  /// An epsilon above the usual: where a gradient is 0 but for rounding (that of a bias of keys), AdamW multiplies the
  /// rounding by learning rate / epsilon, which at 1e-8 shows above 1e-12.
  AdamW optimizer{.epsilon = 1e-6};
  /// Whether a target is not counted. Unless set, about one in five is not.
  std::function<bool(int step, Index sample, Index position)> ignored{};
  /// Changes the weights before the first step: called with a parameter's name, its element of the whole tensor and
  /// its start.
  std::function<double(const std::string& name, Index element, double start)> start{};
};

/// A tensor that may not depend on the layout, whole.
using WholeTensors = std::map<std::string, std::vector<double>>;

/// What one step gave.
struct RecordedStep {
  double loss = 0.0;
  Index tokens = 0;
  double gradient_norm = 0.0;
  WholeTensors gradients;  ///< not clipped, before the optimizer
  WholeTensors weights;    ///< after the optimizer
};

/// What a run gave, independent of model and strategy types.
struct RecordedRun {
  std::string strategy;
  int micro_batches = 1;
  WholeTensors start;  ///< the initial weights
  std::vector<RecordedStep> steps;
  double evaluation_loss = 0.0;  ///< of the last batch, after the last step, without dropout
};

namespace detail {

/// Elements that a rank keeps of one whole tensor, among those of all its chunks.
struct HeldTensor {
  std::string name;
  Index whole_size = 0;
  std::vector<std::pair<Index, Index>> elements{};  ///< place in the copy, place in the whole tensor

  void add(Index place, Index whole, Index count) {
    for (Index i = 0; i < count; ++i) elements.push_back({place + i, whole + i});
  }
};

/// One rank's half of a record: copies of its regions, to be put together when all ranks are done.
struct RankRecord {
  std::vector<HeldTensor> held_weights;
  std::vector<HeldTensor> held_gradients;
  std::vector<double> start;
  std::vector<train::StepReport> reports;
  std::vector<std::vector<double>> gradients;
  std::vector<std::vector<double>> weights;
  double evaluation_loss = 0.0;
  Index predicted_bytes = 0;
  Index allocated_bytes = 0;
};

// Copies of what the chunks of a program keep, one behind the other.
template <class Program>
std::vector<double> copy_of_weights(Program& program) {
  std::vector<double> copy;
  for (auto& chunk : program.chunks())
    for (const auto value : chunk->stage().parameters()) copy.push_back(static_cast<double>(value));
  return copy;
}
template <class Program>
std::vector<double> copy_of_gradients(Program& program) {
  std::vector<double> copy;
  for (auto& chunk : program.chunks())
    for (const auto value : chunk->stage().gradients()) copy.push_back(static_cast<double>(value));
  return copy;
}

/// Fills a range of samples of the batch of a step.
template <class Input>
void fill_batch(const RunOptions& options, Index classes, int step, Range samples, std::span<Input> inputs,
                std::span<std::int32_t> targets) {
  const RandomStream drawn_inputs(options.seed, hash_name("inputs"), static_cast<std::uint64_t>(step));
  const RandomStream drawn_targets(options.seed, hash_name("targets"), static_cast<std::uint64_t>(step));
  const auto rows = static_cast<std::size_t>(samples.size() * options.context);
  const std::size_t width = inputs.size() / rows;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto element = static_cast<std::uint64_t>(samples.begin * options.context) * width + i;
    if constexpr (std::is_same_v<Input, std::int32_t>)
      inputs[i] = static_cast<std::int32_t>(drawn_inputs.bits(element) % static_cast<std::uint32_t>(classes));
    else
      inputs[i] = static_cast<Input>(static_cast<Accumulator<Input>>(drawn_inputs.normal(element)));
  }
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const Index sample = samples.begin + static_cast<Index>(row) / options.context;
    const Index position = static_cast<Index>(row) % options.context;
    const auto element = static_cast<std::uint64_t>(sample * options.context + position);
    const bool ignored = options.ignored ? options.ignored(step, sample, position)
                                         : RandomStream(options.seed, hash_name("ignored")).bits(element) % 5 == 0;
    targets[row] = ignored
                       ? parallel::ignored_target
                       : static_cast<std::int32_t>(drawn_targets.bits(element) % static_cast<std::uint32_t>(classes));
  }
}

/// Puts the ranks' pieces of tensors together. Throws Error where two ranks hold other bits for the same element, or
/// where nobody holds one.
inline WholeTensors assemble(const std::vector<RankRecord>& ranks, std::string_view what, std::string_view strategy,
                             const std::function<const std::vector<HeldTensor>&(const RankRecord&)>& held_of,
                             const std::function<const std::vector<double>&(const RankRecord&)>& region_of) {
  WholeTensors whole;
  std::map<std::string, std::vector<int>> holders;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<double>& region = region_of(ranks[rank]);
    for (const HeldTensor& tensor : held_of(ranks[rank])) {
      auto& values = whole[tensor.name];
      auto& holder = holders[tensor.name];
      values.resize(static_cast<std::size_t>(tensor.whole_size));
      holder.resize(static_cast<std::size_t>(tensor.whole_size), -1);
      for (const auto& [local, element] : tensor.elements) {
        const auto at = static_cast<std::size_t>(element);
        const double value = region[static_cast<std::size_t>(local)];
        if (holder[at] >= 0 && std::memcmp(&values[at], &value, sizeof value) != 0)
          throw Error(concatenate("dtrain: under ", strategy, ", copies of a ", what, " differ: element ", element,
                                  " of ", tensor.name, " is ", values[at], " on rank ", holder[at], " and ", value,
                                  " on rank ", rank, ", a difference of ", value - values[at], "."));
        values[at] = value;
        holder[at] = static_cast<int>(rank);
      }
    }
  }
  for (const auto& [name, holder] : holders)
    for (std::size_t element = 0; element < holder.size(); ++element)
      if (holder[element] < 0)
        throw Error(concatenate("dtrain: under ", strategy, ", no rank holds element ", element, " of ", name, "."));
  return whole;
}

template <class Program>
void find_held_tensors(Program& program, RankRecord& record) {
  Index weights = 0;
  Index gradients = 0;
  for (auto& chunk : program.chunks()) {
    const auto& store = chunk->stage().store();
    for (const parallel::LocalParameter& parameter : store.map()) {
      const HeldTensor tensor{parameter.name, parameter.whole_rows * parameter.whole_columns};
      record.held_weights.push_back(tensor);
      store.for_parameter_runs(parameter, [&](Index at, Index whole, Index count) {
        record.held_weights.back().add(weights + at, whole, count);
      });
      record.held_gradients.push_back(tensor);
      store.for_gradient_runs(parameter, [&](Index at, Index whole, Index count) {
        record.held_gradients.back().add(gradients + at, whole, count);
      });
    }
    weights += static_cast<Index>(chunk->stage().parameters().size());
    gradients += static_cast<Index>(chunk->stage().gradients().size());
  }
}

/// Changes the weights before the first step.
template <class Format, class Trainer>
void change_start(Trainer& trainer, const RunOptions& options) {
  for (std::size_t c = 0; c < trainer.program().chunks().size(); ++c) {
    auto& stage = trainer.program().chunks()[c]->stage();
    [[maybe_unused]] auto& optimizer = trainer.optimizer_states()[c];
    for (const parallel::LocalParameter& parameter : stage.map())
      stage.store().for_update_runs(parameter, [&](Index at, Index state, Index whole, Index count) {
        for (Index i = 0; i < count; ++i) {
          const auto changed = [&](auto& element) {
            using Element = std::remove_reference_t<decltype(element)>;
            element = static_cast<Element>(options.start(parameter.name, whole + i, static_cast<double>(element)));
          };
          auto& weight = stage.parameters()[static_cast<std::size_t>(at + i)];
          if constexpr (PrecisionOf<Format>::has_master) {
            auto& master = optimizer.masters()[static_cast<std::size_t>(state + i)];
            changed(master);
            weight = master;
          } else {
            changed(weight);
          }
        }
      });
  }
  trainer.program().publish_parameters();
}

/// One rank's part of a run.
template <class Model, class S, NumberFormat Format>
void record_rank(train::Rank<S, Host>& rank, const RunOptions& options, RankRecord& record) {
  using Trainer = train::Trainer<Model, S, AdamW, Format>;
  Trainer trainer(rank, {.learning_rate = options.learning_rate,
                         .optimizer = options.optimizer,
                         .clip = options.max_norm,
                         .seed = options.seed});
  find_held_tensors(trainer.program(), record);
  if (options.start) change_start<Format>(trainer, options);
  record.start = copy_of_weights(trainer.program());
  const parallel::BatchShape shape{
      .samples = options.samples, .context = options.context, .micro_batches = options.micro_batches};
  constexpr Index classes = Trainer::Program::classes;
  int now = 0;
  const auto feed = [&](Range samples, auto inputs, std::span<std::int32_t> targets) {
    fill_batch(options, classes, now, samples, inputs, targets);
  };
  for (; now < options.steps; ++now) {
    record.reports.push_back(trainer.step(shape, feed));
    record.gradients.push_back(copy_of_gradients(trainer.program()));
    for (double& gradient : record.gradients.back()) gradient /= record.reports.back().loss_scale;
    record.weights.push_back(copy_of_weights(trainer.program()));
  }
  record.evaluation_loss = trainer.program().evaluate(shape, feed).loss();
  record.predicted_bytes =
      parallel::memory_of_rank<Model, S, Format>(rank.index(), shape, {.optimizer_states = AdamW::states}).total();
  record.allocated_bytes = rank.device().live_bytes();
}

/// Every rank allocated the bytes that `memory_of_rank` predicts of the types, the optimizer's state among them.
inline void check_memory(const std::vector<RankRecord>& ranks, std::string_view strategy) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].predicted_bytes != ranks[rank].allocated_bytes)
      throw Error(concatenate("dtrain: under ", strategy, ", rank ", rank, " is predicted ",
                              ranks[rank].predicted_bytes, " bytes and allocated ", ranks[rank].allocated_bytes, "."));
}

/// Every rank tells the same number, to the bit.
inline double agreed(const std::vector<RankRecord>& ranks, std::string_view what, std::string_view strategy,
                     const std::function<double(const RankRecord&)>& number_of) {
  const double first = number_of(ranks.front());
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    const double other = number_of(ranks[rank]);
    if (std::memcmp(&first, &other, sizeof first) != 0)
      throw Error(concatenate("dtrain: under ", strategy, ", the ", what, " is ", first, " on rank 0 and ", other,
                              " on rank ", rank, ", a difference of ", other - first, "."));
  }
  return first;
}

}  // namespace detail

/// Trains `Model` under `S` with AdamW on ranks that are threads of this process, in the numbers of `Format`.
/// Throws Error when copies of a weight or of a gradient differ in a bit, when ranks disagree on the loss or the norm,
/// or when a rank allocates other than is predicted; and whatever a rank throws.
template <class Model, class S, NumberFormat Format = double>
RecordedRun record_run(const RunOptions& options) {
  static_assert(!S::has_dynamic, "dtrain: a recorded run needs a strategy whose degrees are all known");
  std::vector<detail::RankRecord> ranks(static_cast<std::size_t>(S::static_ranks));
  train::run_ranks<S>(
      [&](train::Rank<S, Host>& rank) {
        detail::record_rank<Model, S, Format>(rank, options, ranks[static_cast<std::size_t>(rank.index())]);
      },
      {.threads_per_rank = options.threads_per_rank});
  detail::check_memory(ranks, S::describe());
  using Record = detail::RankRecord;
  const std::string name = S::describe();
  RecordedRun run;
  run.strategy = name;
  run.micro_batches = options.micro_batches;
  const auto weights = [](const Record& r) -> const auto& { return r.held_weights; };
  const auto gradients = [](const Record& r) -> const auto& { return r.held_gradients; };
  run.start = detail::assemble(ranks, "start", name, weights, [](const Record& r) -> const auto& { return r.start; });
  for (std::size_t step = 0; step < static_cast<std::size_t>(options.steps); ++step) {
    RecordedStep recorded;
    recorded.tokens = ranks[0].reports[step].counted_tokens;
    recorded.loss = detail::agreed(ranks, "loss", name, [=](const Record& r) { return r.reports[step].loss; });
    recorded.gradient_norm =
        detail::agreed(ranks, "norm", name, [=](const Record& r) { return r.reports[step].gradient_norm; });
    recorded.gradients = detail::assemble(ranks, "gradient", name, gradients,
                                          [=](const Record& r) -> const auto& { return r.gradients[step]; });
    recorded.weights = detail::assemble(ranks, "weight", name, weights,
                                        [=](const Record& r) -> const auto& { return r.weights[step]; });
    run.steps.push_back(std::move(recorded));
  }
  run.evaluation_loss =
      detail::agreed(ranks, "evaluation loss", name, [](const Record& r) { return r.evaluation_loss; });
  return run;
}

}  // namespace dtrain::testing
