// Explains the program that a model and a strategy lower to, from the types alone and without running a rank.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtrain/comm/call_description.hpp"
#include "dtrain/comm/self.hpp"
#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"
#include "dtrain/parallel/explain_text.hpp"
#include "dtrain/parallel/explanation.hpp"
#include "dtrain/parallel/gradient_buckets.hpp"
#include "dtrain/parallel/gradient_reduction.hpp"
#include "dtrain/parallel/memory.hpp"
#include "dtrain/parallel/mesh.hpp"
#include "dtrain/parallel/parameter_map.hpp"
#include "dtrain/parallel/schedule_replay.hpp"
#include "dtrain/parallel/schedule_soundness.hpp"
#include "dtrain/parallel/schedule_text.hpp"
#include "dtrain/parallel/stages.hpp"

namespace dtrain::parallel {

namespace detail {

/// "Linear" for dtrain::nn::Linear<...>.
template <class L>
[[gnu::cold]] std::string short_type_name() {
  std::string_view text = __PRETTY_FUNCTION__;
  text = text.substr(text.find("L = ") + 4);
  text = text.substr(0, text.find_first_of("<;]"));
  const std::size_t scope = text.rfind("::");
  return std::string(scope == std::string_view::npos ? text : text.substr(scope + 2));
}

/// Gathers the numbers of one program.
template <class Model, class S, NumberFormat Format>
class Explainer {
  using T = typename PrecisionOf<Format>::Parameter;
  using Gradient = typename PrecisionOf<Format>::Gradient;
  using Memory = MemoryOf<Model, S, Format>;
  using Lowered = typename Memory::Lowered;
  using Cuts = Stages<Lowered, S>;
  using Loss = CrossEntropy<Lowered, T>;
  using Split = LossUnit<Lowered, T>;
  using Plan = StagePlan<Lowered, Format>;
  static constexpr Index element_bytes = static_cast<Index>(sizeof(T));
  static constexpr Index gradient_bytes = static_cast<Index>(sizeof(Gradient));
  static constexpr bool converts = !std::is_same_v<ReductionType<typename S::Data, Gradient>, Gradient>;
  static constexpr int stages = S::Pipeline::degree;

 public:
  [[gnu::cold]] Explainer(const BatchShape& shape, const ExplainOptions& options)
      : mesh_(ranks_of<S>(options.ranks), 0), shape_(shape), options_(options) {
    check_batch(shape, mesh_.batch_share().size, Lowered::max_context);
    tables_ = schedule::build_tables<typename S::Pipeline::Schedule>(stages, shape.micro_batches, S::Pipeline::chunks);
  }

  [[nodiscard, gnu::cold]] Explanation explain() const {
    Explanation result{.strategy = S::describe(),
                       .ranks = mesh_.ranks(),
                       .shares = mesh_.batch_share().size,
                       .axes = axes(typename S::All{}),
                       .sharding = S::sharding,
                       .shard_ranks = ShardCommunicators<S, comm::Self>::place(mesh_).size,
                       .batch = shape_,
                       .scalar = describe_precision<Format>(),
                       .optimizer_states = options_.optimizer_states,
                       .schedule = std::string(std::string_view(S::Pipeline::Schedule::name)),
                       .timeline = schedule::draw(tables_),
                       .tables = tables_,
                       .bubble = schedule::bubble_of(tables_)};
    for_elements([&]<int E>(std::integral_constant<int, E>) { result.units.push_back(unit_report<E>()); });
    for (const UnitReport& unit : result.units) result.whole_parameters += unit.count * unit.whole_parameters;
    for (int stage = 0; stage < stages; ++stage) result.stages.push_back(stage_report(result.units, stage));
    result.all_ranks_bytes = Memory::all(shape_, options_).all_ranks;
    return result;
  }

