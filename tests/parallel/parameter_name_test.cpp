#include "dtrain/parallel/parameter_name.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "programs.hpp"

using namespace dtrain;
using parallel::ParameterName;
using parallel::share_a_name;

namespace {

constexpr ParameterName blocks{.element = "blocks", .count = 12, .path = "mlp.up", .parameter = "weight"};
constexpr ParameterName bare{.element = "blocks", .count = 12, .parameter = "weight"};

constexpr ParameterName whole(std::string_view path) { return {.path = path, .parameter = "weight"}; }

// Every index counts, not the first one alone.
static_assert(share_a_name(blocks, whole("blocks.0.mlp.up")));
static_assert(share_a_name(blocks, whole("blocks.11.mlp.up")));
static_assert(share_a_name(whole("blocks.5.mlp.up"), blocks));
static_assert(!share_a_name(blocks, whole("blocks.12.mlp.up")));
static_assert(!share_a_name(blocks, whole("blocks.01.mlp.up")));
static_assert(!share_a_name(blocks, whole("blocks.-1.mlp.up")));
static_assert(!share_a_name(blocks, whole("blocks.1x.mlp.up")));
static_assert(!share_a_name(blocks, whole("blocks.mlp.up")));
static_assert(!share_a_name(blocks, whole("blocks.1.mlp")));
static_assert(!share_a_name(blocks, whole("blocks.1.mlp.up.more")));
static_assert(!share_a_name(blocks, {.path = "blocks.1.mlp.up", .parameter = "bias"}));
static_assert(share_a_name(bare, whole("blocks.3")));
static_assert(!share_a_name(bare, blocks));
// Two repeated elements: of one name, and one inside the other's names.
static_assert(share_a_name(blocks, {.element = "blocks", .count = 1, .path = "mlp.up", .parameter = "weight"}));
static_assert(share_a_name({.element = "a", .count = 4, .path = "2.x", .parameter = "w"},
                           {.element = "a.3", .count = 8, .path = "x", .parameter = "w"}));
static_assert(!share_a_name({.element = "a", .count = 3, .path = "2.x", .parameter = "w"},
                            {.element = "a.3", .count = 8, .path = "x", .parameter = "w"}));
static_assert(!share_a_name({.element = "a", .count = 4, .path = "2.x", .parameter = "w"},
                            {.element = "a.3", .count = 2, .path = "x", .parameter = "w"}));

TEST_CASE("names of parameters: all the names around them, the index of a repeated unit, no empty component") {
  using Small = nn::Linear<2, 2, nn::LinearOptions{.bias = false}>;
  using Model =
      nn::Sequence<nn::Named<"a", nn::Named<"b", Small>>, nn::Named<"blocks", nn::Repeat<2, Small>>,
                   nn::Named<"more", nn::Repeat<2, nn::Named<"in", nn::Sequence<nn::Named<"x", Small>, Small>>>>,
                   Small>;
  std::vector<std::string> names;
  test::with_programs<Model, Serial>([&](auto& program, auto&) {
    for (const parallel::LocalParameter& parameter : program.stage().map()) names.push_back(parameter.name);
  });
  CHECK(names == std::vector<std::string>{"a.b.weight", "blocks.0.weight", "blocks.1.weight", "more.0.in.x.weight",
                                          "more.0.in.1.weight", "more.1.in.x.weight", "more.1.in.1.weight",
                                          "3.weight"});
}

}  // namespace
