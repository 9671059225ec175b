// Models that compile in a moment, and data for them, for the tests of this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/view.hpp"
#include "dtrain/data/token_array.hpp"
#include "dtrain/models/gpt.hpp"
#include "dtrain/models/mlp.hpp"
#include "dtrain/parallel/parameter_map.hpp"
#include "dtrain/parallel/schedules/gpipe.hpp"
#include "dtrain/parallel/schedules/one_forward_one_backward.hpp"

namespace dtrain::test {

/// Two features to two classes; every matrix divides over two tensor ranks, the blocks over three stages.
using TinyMlp = models::Mlp<models::MlpShape{.inputs = 2, .hidden = 4, .outputs = 2, .layers = 2}>;
/// A tied head, and a vocabulary that does not divide over two ranks.
using TinyGpt =
    models::Gpt<models::GptShape{.vocab = 11, .context = 6, .width = 8, .heads = 2, .layers = 2, .hidden = 16}>;

using Data2 = Strategy<DataParallel<2>>;
using Tensor2 = Strategy<TensorParallel<2>>;
using Sequence2 = Strategy<TensorParallel<2, SequenceParallel>>;
using Pipeline2 = Strategy<PipelineParallel<2>>;
using ThreeAxes = Strategy<DataParallel<2>, PipelineParallel<2, schedule::GPipe>, TensorParallel<2>>;

/// Samples of a text that repeats 0 1 2 ... `vocabulary` - 1: the next token is a function of this one.
inline data::TokenSamples counting_samples(Index samples, Index context, Index vocabulary) {
  data::TokenSamples made;
  for (Index i = 0; i < samples * context; ++i) {
    made.inputs.push_back(static_cast<std::int32_t>(i % vocabulary));
    made.targets.push_back(static_cast<std::int32_t>((i + 1) % vocabulary));
  }
  return made;
}
inline data::TokenArray counting_text(Index samples = 44, Index held_out = 0) {
  return {{.context = 6, .vocabulary = 11}, counting_samples(samples, 6, 11), counting_samples(held_out, 6, 11)};
}

/// Sets every element of this rank's parameters, and of its master weights, to `value(name, element of the whole
/// tensor)`.
template <class Trainer, class Value>
void set_weights(Trainer& trainer, Value value) {
  auto& stage = trainer.program().stage();
  for (const parallel::LocalParameter& parameter : stage.map())
    parallel::for_each_element(parameter, [&](Index local, Index whole) {
      const auto at = static_cast<std::size_t>(local);
      auto& element = stage.parameters()[at];
      const auto wide =
          static_cast<Accumulator<std::remove_reference_t<decltype(element)>>>(value(parameter.name, whole));
      element = wide;
      if constexpr (requires { trainer.optimizer_states()[0].masters(); })
        trainer.optimizer_states()[0].masters()[at] = wide;
    });
}

template <class T>
std::vector<T> copy_of(std::span<T> region) {
  return {region.begin(), region.end()};
}

/// What `act` throws of kind `E`; anything else, also nothing, gives a sentence that says so.
template <class E, class Act>
std::string sentence_of(Act&& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("(another exception) ") + error.what();
  }
  return "(nothing thrown)";
}

}  // namespace dtrain::test
