// The batch that the options ask for under a strategy.
#pragma once

#include "model.hpp"
#include "options.hpp"

namespace example {

template <class Strategy>
dt::parallel::BatchShape batch_shape(const Options& options) {
  return dt::parallel::deal_out(options.batch, context, static_cast<int>(options.micro_batches), Strategy::Data::degree,
                                Strategy::Pipeline::degree);
}

}  // namespace example
