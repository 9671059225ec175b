#include "dtrain/data/position.hpp"

#include <doctest/doctest.h>

#include <vector>

using dtrain::Index;
using dtrain::Range;
using dtrain::data::Position;
using dtrain::data::rows_of_rank;

TEST_CASE("positions advance over the ends of epochs") {
  CHECK(Position{}.advanced(3, 10) == Position{0, 3});
  CHECK(Position{0, 8}.advanced(5, 10) == Position{1, 3});
  CHECK(Position{2, 9}.advanced(31, 10) == Position{6, 0});
  CHECK(Position{0, 7}.advanced(0, 10) == Position{0, 7});
  // At the very end of an epoch the next one begins, once.
  CHECK(Position{0, 8}.advanced(2, 10) == Position{1, 0});
}

TEST_CASE("ranks share a batch in contiguous rows") {
  for (const Index ranks : {1, 2, 3, 4, 6, 12}) {
    Index next = 0;
    for (Index rank = 0; rank < ranks; ++rank) {
      const Range rows = rows_of_rank(12, ranks, rank);
      CHECK(rows.begin == next);
      CHECK(rows.size() == 12 / ranks);
      next = rows.end;
    }
    CHECK(next == 12);
  }
  // fault F11
  CHECK(rows_of_rank(5, 2, 0) == Range{0, 3});
  CHECK(rows_of_rank(5, 2, 1) == Range{3, 5});
}
