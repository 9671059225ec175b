// The models, batches and comparisons of the equivalence grid: every strategy trains a model to the numbers of one
// rank.
#pragma once

#include <exception>
#include <initializer_list>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include "dtrain/models/gpt.hpp"
#include "dtrain/models/llama.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"
#include "dtrain/parallel/schedules/interleaved_1f1b.hpp"
#include "dtrain/parallel/schedules/one_forward_one_backward.hpp"
#include "dtrain/parallel/schedules/zero_bubble_h1.hpp"
#include "dtrain/parallel/schedules/zero_bubble_v.hpp"
#include "dtrain/testing/equivalence.hpp"
#include "dtrain/testing/precision_comparison.hpp"
#include "report.hpp"

namespace dtrain::test {

// A context of 7 divides over no tensor degree but 1, and neither vocabulary divides without padding. The units do not
// depend on the number of layers: models of other depths cost little to compile.
template <int Layers>
using GridGptOf = models::Gpt<models::GptShape{
    .vocab = 17, .context = 7, .width = 16, .heads = 4, .layers = Layers, .hidden = 24, .dropout = 0.2}>;
using GridGpt = GridGptOf<4>;
template <int Layers>
using GridLlamaOf = models::Llama<models::LlamaShape{.vocab = 7,
                                                     .context = 7,
                                                     .width = 16,
                                                     .heads = 4,
                                                     .layers = Layers,
                                                     .key_value_heads = 2,
                                                     .hidden = 20,
                                                     .dropout = 0.1}>;
using GridLlama = GridLlamaOf<4>;
// One key/value head for all tensor ranks, and a tied head.
using GridOneKeyGpt = models::Gpt<models::GptShape{.vocab = 7,
                                                   .context = 5,
                                                   .width = 16,
                                                   .heads = 4,
                                                   .layers = 2,
                                                   .key_value_heads = 1,
                                                   .hidden = 24,
                                                   .dropout = 0.2}>;
using GridOneKeyLlama = models::Llama<models::LlamaShape{.vocab = 17,
                                                         .context = 5,
                                                         .width = 16,
                                                         .heads = 4,
                                                         .layers = 2,
                                                         .key_value_heads = 1,
                                                         .hidden = 20,
                                                         .dropout = 0.1,
                                                         .tied = true}>;

using schedule::GPipe;
using schedule::Interleaved1F1B;
using schedule::OneForwardOneBackward;
using schedule::ZeroBubbleH1;
using schedule::ZeroBubbleV;

// Data ranks are counted at the launch: one program serves every number of them.
using Data = DataParallel<dynamic>;
template <int Level, class... Options>
using Sharded = DataParallel<dynamic, Zero<Level, Options...>>;
using FullRecompute = Recompute<recompute::Full>;
using EverySecond = Recompute<recompute::EveryBlock<2>>;
using Selective = Recompute<recompute::Attention, recompute::NormsAndActivations>;

/// Into how many parts a batch is cut: over data ranks, and then over time.
struct Cut {
  int data = 1;
  int micro_batches = 1;
};

/// Besides scattered targets, those of an eighth of the samples in a row are not counted: a micro-batch of its own
/// where there are 8, and more from one data rank than from another.
inline testing::RunOptions grid_options(Cut cut, Index context) {
  const Index parts = Index{cut.data} * cut.micro_batches;
  testing::RunOptions options{.samples = (24 + parts - 1) / parts * parts,
                              .context = context,
                              .micro_batches = cut.micro_batches,
                              .seed = 20240607};
  const Index eighth = options.samples / 8;
  options.ignored = [eighth](int step, Index sample, Index position) {
    return (sample >= eighth && sample < 2 * eighth) || (3 * sample + 5 * position + step) % 7 == 0;
  };
  return options;
}

/// What a strategy is made of.
template <class S>
constexpr Parts parts_of() {
  using Pipeline = typename S::Pipeline;
  using Schedule = typename Pipeline::Schedule;
  Parts parts = 0;
  const auto add = [&](bool there, Part part) { parts |= there ? set_of(part) : 0u; };
  add(S::sharding.level == 1, Part::zero_1);
  add(S::sharding.level == 2, Part::zero_2);
  add(S::sharding.level == 3, Part::zero_3);
  add(S::sharding.within > 0, Part::hybrid);
  add(S::Tensor::degree > 1, S::Tensor::sequence_parallel ? Part::sequence : Part::tensor);
  if (Pipeline::degree > 1) {
    add(std::is_same_v<Schedule, GPipe>, Part::gpipe);
    add(std::is_same_v<Schedule, OneForwardOneBackward>, Part::one_forward_one_backward);
    add(std::is_same_v<Schedule, Interleaved1F1B>, Part::interleaved);
    add(std::is_same_v<Schedule, ZeroBubbleH1>, Part::zero_bubble_h1);
    add(std::is_same_v<Schedule, ZeroBubbleV>, Part::zero_bubble_v);
  }
  add(S::recomputation.every == 1, Part::full);
  add(S::recomputation.every > 1, Part::every_nth);
  add(S::recomputation.attention || S::recomputation.norms || S::recomputation.activations, Part::selective);
  add(S::loss_rows > 0, Part::chunked_loss);
  return parts;
}

/// Runs a compiled strategy under these options.
using Recorder = testing::RecordedRun (*)(const testing::RunOptions&);

/// A model under many strategies, each compared with one rank that takes the batch as a whole.
class Comparer {
 public:
  Comparer(Report& report, std::string model, Index context, Recorder serial)
      : report_(report), model_(std::move(model)), context_(context), serial_(serial) {}
  /// Runs are in 16 bits and compared as `compare_precision` does.
  Comparer& in_sixteen_bits(double bound) {
    bound_ = bound;
    narrow_ = true;
    return *this;
  }