 private:
  template <class F>
  [[gnu::cold]] static void for_elements(F&& f) {
    [&]<std::size_t... E>(std::index_sequence<E...>) {
      (f(std::integral_constant<int, static_cast<int>(E)>{}), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(Lowered::elements)>{});
  }
  [[nodiscard]] Index rows() const { return shape_.micro_batch_rows(mesh_.batch_share().size); }

  template <class... Policies>
  [[nodiscard, gnu::cold]] std::vector<AxisReport> axes(PolicyList<Policies...>) const {
    std::vector<std::pair<int, AxisReport>> ordered{
        {int{Policies::Axis::order}, AxisReport{std::string(std::string_view(Policies::Axis::name)),
                                                mesh_.template along<typename Policies::Axis>().size}}...};
    std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<AxisReport> result;
    for (auto& [order, axis] : ordered) result.push_back(std::move(axis));
    return result;
  }

  // The collective of a move takes whole rows of all features on one side of it.
  [[nodiscard, gnu::cold]] TransferPair transfer(Redistribution move, Index width) const {
    const Movement movement = movement_of(move);
    const auto pass = [&](std::string_view collective) {
      const bool exchanges = !collective.empty() && collective != "slice";
      return Transfer{collective, exchanges ? rows() * width * element_bytes : 0};
    };
    return {pass(movement.forward), pass(movement.backward)};
  }

  template <int E>
  [[nodiscard, gnu::cold]] UnitReport unit_report() const {
    using U = typename Lowered::template UnitOf<E>;
    constexpr ElementTable element = Lowered::table[E];
    UnitReport report{
        .name = std::string(Lowered::template element_name<E>),
        .first_unit = element.first_unit,
        .count = element.count,
        .repeated = element.repeated,
        .parameters = element.parameter_size,
        .activations = (element.output + element.saved).bytes(Plan::row_capacity(rows()), Plan::shard_capacity(rows())),
        .loss_chunks = Split::apart && E == Split::element_index ? Split::chunks(rows()) : 0,
        .flops_per_row = Lowered::flops_per_row(shape_.context)[E]};
    if (report.loss_chunks > 0) report.activations = 0;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (report.nodes.push_back(node_report<U, static_cast<int>(I)>()), ...);
    }(std::make_index_sequence<static_cast<std::size_t>(U::size)>{});
    for (const UnitParameter& described : U::parameters) {
      NodeReport& node = report.nodes[static_cast<std::size_t>(described.node)];
      node.tied = node.tied || described.tied();
      if (described.tied()) continue;
      node.parameters += described.parameter.local_size(Lowered::tensor.degree);
      node.whole_parameters += described.parameter.whole_size();
    }
    for (const NodeReport& node : report.nodes) report.whole_parameters += node.whole_parameters;
    return report;
  }
  template <class U, int I>
  [[nodiscard, gnu::cold]] NodeReport node_report() const {
    using L = typename U::template Layer<I>;
    constexpr NodeRule rule = U::rules[I];
    return {.path = std::string(U::template path<I>),
            .type = nn::Layer<L> ? short_type_name<L>() : std::string(),
            .rule = rule,
            .before = transfer(rule.before, std::max(rule.entering_width, rule.in_width)),
            .after = transfer(rule.after, rule.out_width)};
  }

