// What a layer is: pure local mathematics that states its sizes, its parameters and how tensor parallelism may cut it.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>

#include "dtrain/nn/features.hpp"
#include "dtrain/nn/layout.hpp"
#include "dtrain/nn/parameter.hpp"

namespace dtrain::nn {

/// Layers whose outputs cost little to compute again, by what they are; the others always keep what is read again.
enum class LayerKind : std::uint8_t { other, attention, norm, activation };

/// What a layer must have at hand to compute one row.
enum class RowUse : std::uint8_t {
  alone,     ///< the row itself, wherever it stands
  placed,    ///< the row and its index in the global batch (dropout, positions)
  together,  ///< other rows too
};

/// A stateless type. It never sees a rank or a communicator: the lowering hands it a *site* (below).
///
/// Required:
/// - `static constexpr Features input, output`: whole widths; an input without parts takes token ids, of which a
///   `static constexpr Index vocabulary` says how many there are.
/// - `static constexpr LayoutRule layouts(Layout incoming, TensorAxis)`: asked only where the degree is above 1.
/// - `static constexpr std::array<Parameter, K> parameters(LayoutRule)`.
/// - `static constexpr double flops_per_row(Index context)`: of the forward pass, for the whole layer.
/// - `static void forward(const Site&, Matrix<const T> x, Matrix<T> y)`: y of [rows, local output width].
/// - `static void backward_input(const Site&, Matrix<const T> dy, Matrix<T> dx)`: overwrites dx (not for token layers).
/// - `static void backward_weight(const Site&, Matrix<const T> dy)`: adds to the gradients; called before
///   `backward_input`, or, where the schedule splits the backward pass, long after it (not for layers without
///   parameters).
///
/// Optional:
/// - `saves_input`, `saves_output` (bool): `site.input()` and `site.output()` are then there in the backward pass.
/// - `saved_per_row(TensorAxis)`: elements per local row kept from forward to backward, at `site.saved()`.
/// - `in_place` (bool): y may share x's memory, and dx dy's.
/// - `identity_gradient` (bool): dx is dy; `backward_input` is then not needed.
/// - `kind` (`LayerKind`): what selective recomputation knows it by. `forward` may then run twice in a step, with the
///   same random numbers.
/// - `row_use` (`RowUse`): whether rows can be computed apart from each other, as a loss in chunks does at the model's
///   end; `together` unless it says otherwise.
/// - `forward_after_sum(site, y)`, `backward_after_sum(site, dy)`: for parameters marked `after_sum`.
/// - `constants(context, TensorAxis)` and `fill_constants(context, TensorAxis, span)`: numbers computed once, at
///   `site.constants()`.
/// - `max_context`: the longest context that the layer can take.
/// - `check<TensorAxis, LayoutRule>()`: a consteval function of static assertions about sizes.
///
/// A site offers: `device()`, `rows()` (count, global index of the first, context), `tokens()`, `training()`,
/// `random()`, `degree`, `parameter<K>()`, `gradient<K>()`, `parameter_range<K>()`, `unit_range(part)`, `input()`,
/// `output()`, `saved()`, `constants()`.
template <class T>
concept Layer = requires {
  { T::input } -> std::convertible_to<Features>;
  { T::output } -> std::convertible_to<Features>;
  { T::layouts(Layout::invariant, TensorAxis{}) } -> std::same_as<LayoutRule>;
  { T::parameters(LayoutRule{}).size() } -> std::convertible_to<std::size_t>;
  { T::flops_per_row(Index{}) } -> std::convertible_to<double>;
};

/// The list of a layer without parameters.
inline constexpr std::array<Parameter, 0> no_parameters{};

/// Whether a layer reads token ids instead of features.
template <Layer L>
inline constexpr bool takes_tokens = Features(L::input).count == 0;

// The optional members, with their defaults.

template <class L>
constexpr bool saves_input() {
  if constexpr (requires { L::saves_input; }) return L::saves_input;
  return false;
}
template <class L>
constexpr bool saves_output() {
  if constexpr (requires { L::saves_output; }) return L::saves_output;
  return false;
}
template <class L>
constexpr bool works_in_place() {
  if constexpr (requires { L::in_place; }) return L::in_place;
  return false;
}
template <class L>
constexpr LayerKind layer_kind() {
  if constexpr (requires { L::kind; }) return L::kind;
  return LayerKind::other;
}
template <class L>
constexpr RowUse row_use() {
  if constexpr (requires { L::row_use; }) return L::row_use;
  return RowUse::together;
}
template <class L>
constexpr bool identity_gradient() {
  if constexpr (requires { L::identity_gradient; }) return L::identity_gradient;
  return false;
}
template <class L>
constexpr Index saved_per_row(TensorAxis tensor) {
  if constexpr (requires { L::saved_per_row(tensor); }) return L::saved_per_row(tensor);
  return 0;
}
template <class L>
constexpr Index constants_of(Index context, TensorAxis tensor) {
  if constexpr (requires { L::constants(context, tensor); }) return L::constants(context, tensor);
  return 0;
}
template <class L>
constexpr Index max_context() {
  if constexpr (requires { L::max_context; }) return L::max_context;
  return 0;
}

// Conditions with their numbers as template arguments, so that a failed assertion prints them. Those of several terms
// are made one by bool(...): g++ prints the numbers of the term that failed only.

/// `Width` features (or heads, or units) can be shared evenly by `Degree` tensor ranks.
template <Index Width, int Degree>
concept Divides = Width % Degree == 0;

/// `Heads` attention heads can be shared evenly by `Degree` tensor ranks.
template <Index Heads, int Degree>
concept HeadsDivide = Heads % Degree == 0;

/// `KeyValueHeads` heads can be shared by `Degree` ranks, evenly or by equally many copies.
template <Index KeyValueHeads, int Degree>
concept KeyValueHeadsDivide = bool(KeyValueHeads % Degree == 0 || Degree % KeyValueHeads == 0);

/// Every one of `Heads` query heads has its key/value head among `KeyValueHeads`.
template <Index Heads, Index KeyValueHeads>
concept QueryGroupsDivide = bool(KeyValueHeads > 0 && Heads % KeyValueHeads == 0);

/// No feature lives on several of `Degree` ranks.
template <bool Copied, int Degree>
concept NotCopied = !Copied;

/// A size is a positive number.
template <Index Size>
concept Positive = Size > 0;

/// The size is even (rotary positions pair the two halves of a head).
template <Index Size>
concept Even = Size % 2 == 0;

}  // namespace dtrain::nn
