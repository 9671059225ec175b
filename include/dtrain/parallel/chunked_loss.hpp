// The loss in chunks of rows, as a part of a strategy: never more logits than one chunk has.
#pragma once

#include <string>

#include "dtrain/core/text.hpp"
#include "dtrain/core/view.hpp"

namespace dtrain::parallel {

/// A part of a strategy that stands on no axis: the model's last unit and the loss run `Rows` rows of a micro-batch at
/// a time, in a training step forward, loss and backward, before the next rows are taken. Of the logits only a chunk
/// exists then, and nothing that the unit computes is kept: for 8192 rows of 151,936 classes in float, chunks of 1024
/// rows take 0.58 GiB instead of 4.64. Nothing is computed twice. Every layer of the unit must treat rows apart from
/// each other (`nn::RowUse`). `Rows` is of all tensor ranks together where these share out the rows.
template <Index Rows>
struct ChunkedLoss {
  static_assert(Rows >= 1, "dtrain: a chunk of the loss needs at least 1 row");
  static constexpr Index loss_rows = Rows;
  static std::string describe() { return concatenate("ChunkedLoss<", Rows, ">"); }
};

}  // namespace dtrain::parallel

namespace dtrain {
using parallel::ChunkedLoss;
}  // namespace dtrain