  // Of the ranks that share parameters out, the first: its shards are as large as any.
  [[nodiscard, gnu::cold]] StageReport stage_report(const std::vector<UnitReport>& units, int stage) const {
    const Coordinate shard = ShardCommunicators<S, comm::Self>::place(mesh_);
    const auto plan = plan_of_rank<Lowered, S, Format>(stage, shard.size, 0);
    const schedule::Table& table = tables_[static_cast<std::size_t>(stage)];
    StageReport report;
    for (std::size_t c = 0; c < plan.chunks().size(); ++c) {
      const Plan& chunk = plan.chunks()[c];
      report.units.push_back(chunk.units());
      report.parameters += chunk.parameter_size();
      const auto update_of = [&](int rank) { return Sharding(chunk.group_ends(), shard.size, rank).size(); };
      report.largest_shard += update_of(0);
      report.smallest_shard += update_of(shard.size - 1);
      report.recomputed.push_back(0);
      for (Index u = chunk.units().begin; u < chunk.units().end; ++u) {
        report.recomputed.back() += chunk.placement(u).recomputed ? 1 : 0;
        report.flops += (chunk.placement(u).recomputed ? 4.0 : 3.0) * units[element_of(u)].flops_per_row *
                        static_cast<double>(shape_.local_rows(1));
      }
      tensor_communications(report, units, chunk);
      batch_communications(report, chunk, plan.shards()[c]);
    }
    const auto memory = Memory::of(plan, shape_, mesh_.batch_share().size, std::span<const int>(table.slots),
                                   options_.optimizer_states);
    report.memory = memory.program;
    report.optimizer = memory.optimizer;
    report.chunks.assign(memory.chunks.begin(), memory.chunks.end());
    pipeline_communications(report, plan.chunks(), stage);
    return report;
  }
  static std::size_t element_of(Index unit) {
    return static_cast<std::size_t>(Lowered::element_of(static_cast<int>(unit)));
  }

  /// Adds calls to the entry of the same axis, collective and purpose.
  [[gnu::cold]] static void add(StageReport& report, std::string_view axis, std::string_view collective,
                                std::string_view purpose, Index calls, Index bytes) {
    if (calls == 0) return;
    for (Communication& known : report.communications)
      if (known.axis == axis && known.collective == collective && known.purpose == purpose) {
        known.calls += calls;
        known.bytes += bytes;
        return;
      }
    report.communications.push_back({std::string(axis), std::string(collective), std::string(purpose), calls, bytes});
  }

  [[gnu::cold]] void tensor_communications(StageReport& report, const std::vector<UnitReport>& units,
                                           const Plan& plan) const {
    if constexpr (Lowered::tensor.degree > 1) {
      constexpr std::string_view axis = axes::Tensor::name;
      const Index micro_batches = shape_.micro_batches;
      for (Index u = plan.units().begin; u < plan.units().end; ++u)
        for (const NodeReport& node : units[element_of(u)].nodes)
          for (const Transfer& transfer :
               {node.before.forward, node.after.forward, node.after.backward, node.before.backward})
            if (transfer.bytes > 0)
              add(report, axis, transfer.collective, "activations",
                  micro_batches * std::max<Index>(units[element_of(u)].loss_chunks, 1), micro_batches * transfer.bytes);
      for (Index u = plan.units().begin; u < plan.units().end; ++u)
        if (plan.placement(u).recomputed)
          for (const NodeReport& node : units[element_of(u)].nodes)
            for (const Transfer& transfer : {node.before.forward, node.after.forward})
              if (transfer.bytes > 0)
                add(report, axis, transfer.collective, "activations computed again", micro_batches,
                    micro_batches * transfer.bytes);
      if (Loss::splits_columns && plan.last())
        add(report, axis, "all-reduce", "loss over the vocabulary",
            2 * micro_batches * std::max<Index>(units.back().loss_chunks, 1),
            3 * micro_batches * rows() * static_cast<Index>(sizeof(Accumulator<T>)));
      for_elements([&]<int E>(std::integral_constant<int, E>) {
        const Index held = units_of(plan, E);
        add_gradient_sums<E>(report, held);
      });
    }
  }
  template <int E>
  [[gnu::cold]] static void add_gradient_sums(StageReport& report, Index held) {
    using U = typename Lowered::template UnitOf<E>;
    if (U::tensor_sums.size() > 0)
      add(report, axes::Tensor::name, "all-reduce", "gradients of uncut parameters", held,
          held * U::tensor_sums.size() * gradient_bytes);
    for (const UnitParameter& described : U::parameters)
      if (!described.tied() && described.parameter.cut != nn::Cut::none)
        for (const Segment& segment : segments_of(described.parameter, Lowered::tensor.degree, 0))
          if (segment.copies > 1)
            add(report, concatenate(axes::Tensor::name, " / ", Lowered::tensor.degree / segment.copies), "all-reduce",
                "gradients of copied heads", held,
                held * segment.rows.size() * described.parameter.local_columns(Lowered::tensor.degree) *
                    gradient_bytes);
  }
  // How many units of an element a stage holds.
  static Index units_of(const Plan& plan, int element) {
    const ElementTable& entry = Lowered::table[static_cast<std::size_t>(element)];
    const Index begin = std::max<Index>(plan.units().begin, entry.first_unit);
    const Index end = std::min<Index>(plan.units().end, entry.first_unit + entry.count);
    return std::max<Index>(end - begin, 0);
  }

