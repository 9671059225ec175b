// The loss in chunks of rows: the numbers of the whole, in the memory of a chunk.
#include "dtrain/parallel/chunked_loss.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "dtrain/nn/activation.hpp"
#include "dtrain/nn/dropout.hpp"
#include "dtrain/nn/embedding.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/norm.hpp"
#include "dtrain/parallel/schedules/zero_bubble_h1.hpp"
#include "dtrain/testing/equivalence.hpp"

using namespace dtrain;
using parallel::LossUnit;

namespace {

// Ends in a unit of several layers, with dropout on the rows and a tied head; the vocabulary does not divide.
constexpr Index width = 8;
using Body = nn::Residual<nn::LayerNorm<width>, nn::Linear<width, 12>, nn::Gelu<12>, nn::Linear<12, width>>;
using Head = nn::Sequence<
    nn::Named<"norm", nn::LayerNorm<width>>, nn::Dropout<width, nn::Probability{0.2}>,
    nn::Named<"out", nn::Linear<width, nn::vocabulary_of(11), nn::LinearOptions{.bias = false}, "tokens.weight">>>;
using Model = nn::Sequence<nn::Named<"tokens", nn::TokenEmbedding<11, width>>, nn::Named<"blocks", nn::Repeat<3, Body>>,
                           nn::Named<"head", Head>>;

// 12 samples of 7 rows in micro-batches that neither chunks nor ranks divide.
template <class... Parts>
void check(int micro_batches) {
  using S = Strategy<Parts...>;
  const auto options = [](int count) {
    return testing::RunOptions{.samples = 12, .context = 7, .micro_batches = count, .steps = 2};
  };
  static const testing::RecordedRun serial = testing::record_run<Model, Serial>(options(1));
  const std::string strategy = S::describe();
  CAPTURE(strategy);
  CHECK_NOTHROW(testing::compare_runs(serial, testing::record_run<Model, S>(options(micro_batches))));
}

// The logits of some rows of a sample, from the first rank.
template <class S>
std::vector<double> logits() {
  std::vector<double> result;
  train::run_ranks<S>(
      [&](auto& rank) {
        parallel::Program<Model, S, double, Host, comm::Threads> program(rank.device(), rank.axes(), 3);
        for (const Index row : {0, 3, 4, 6}) {
          std::vector<double> one(11);
          program.logits(7, row, [](auto tokens) { std::iota(tokens.begin(), tokens.end(), 2); }, std::span(one));
          if (rank.is_first()) result.insert(result.end(), one.begin(), one.end());
        }
      },
      {.threads_per_rank = 1});
  return result;
}

// What the first rank plans for 8192 rows of 151,936 classes in float, and no more than two units.
template <class S>
constexpr parallel::MemoryPlan plan_of_large_vocabulary() {
  using Large = nn::Sequence<nn::TokenEmbedding<151936, 64>, nn::Named<"head", nn::Linear<64, 151936>>>;
  using Lowered = parallel::LoweredFor<Large, S, float>;
  const std::array<int, 1> slots{1};
  return parallel::plan_of_rank<Lowered, S, float>(0, 1, 0).memory(
      {.rows = 8192, .local_rows = 8192, .slots = std::span<const int>(slots)});
}

}  // namespace

// fault I6
TEST_CASE("of the logits there is one chunk: 0.58 GiB instead of 4.64") {
  constexpr Index row = Index{151936} * 4;
  static_assert(plan_of_large_vocabulary<Serial>().logits == 8192 * row);
  constexpr parallel::MemoryPlan chunked = plan_of_large_vocabulary<Strategy<ChunkedLoss<1024>>>();
  static_assert(chunked.logits == 1024 * row);
  // Besides them: the gradient of the head's input, whole, and its slot and three statistics of the chunk's rows. The
  // slots of the activations hold the embeddings alone.
  static_assert(chunked.transient == 8192 * 64 * 4 + 1024 * (64 + 3) * 4);
  static_assert(chunked.activations == 8192 * 64 * 4);
  // No chunk is larger than the micro-batch.
  static_assert(plan_of_large_vocabulary<Strategy<ChunkedLoss<10000>>>().logits == 8192 * row);
  CHECK(std::round(100.0 * double(8192 * row) / (1 << 30)) == 464);
  CHECK(std::round(100.0 * double(chunked.logits) / (1 << 30)) == 58);
}

