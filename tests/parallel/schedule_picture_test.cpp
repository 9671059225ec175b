#include "dtrain/parallel/schedule_picture.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedules/one_forward_one_backward.hpp"
#include "dtrain/parallel/schedules/zero_bubble_v.hpp"

using namespace dtrain::schedule;

namespace {

int count(const std::string& text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

}  // namespace

TEST_CASE("a picture shows every computation in its time, and idle time behind it") {
  const std::vector<Table> tables = build_tables<OneForwardOneBackward>(2, 2);
  const std::string picture = svg(tables, Costs{1, 1, 1}, "1F1B & <more>");
  CHECK(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(picture.ends_with("</svg>\n"));
  CHECK(count(picture, "1F1B &amp; &lt;more&gt;: 2 stages, idle for 33.3 %") == 1);
  CHECK(count(picture, " stroke=\"#ffffff\"/>") == 8);
  CHECK(count(picture, "height=\"26\" fill=\"#e4e4e4\"") == 2);
  // Stage 1 begins when the first forward is over, and its backward takes two units of 20 pixels.
  CHECK(count(picture, "<rect x=\"96\" y=\"70\" width=\"20\"") == 1);
  CHECK(count(picture, "<rect x=\"116\" y=\"70\" width=\"40\"") == 1);
  CHECK(count(picture, "backward of the weights") == 0);
  CHECK(count(picture, "chunk") == 0);
}

TEST_CASE("chunks and the parts of the backward pass have colours of their own, and their legend") {
  const std::string picture = svg(build_tables<ZeroBubbleV>(3, 5));
  CHECK(count(picture, " stroke=\"#ffffff\"/>") == 3 * 5 * 6);
  for (const char* const words : {">forward<", ">backward of the input<", ">backward of the weights<"})
    CHECK(count(picture, words) == 2);
  CHECK(count(picture, ">backward<") == 0);
  CHECK(count(picture, ">chunk 1<") == 1);
  for (const char* const colour : {"#2662aa", "#0e8a84", "#c46412"}) CHECK(count(picture, colour) == 3 * 5 + 1);
}

TEST_CASE("tables that never finish have no picture") {
  std::vector<Table> tables = build_tables<OneForwardOneBackward>(2, 1);
  tables[0].actions.erase(tables[0].actions.begin() + 1);
  CHECK_THROWS_WITH_AS((void)svg(tables), "dtrain: tables that never finish have no picture; judge them first",
                       dtrain::ConfigurationError);
}