  [[gnu::cold]] void batch_communications(StageReport& report, const Plan& plan, const Sharding& sharding) const {
    using First = typename FirstPolicy<typename S::Batch>::type;
    if (S::sharding.level > 0) shard_communications(report, plan, sharding);
    [&]<class... Policies>(PolicyList<Policies...>) {
      (add_batch_axis<Policies, std::is_same_v<Policies, First>>(report, plan, sharding), ...);
    }(typename S::Batch{});
  }
  template <class P, bool InBuckets>
  [[gnu::cold]] void add_batch_axis(StageReport& report, const Plan& plan, const Sharding& sharding) const {
    constexpr std::string_view collective = [] {
      if constexpr (requires { P::collective; }) return std::string_view(P::collective);
      return std::string_view("reduce");
    }();
    constexpr auto reduced_bytes = static_cast<Index>(sizeof(ReductionType<P, Gradient>));
    const auto region = [&](std::string_view purpose, Index calls, Index elements) {
      if (elements > 0) add(report, P::Axis::name, collective, purpose, calls, elements * reduced_bytes);
    };
    if constexpr (S::sharding.level > 0) {
      if constexpr (!std::is_same_v<typename P::Axis, axes::Data>)
        region("gradients", kept_calls(sharding), sharding.size());
    } else if constexpr (InBuckets) {
      const GradientBuckets<P, comm::Self> buckets(plan.backward_pieces(), P::bucket_bytes / reduced_bytes);
      region("gradients, one call a bucket", static_cast<Index>(buckets.buckets()), plan.owned_parameters());
      region("gradients of tied copies", 1, plan.parameter_size() - plan.owned_parameters());
    } else {
      region("gradients", 1, plan.parameter_size());
    }
  }
  // What is kept lies side by side where gradients are sharded, and is spread over the region where they are not.
  static Index kept_calls(const Sharding& sharding) {
    return S::sharding.shards_gradients() ? 1 : static_cast<Index>(sharding.groups().size());
  }
  [[gnu::cold]] void shard_communications(StageReport& report, const Plan& plan, const Sharding& sharding) const {
    constexpr std::string_view axis = S::sharding.within > 0 ? "shards" : axes::Data::name;
    constexpr auto reduced_bytes = static_cast<Index>(sizeof(ReductionType<typename S::Data, Gradient>));
    const Index micro_batches = shape_.micro_batches;
    // A unit that runs together with the loss does so in one pass, where others take several.
    const auto units = [&](std::string_view collective, std::string_view purpose, Index passes, Index element_size) {
      for (Index u = plan.units().begin; u < plan.units().end; ++u) {
        const Index times = micro_batches * (Split::apart && u + 1 == Lowered::units ? 1 : passes);
        Index calls = sharding.groups_of(plan.region_of(u)).size();
        for (const Tie& tie : Lowered::ties)
          if (tie.user == static_cast<int>(element_of(u))) calls += sharding.groups_of(plan.tied_range(tie)).size();
        add(report, axis, collective, purpose, times * calls, times * Plan::gathered_size(u) * element_size);
      }
    };
    if (S::sharding.shards_gradients()) {
      units("reduce-scatter", "gradients, of each unit and micro-batch", 1, reduced_bytes);
    } else {
      const auto groups = static_cast<Index>(sharding.groups().size());
      add(report, axis, "reduce-scatter", "gradients, of each unit", groups, plan.parameter_size() * reduced_bytes);
    }
    const auto parameter_bytes = static_cast<Index>(sizeof(T));
    if (S::sharding.shards_parameters()) {
      const Index passes = Lowered::unit_options.splits_backward ? 3 : 2;
      units("all-gather", "parameters, of each unit and pass", passes, parameter_bytes);
    } else {
      add(report, axis, "all-gather", "parameters, after the update", static_cast<Index>(sharding.groups().size()),
          plan.parameter_size() * parameter_bytes);
    }
    if (S::sharding.within > 0)
      add(report, "replicas of shards", "all-reduce", "gradients",
          converts ? static_cast<Index>(sharding.groups().size()) : kept_calls(sharding),
          sharding.size() * reduced_bytes);
  }