// fault I6
TEST_CASE("values are those of whole logits") {
  SUBCASE("one rank") {
    check<ChunkedLoss<5>>(1);
    check<ChunkedLoss<5>>(3);
  }
  SUBCASE("shards of parameters, gathered once for all chunks") { check<DataParallel<2, Zero<3>>, ChunkedLoss<5>>(2); }
  SUBCASE("a vocabulary cut by columns, on the last stage, behind blocks that are computed again") {
    check<PipelineParallel<2>, TensorParallel<2>, Recompute<recompute::Full>, ChunkedLoss<8>>(3);
  }
  // Micro-batches of 21 rows leave a last chunk of one row, which only the first rank has.
  SUBCASE("chunks of each tensor rank's own rows") {
    check<TensorParallel<2, SequenceParallel>, ChunkedLoss<10>>(1);
    check<TensorParallel<2, SequenceParallel>, ChunkedLoss<11>>(4);
  }
  SUBCASE("a backward pass in two parts, of which the last unit has one") {
    check<DataParallel<2>, PipelineParallel<2, schedule::ZeroBubbleH1>, ChunkedLoss<5>>(3);
  }
}

TEST_CASE("the logits of single rows") {
  const std::vector<double> expected = logits<Serial>();
  const auto same = [&](const std::vector<double>& found) {
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      CAPTURE(i);
      CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-12));
    }
  };
  same(logits<Strategy<ChunkedLoss<5>>>());
  same(logits<Strategy<DataParallel<2, Zero<3>>, ChunkedLoss<5>>>());
  same(logits<Strategy<TensorParallel<2, SequenceParallel>, ChunkedLoss<10>>>());
  same(logits<Strategy<PipelineParallel<2>, TensorParallel<2>, Recompute<recompute::Full>, ChunkedLoss<8>>>());
}

TEST_CASE("the guide's strategy") {
  namespace dt = dtrain;
  // [snippet strategy]
  using Chunked = dt::Strategy<dt::DataParallel<2, dt::Zero<3>>, dt::ChunkedLoss<1024>>;
  // [end snippet]
  static_assert(Chunked::loss_rows == 1024 && Serial::loss_rows == 0);
  CHECK(Chunked::describe().ends_with(" x ChunkedLoss<1024>"));
}

// Which rank's row lies where.
TEST_CASE("chunks of rows that two ranks share out") {
  using S = Strategy<TensorParallel<2, SequenceParallel>, ChunkedLoss<10>>;
  using Split = LossUnit<parallel::LoweredFor<Model, S, float>, float>;
  static_assert(Split::splits_rows && Split::piece == 5 && Split::largest_chunk(21) == 10);
  CHECK(Split::chunks(21) == 3);
  // Rank 0 has the rows 0 to 10, rank 1 the rows 11 to 20.
  CHECK(Split::rows_of(21, 0, 1) == Range{5, 10});
  CHECK(Split::rows_of(21, 1, 1) == Range{16, 21});
  CHECK(Split::rows_of(21, 0, 2) == Range{10, 11});
  CHECK(Split::rows_of(21, 1, 2).size() == 0);
  for (Index row = 0; row < 21; ++row) {
    const auto place = Split::find(21, row);
    const Range first = Split::rows_of(21, 0, place.chunk);
    const Range second = Split::rows_of(21, 1, place.chunk);
    CAPTURE(row);
    CHECK(row == (place.row < first.size() ? first.begin + place.row : second.begin + place.row - first.size()));
  }
}