  void compare(Recorder recorder, const std::string& strategy, Parts parts, int static_ranks, Cut cut) {
    if (!report_.wants(model_, strategy)) return;
    if (cut.data > 1) parts |= set_of(Part::data);
    if (narrow_) parts |= set_of(Part::sixteen_bits);
    Combination combination{
        .model = model_, .strategy = strategy, .micro_batches = cut.micro_batches, .parts = parts, .bound = bound_};
    try {
      testing::RunOptions options = grid_options(cut, context_);
      options.ranks = static_ranks * cut.data;
      if (narrow_) shorten(options);
      const testing::RecordedRun run = recorder(options);
      combination.difference = narrow_ ? testing::compare_precision(reference(options), run, bound_)
                                       : testing::compare_runs(reference(options), run, bound_);
    } catch (const std::exception& error) {
      combination.failure = error.what();
    }
    report_.add(std::move(combination));
  }

 private:
  // "DataParallel<dynamic = 3>".
  static std::string with_data_ranks(std::string strategy, int ranks) {
    const std::string word = "dynamic";
    const std::size_t at = strategy.find(word);
    if (at != std::string::npos) strategy.replace(at, word.size(), concatenate(word, " = ", ranks));
    return strategy;
  }
  // Roundings grow with every step, and AdamW's first steps take the sign of each element of a gradient, whatever its
  // size.
  static void shorten(testing::RunOptions& options) {
    options.steps = 2;
    options.learning_rate = 1e-3;
    options.optimizer = {.epsilon = 1e-3};
  }
  const testing::RecordedRun& reference(testing::RunOptions options) {
    options.micro_batches = 1;
    const auto found = references_.find(options.samples);
    if (found != references_.end()) return found->second;
    return references_.emplace(options.samples, serial_(options)).first->second;
  }

