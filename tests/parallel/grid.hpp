// The models and batches of the equivalence grid: every strategy must train them to the same numbers as one rank.
#pragma once

#include <doctest/doctest.h>

#include <initializer_list>
#include <map>
#include <string>

#include "dtrain/models/gpt.hpp"
#include "dtrain/models/llama.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"
#include "dtrain/parallel/schedules/one_forward_one_backward.hpp"
#include "dtrain/testing/equivalence.hpp"

namespace dtrain::test {

// A context of 7 divides over no tensor degree but 1, and neither vocabulary divides without padding.
using GridGpt = models::Gpt<models::GptShape{
    .vocab = 17, .context = 7, .width = 16, .heads = 4, .layers = 4, .hidden = 24, .dropout = 0.2}>;
using GridLlama = models::Llama<models::LlamaShape{.vocab = 7,
                                                   .context = 7,
                                                   .width = 16,
                                                   .heads = 4,
                                                   .layers = 4,
                                                   .key_value_heads = 2,
                                                   .hidden = 20,
                                                   .dropout = 0.1}>;
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
using schedule::OneForwardOneBackward;

/// 24 samples divide over 3 data ranks x 8 micro-batches, 30 over 3 x 5. Besides scattered ones, an eighth of the
/// samples in a row is not counted at all: a micro-batch of its own where there are 8, and more from one data rank
/// than from another.
inline testing::RunOptions grid_options(int micro_batches, Index context) {
  testing::RunOptions options{.samples = micro_batches % 5 == 0 ? 30 : 24,
                              .context = context,
                              .micro_batches = micro_batches,
                              .seed = 20240607};
  const Index eighth = options.samples / 8;
  options.ignored = [eighth](int step, Index sample, Index position) {
    return (sample >= eighth && sample < 2 * eighth) || (3 * sample + 5 * position + step) % 7 == 0;
  };
  return options;
}

/// Compares strategies with one rank and one micro-batch, to 1e-12 in double.
template <class Model, Index Context = 7>
class Grid {
 public:
  template <class S>
  void check(std::initializer_list<int> micro_batches) {
    for (const int count : micro_batches) {
      const std::string strategy = S::describe();
      CAPTURE(strategy);
      CAPTURE(count);
      const testing::RunOptions options = grid_options(count, Context);
      CHECK_NOTHROW(testing::compare_runs(reference(options), testing::record_run<Model, S>(options), 1e-12));
    }
  }

 private:
  const testing::RecordedRun& reference(testing::RunOptions options) {
    options.micro_batches = 1;
    const auto found = references_.find(options.samples);
    if (found != references_.end()) return found->second;
    return references_.emplace(options.samples, testing::record_run<Model, Serial>(options)).first->second;
  }

  std::map<Index, testing::RecordedRun> references_{};
};

/// One kind of tensor parallelism alone, and in every kind of company.
template <class Tensor, class Model, Index Context>
void check_tensor(Grid<Model, Context>& grid) {
  grid.template check<Strategy<Tensor>>({1, 3});
  grid.template check<Strategy<DataParallel<2>, Tensor>>({2, 5});
  grid.template check<Strategy<PipelineParallel<3, GPipe>, Tensor>>({2});
  grid.template check<Strategy<DataParallel<2>, PipelineParallel<2, OneForwardOneBackward>, Tensor>>({1, 3});
  grid.template check<Strategy<Tensor, PipelineParallel<2, GPipe>, DataParallel<3>>>({8});
}

/// Every pipeline of the model.
template <class Model, Index Context>
void check_pipelines(Grid<Model, Context>& grid) {
  grid.template check<Strategy<PipelineParallel<2, GPipe>>>({1, 2, 3, 5, 8});
  grid.template check<Strategy<PipelineParallel<2, OneForwardOneBackward>>>({1, 2, 3, 5, 8});
  grid.template check<Strategy<PipelineParallel<3, GPipe>>>({1, 2, 3, 5, 8});
  grid.template check<Strategy<PipelineParallel<3, OneForwardOneBackward>>>({1, 2, 3, 5, 8});
  grid.template check<Strategy<PipelineParallel<4, GPipe>>>({1, 2, 3, 5, 8});
  grid.template check<Strategy<PipelineParallel<4, OneForwardOneBackward>>>({1, 2, 3, 5, 8});
}

/// Micro-batches, data parallelism, and data with pipeline parallelism.
template <class Model, Index Context>
void check_data(Grid<Model, Context>& grid) {
  grid.template check<Serial>({2, 3, 5, 8});
  grid.template check<Strategy<DataParallel<2>>>({1, 2, 3, 5});
  grid.template check<Strategy<DataParallel<3>>>({1, 2, 5, 8});
  grid.template check<Strategy<DataParallel<3, BucketBytes<1000>>>>({2});
  grid.template check<Strategy<DataParallel<2>, PipelineParallel<2>>>({1, 3});
  grid.template check<Strategy<DataParallel<3>, PipelineParallel<4>>>({2, 8});
}

}  // namespace dtrain::test
