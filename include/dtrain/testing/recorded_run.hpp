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
  int ranks = 0;  ///< under a strategy with a dynamic degree; 0: what the static degrees make
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

// What follows knows stores and not strategies, which share it.
template <class Program>
auto stores_of(Program& program) {
  std::vector<std::remove_reference_t<decltype(program.stage().store())>*> stores;
  for (auto& chunk : program.chunks()) stores.push_back(&chunk->stage().store());
  return stores;
}
// Copies of what the chunks of a rank keep, one behind the other.
template <class Store>
[[gnu::cold]] std::vector<double> copy_of_weights(const std::vector<Store*>& stores) {
  std::vector<double> copy;
  for (Store* const store : stores)
    for (const auto value : store->parameters()) copy.push_back(static_cast<double>(value));
  return copy;
}
template <class Store>
[[gnu::cold]] std::vector<double> copy_of_gradients(const std::vector<Store*>& stores, double scale) {
  std::vector<double> copy;
  for (Store* const store : stores)
    for (const auto value : store->gradients()) copy.push_back(static_cast<double>(value) / scale);
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

template <class Store>
[[gnu::cold]] void find_held_tensors(const std::vector<Store*>& stores, RankRecord& record) {
  Index weights = 0;
  Index gradients = 0;
  for (Store* const store : stores) {
    for (const parallel::LocalParameter& parameter : store->map()) {
      const HeldTensor tensor{parameter.name, parameter.whole_rows * parameter.whole_columns};
      record.held_weights.push_back(tensor);
      store->for_parameter_runs(parameter, [&](Index at, Index whole, Index count) {
        record.held_weights.back().add(weights + at, whole, count);
      });
      record.held_gradients.push_back(tensor);
      store->for_gradient_runs(parameter, [&](Index at, Index whole, Index count) {
        record.held_gradients.back().add(gradients + at, whole, count);
      });
    }
    weights += static_cast<Index>(store->parameters().size());
    gradients += static_cast<Index>(store->gradients().size());
  }
}

/// Changes the weights before the first step.
template <NumberFormat Format, class Store, class Optimizer>
[[gnu::cold]] void change_start(const std::vector<Store*>& stores, std::vector<Optimizer>& optimizers,
                                const RunOptions& options) {
  for (std::size_t c = 0; c < stores.size(); ++c)
    for (const parallel::LocalParameter& parameter : stores[c]->map())
      stores[c]->for_update_runs(parameter, [&](Index at, Index state, Index whole, Index count) {
        for (Index i = 0; i < count; ++i) {
          const auto changed = [&](auto& element) {
            using Element = std::remove_reference_t<decltype(element)>;
            element = static_cast<Element>(options.start(parameter.name, whole + i, static_cast<double>(element)));
          };
          auto& weight = stores[c]->parameters()[static_cast<std::size_t>(at + i)];
          if constexpr (PrecisionOf<Format>::has_master) {
            auto& master = optimizers[c].masters()[static_cast<std::size_t>(state + i)];
            changed(master);
            weight = master;
          } else {
            static_cast<void>(state);
            changed(weight);
          }
        }
      });
}

/// One rank's part of a run.
template <class Model, class S, NumberFormat Format>
[[gnu::cold]] void record_rank(train::Rank<S, Host>& rank, const RunOptions& options, RankRecord& record) {
  using Trainer = train::Trainer<Model, S, AdamW, Format>;
  Trainer trainer(rank, {.learning_rate = options.learning_rate,
                         .optimizer = options.optimizer,
                         .clip = options.max_norm,
                         .seed = options.seed});
  const auto stores = stores_of(trainer.program());
  find_held_tensors(stores, record);
  if (options.start) {
    change_start<Format>(stores, trainer.optimizer_states(), options);
    trainer.program().publish_parameters();
  }
  record.start = copy_of_weights(stores);
  const parallel::BatchShape shape{
      .samples = options.samples, .context = options.context, .micro_batches = options.micro_batches};
  constexpr Index classes = Trainer::Program::classes;
  int now = 0;
  const auto feed = [&](Range samples, auto inputs, std::span<std::int32_t> targets) {
    fill_batch(options, classes, now, samples, inputs, targets);
  };
  for (; now < options.steps; ++now) {
    record.reports.push_back(trainer.step(shape, feed));
    record.gradients.push_back(copy_of_gradients(stores, record.reports.back().loss_scale));
    record.weights.push_back(copy_of_weights(stores));
  }
  record.evaluation_loss = trainer.program().evaluate(shape, feed).loss();
  record.predicted_bytes = parallel::memory_of_rank<Model, S, Format>(
                               rank.index(), shape, {.ranks = rank.count(), .optimizer_states = AdamW::states})
                               .total();
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

/// Puts the records of all ranks together, and refuses what they must not differ in.
[[gnu::cold]] inline RecordedRun assemble_run(const std::vector<RankRecord>& ranks, const RunOptions& options,
                                              const std::string& name) {
  check_memory(ranks, name);
  using Record = RankRecord;
  RecordedRun run;
  run.strategy = name;
  run.micro_batches = options.micro_batches;
  const auto weights = [](const Record& r) -> const auto& { return r.held_weights; };
  const auto gradients = [](const Record& r) -> const auto& { return r.held_gradients; };
  run.start = assemble(ranks, "start", name, weights, [](const Record& r) -> const auto& { return r.start; });
  for (std::size_t step = 0; step < static_cast<std::size_t>(options.steps); ++step) {
    RecordedStep recorded;
    recorded.tokens = ranks[0].reports[step].counted_tokens;
    recorded.loss = agreed(ranks, "loss", name, [=](const Record& r) { return r.reports[step].loss; });
    recorded.gradient_norm =
        agreed(ranks, "norm", name, [=](const Record& r) { return r.reports[step].gradient_norm; });
    recorded.gradients =
        assemble(ranks, "gradient", name, gradients, [=](const Record& r) -> const auto& { return r.gradients[step]; });
    recorded.weights =
        assemble(ranks, "weight", name, weights, [=](const Record& r) -> const auto& { return r.weights[step]; });
    run.steps.push_back(std::move(recorded));
  }
  run.evaluation_loss = agreed(ranks, "evaluation loss", name, [](const Record& r) { return r.evaluation_loss; });
  return run;
}

}  // namespace detail

/// Trains `Model` under `S` with AdamW on ranks that are threads of this process, in the numbers of `Format`.
/// Throws Error when copies of a weight or of a gradient differ in a bit, when ranks disagree on the loss or the norm,
/// or when a rank allocates other than is predicted; and whatever a rank throws.
template <class Model, class S, NumberFormat Format = double>
[[gnu::cold]] RecordedRun record_run(const RunOptions& options) {
  const int count = S::has_dynamic && options.ranks > 0 ? options.ranks : S::static_ranks;
  std::vector<detail::RankRecord> ranks(static_cast<std::size_t>(count));
  train::run_ranks<S>(
      [&](train::Rank<S, Host>& rank) {
        detail::record_rank<Model, S, Format>(rank, options, ranks[static_cast<std::size_t>(rank.index())]);
      },
      {.ranks = count, .threads_per_rank = options.threads_per_rank});
  return detail::assemble_run(ranks, options,
                              S::has_dynamic ? concatenate(S::describe(), " on ", count, " ranks") : S::describe());
}

}  // namespace dtrain::testing