  Report& report_;
  std::string model_;
  Index context_;
  Recorder serial_;
  double bound_ = 1e-12;
  bool narrow_ = false;
  std::map<Index, testing::RecordedRun> references_{};
};

/// The comparer of a model in the numbers of a format.
template <class Model, NumberFormat Format = double>
class Grid {
  static constexpr bool narrow = sizeof(typename PrecisionOf<Format>::Parameter) == 2;
  using Wide = std::conditional_t<narrow, float, Format>;

 public:
  Grid(Report& report, std::string model, Index context = 7)
      : comparer_(report, std::move(model), context, &testing::record_run<Model, Serial, Wide>) {}
  Grid(Report& report, std::string model, double bound)
    requires narrow
      : comparer_(report, std::move(model), 7, &testing::record_run<Model, Serial, Wide>) {
    comparer_.in_sixteen_bits(bound);
  }

  /// A strategy whose degrees are all known, for several numbers of micro-batches.
  template <class S>
  void check(std::initializer_list<int> micro_batches) {
    static_assert(!S::has_dynamic);
    for (const int count : micro_batches) compare<S>({S::Data::degree, count});
  }
  /// A strategy whose data ranks are counted at the launch.
  template <class S>
  void check_cuts(std::initializer_list<Cut> cuts) {
    static_assert(S::has_dynamic);
    for (const Cut cut : cuts) compare<S>(cut);
  }

 private:
  template <class S>
  void compare(Cut cut) {
    comparer_.compare(&testing::record_run<Model, S, Format>, S::describe(), parts_of<S>(),
                      S::static_ranks / (S::has_dynamic ? 1 : S::Data::degree), cut);
  }

  Comparer comparer_;
};

// One kind of tensor parallelism alone, and in every kind of company.
template <class Tensor, class GridType>
void check_tensor(GridType& grid) {
  grid.template check<Strategy<Tensor>>({1, 3});
  grid.template check_cuts<Strategy<Data, Tensor>>({{2, 2}, {2, 5}});
  grid.template check<Strategy<PipelineParallel<3, GPipe>, Tensor>>({2});
  grid.template check_cuts<Strategy<Data, PipelineParallel<2, OneForwardOneBackward>, Tensor>>({{2, 1}, {2, 3}});
  grid.template check_cuts<Strategy<Tensor, PipelineParallel<2, GPipe>, Data>>({{3, 8}});
}

// Pipelines with whole stages.
template <class GridType>
void check_pipelines(GridType& grid) {
  grid.template check<Strategy<PipelineParallel<2, GPipe>>>({1, 2, 3, 5, 8});
  grid.template check<Strategy<PipelineParallel<2, OneForwardOneBackward>>>({1, 2, 3, 5, 8});
  grid.template check<Strategy<PipelineParallel<3, GPipe>>>({1, 2, 3, 5, 8});
  grid.template check<Strategy<PipelineParallel<3, OneForwardOneBackward>>>({1, 2, 3, 5, 8});
  grid.template check<Strategy<PipelineParallel<4, GPipe>>>({1, 2, 3, 5, 8});
  grid.template check<Strategy<PipelineParallel<4, OneForwardOneBackward>>>({1, 2, 3, 5, 8});
}

// Micro-batches, data parallelism, and data with pipeline parallelism.
template <class GridType>
void check_data(GridType& grid) {
  grid.template check<Serial>({2, 3, 5, 8});
  grid.template check<Strategy<DataParallel<2>>>({1, 2, 3, 5});
  grid.template check_cuts<Strategy<Data>>({{3, 1}, {3, 2}, {3, 5}, {3, 8}, {4, 2}});
  grid.template check<Strategy<DataParallel<3, BucketBytes<1000>>>>({2});
  grid.template check_cuts<Strategy<Data, PipelineParallel<2>>>({{2, 1}, {2, 3}});
  grid.template check_cuts<Strategy<Data, PipelineParallel<4>>>({{3, 2}, {3, 8}});
}

}  // namespace dtrain::test
