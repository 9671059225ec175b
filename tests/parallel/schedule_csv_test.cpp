#include "dtrain/parallel/schedule_csv.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedules/gpipe.hpp"
#include "dtrain/parallel/schedules/interleaved_1f1b.hpp"
#include "dtrain/parallel/schedules/zero_bubble_h1.hpp"
#include "dtrain/parallel/schedules/zero_bubble_v.hpp"

using namespace dtrain::schedule;
using dtrain::ConfigurationError;

namespace {

// What PyTorch 2.15 writes for its ScheduleZBVZeroBubble and ScheduleInterleaved1F1B on two ranks, four micro-batches.
constexpr std::string_view zero_bubble_v =
    "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,0I1,0W1,3F3,3I3,3W3,0I2,0W2,0I3,0W3\r\n"
    ",1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1F3,1I1,1W1,2F3,2I2,2W2,1I2,2I3,1I3,1W2,2W3,1W3\r\n";
constexpr std::string_view interleaved =
    "0F0,0F1,2F0,2F1,,,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,,2B2,,2B3,,0B2,,0B3\n"
    ",1F0,1F1,,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,,1B2,,1B3";

std::string refusal(std::string_view text) {
  try {
    (void)judged_tables(parse_csv(text, "own.csv"));
  } catch (const ConfigurationError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("schedules of PyTorch are read, judged, and the same as the library's") {
  const Orders v = parse_csv(zero_bubble_v, "zbv.csv");
  CHECK(v.pipeline() == VirtualPipeline{2, 2, Placement::v_shaped});
  CHECK(v.micro_batches == 4);
  CHECK(judged_tables(v) == build_tables<ZeroBubbleV>(2, 4));
  const Orders loops = parse_csv(interleaved, "interleaved.csv");
  CHECK(loops.pipeline() == VirtualPipeline{2, 2, Placement::looped});
  CHECK(judged_tables(loops) == build_tables<Interleaved1F1B>(2, 4, 2));
}

TEST_CASE("what is written is read again") {
  const auto round_trip = [](const Orders& orders) {
    const Orders again = parse_csv(csv_of(orders), orders.name);
    CHECK(again.of_stages == orders.of_stages);
    CHECK(again.pipeline() == orders.pipeline());
    CHECK(judged_tables(again) == judged_tables(orders));
  };
  round_trip(orders_of<GPipe>(3, 2));
  round_trip(orders_of<Interleaved1F1B>(4, 6, 3));
  round_trip(orders_of<ZeroBubbleH1>(4, 5));
  round_trip(orders_of<ZeroBubbleV>(3, 7));
  CHECK(csv_of(orders_of<GPipe>(2, 1)) == "0F0,0B0\n1F0,1B0\n");
  // Spaces, empty cells and lines at the end say nothing.
  CHECK(parse_csv(" 0F0 ,\t,0B0,,\n,1F0,1B0\n\n \n").of_stages == orders_of<GPipe>(2, 1).of_stages);
}

TEST_CASE("text that is no schedule is refused with its place") {
  CHECK(refusal("") == "dtrain: schedule own.csv is empty; it needs one line per stage");
  CHECK(refusal(" \n,,\n").find("own.csv") != std::string::npos);
  const std::string computation =
      "' is no computation; one is a stage, F, B, I or W (forward, backward, backward of the input, backward of the "
      "weights) and a micro-batch, such as 0F3. Messages are derived and not written.";
  CHECK(refusal("0F0,0B0\n1F0, 1X0") == "dtrain: schedule own.csv, line 2, column 6: '1X0" + computation);
  for (const std::string wrong : {"F0", "0F", "0F0B", "0f0", "-1F0", "0F-1", "0SEND_F0", "0UNSHARD", "99999999999F0",
                                  "0F99999999999", "0F70000", "(0F0;0B1)OVERLAP_F_B", "0 F0", "\"0F0\""})
    CHECK(refusal("0F0,0B0," + wrong) == "dtrain: schedule own.csv, line 1, column 9: '" + wrong + computation);
  CHECK(refusal("0F0,0B0\n1F0,1B0,0F1") ==
        "dtrain: schedule own.csv, line 2, column 9: '0F1' computes stage 0, which line 1 computes too");
  CHECK(refusal("0F0,0B0\n2F0,2B0") == "dtrain: schedule own.csv computes stage 2 and never stage 1");
  CHECK(refusal("0F0,0B0,2F0,2B0\n1F0,1B0") ==
        "dtrain: schedule own.csv has 3 stages, which its 2 lines cannot share out evenly");
  CHECK(refusal("1F0,1B0\n0F0,0B0") ==
        "dtrain: schedule own.csv, line 2, column 1: stage 0 lies on line 2; stages lie in loops (this one on line 1) "
        "or, two on each line, in a V");
}

TEST_CASE("orders that cannot run are refused by the judge") {
  CHECK(refusal("0F0,0F1,0B0,0B1\n1F0,1B0,1F1") ==
        "dtrain: schedule own.csv with 2 stages and 2 micro-batches mismatches forward and backward: stage 1 runs the "
        "backward of micro-batch 1 never instead of once");
  CHECK(refusal("0F0,0I0\n1F0,1B0") ==
        "dtrain: schedule own.csv with 2 stages and 1 micro-batch mismatches forward and backward: stage 0 runs the "
        "backward of the weights of micro-batch 0 never instead of once");
  CHECK(refusal("0F0,0W0,0I0") ==
        "dtrain: schedule own.csv with 1 stage and 1 micro-batch mismatches forward and backward: stage 0 runs the "
        "backward of the weights of micro-batch 0 in row 1, before its backward of the input");
  CHECK(refusal("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1") ==
        "dtrain: schedule own.csv with 2 stages and 2 micro-batches deadlocks: stage 0 waits in 'receive backward of "
        "micro-batch 0 from stage 1' while stage 1 waits in 'receive forward of micro-batch 1 from stage 0'");
  const Orders gpipe = orders_of<GPipe>(2, 3);
  const std::vector<int> tight = {3, 2};
  CHECK_THROWS_WITH_AS((void)judged_tables(gpipe, tight),
                       "dtrain: schedule GPipe with 2 stages and 3 micro-batches exceeds its in-flight limit: stage 1 "
                       "holds 3 micro-batches at once and declares 2",
                       ConfigurationError);
  const std::vector<int> one = {3};
  CHECK_THROWS_AS((void)judged_tables(gpipe, one), ConfigurationError);
}

TEST_CASE("orders must be made for the program that runs them") {
  const Orders v = parse_csv(zero_bubble_v, "zbv.csv");
  CHECK(judged_tables(v, VirtualPipeline{2, 2, Placement::v_shaped}, 4) == judged_tables(v));
  CHECK_THROWS_WITH_AS(
      (void)judged_tables(v, VirtualPipeline{2, 2, Placement::looped}, 8),
      "dtrain: schedule zbv.csv is made for 2 stages of 2 chunks (in a V) and 4 micro-batches; the program runs 2 "
      "stages of 2 chunks (looped) and 8 micro-batches",
      ConfigurationError);
}