  [[gnu::cold]] void pipeline_communications(StageReport& report, const std::vector<Plan>& chunks, int stage) const {
    if constexpr (stages > 1) {
      constexpr std::string_view axis = axes::Pipeline::name;
      constexpr schedule::VirtualPipeline pipeline = S::Pipeline::pipeline;
      const Index message_rows = rows();
      // Of a stream that is cut by rows, tensor rank 0 sends its shard.
      const auto bytes = [&](Extent extent) {
        return extent.bytes(message_rows, even_share(message_rows, Lowered::tensor.degree, 0).size());
      };
      for (const schedule::Action& action : tables_[static_cast<std::size_t>(stage)].actions) {
        if (!schedule::is_message(action.kind)) continue;
        const schedule::Place here{stage, action.chunk};
        const Plan& chunk = chunks[static_cast<std::size_t>(action.chunk)];
        const bool to_next =
            pipeline.virtual_stage(schedule::partner_of(pipeline, action.kind, here)) > pipeline.virtual_stage(here);
        const bool forward =
            action.kind == schedule::ActionKind::send_forward || action.kind == schedule::ActionKind::receive_forward;
        add(report, axis, schedule::is_send(action.kind) ? "send" : "receive",
            concatenate(forward ? "activations " : "gradients ", schedule::is_send(action.kind) ? "to" : "from",
                        to_next ? " the next stage" : " the previous stage"),
            1, bytes(to_next ? chunk.output_extent() : chunk.input_extent()));
      }
      for (const Tie& tie : Lowered::ties) {
        const int user = Cuts::stage_of(Lowered::table[static_cast<std::size_t>(tie.user)].first_unit);
        const int owner = Cuts::stage_of(Lowered::table[static_cast<std::size_t>(tie.owner)].first_unit);
        const int user_stage = pipeline.place(user).stage;
        const int owner_stage = pipeline.place(owner).stage;
        if (user_stage == owner_stage || (stage != user_stage && stage != owner_stage)) continue;
        const Coordinate shard = ShardCommunicators<S, comm::Self>::place(mesh_);
        add(report, axis, "all-reduce",
            concatenate("tied parameter, with stage ", stage == user_stage ? owner_stage : user_stage), 1,
            even_share(round_up(tie.size, parameter_alignment), shard.size, 0).size() * gradient_bytes);
      }
    }
  }

  Mesh<S> mesh_;
  BatchShape shape_;
  ExplainOptions options_;
  std::vector<schedule::Table> tables_;
};

}  // namespace detail

/// The numbers of the program that `Model` lowers to under `S`, for batches of `shape`.
/// Throws ConfigurationError when the batch or the world cannot be dealt out.
template <class Model, class S, NumberFormat Format = float>
[[nodiscard, gnu::cold]] Explanation explanation_of(const BatchShape& shape, const ExplainOptions& options = {}) {
  return detail::Explainer<Model, S, Format>(shape, options).explain();
}

/// The same as text of at most 120 columns.
template <class Model, class S, NumberFormat Format = float>
[[nodiscard, gnu::cold]] std::string explain(const BatchShape& shape, const ExplainOptions& options = {}) {
  return describe(explanation_of<Model, S, Format>(shape, options));
}

}  // namespace dtrain::parallel

namespace dtrain {
using parallel::explain;
using parallel::ExplainOptions;
}  // namespace dtrain
