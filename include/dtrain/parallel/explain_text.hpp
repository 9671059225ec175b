// An explanation as text: aligned columns for a terminal of 120.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrain/core/text.hpp"
#include "dtrain/parallel/explanation.hpp"
#include "dtrain/parallel/text_table.hpp"

namespace dtrain::parallel {

namespace detail {

[[gnu::cold]] inline std::string micro_batches_text(const BatchShape& batch) {
  return concatenate(batch.micro_batches, batch.micro_batches == 1 ? " micro-batch" : " micro-batches");
}

/// "blocks.0-3" for units 0 to 3 of an element that repeats, its name for others.
[[gnu::cold]] inline std::string unit_names(const UnitReport& unit, Index begin, Index end) {
  if (!unit.repeated) return unit.name;
  const Index first = begin - unit.first_unit;
  const Index last = end - unit.first_unit - 1;
  return first == last ? concatenate(unit.name, ".", first) : concatenate(unit.name, ".", first, "-", last);
}
/// The units of a stage, in lines of at most `columns` where their names allow it.
inline std::vector<std::string> units_of_stage(const Explanation& program, Range units, std::size_t columns) {
  std::vector<std::string> lines{""};
  for (const UnitReport& unit : program.units) {
    const Index begin = std::max<Index>(units.begin, unit.first_unit);
    const Index end = std::min<Index>(units.end, unit.first_unit + unit.count);
    if (begin >= end) continue;
    const std::string names = unit_names(unit, begin, end);
    if (!lines.back().empty()) lines.back() += ",";
    if (!lines.back().empty() && lines.back().size() + names.size() + 2 > columns) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + names;
  }
  return lines;
}

[[gnu::cold]] inline bool recomputes(const Explanation& program) {
  return std::ranges::any_of(program.stages, [](const StageReport& stage) {
    return std::ranges::any_of(stage.recomputed, [](Index units) { return units > 0; });
  });
}
// What ranks share out instead of each holding all of it.
[[gnu::cold]] inline std::string sharding_text(const Explanation& program) {
  const ShardingRule& rule = program.sharding;
  std::string text = concatenate(rule.shards_parameters()  ? "parameters, gradients, optimizer state"
                                 : rule.shards_gradients() ? "gradients, optimizer state"
                                                           : "optimizer state",
                                 " over ", plural(program.shard_ranks, "data rank"));
  if (rule.within > 0) text += ", alike in every group of so many";
  if (rule.shards_parameters()) text += concatenate("; ", plural(rule.prefetch, "unit"), " gathered ahead");
  return text;
}

[[gnu::cold]] inline std::string head_text(const Explanation& program) {
  std::string mesh = plural(program.ranks, "rank");
  bool first = true;
  for (const AxisReport& axis : program.axes) {
    mesh += concatenate(first ? " = " : " x ", axis.name, " ", axis.size);
    first = false;
  }
  if (program.axes.size() > 1) mesh += concatenate("; neighbours lie along the ", program.axes.front().name, " axis");
  const BatchShape& batch = program.batch;
  TextTable table("ll");
  std::string title = "strategy";
  for (std::string& line : broken_text(program.strategy, " x ", text_columns - 12))
    table.row({std::exchange(title, ""), std::move(line)});
  table.row({"mesh", mesh});
  if (program.sharding.level > 0) table.row({"sharded", sharding_text(program)});
  table.row(
      {"batch", concatenate(plural(batch.samples, "sample"), " of ", plural(batch.context, "token"), "; each of ",
                            plural(program.shares, "share"), " takes ", batch.samples / program.shares, " in ",
                            micro_batches_text(batch), " of ", plural(batch.micro_batch_rows(program.shares), "row"))});
  table.row({"model", concatenate(count_text(program.whole_parameters), " parameters in ", program.scalar)});
  table.row({"work", concatenate(flops_text(program.flops()), " per step, backward counted as two forward passes", " (",
                                 flops_text(program.rule_of_thumb_flops()), " by 6 x parameters x tokens)")});
  if (recomputes(program)) table.row({"", "and that of what is recomputed as three"});
  return concatenate("program\n", table.text());
}

[[gnu::cold]] inline std::string layouts_text(const nn::LayoutRule& rule) {
  if (rule.in == rule.out) return std::string(nn::layout_name(rule.in));
  return concatenate(nn::layout_name(rule.in), " -> ", nn::layout_name(rule.out));
}
[[gnu::cold]] inline std::string widths_text(const NodeRule& rule) {
  if (rule.in_width == 0) return concatenate("tokens -> ", rule.out_width);
  return rule.in_width == rule.out_width ? concatenate(rule.in_width)
                                         : concatenate(rule.in_width, " -> ", rule.out_width);
}
[[gnu::cold]] inline std::string transfer_text(const Transfer& transfer) {
  if (transfer.collective.empty()) return "nothing";
  return transfer.bytes > 0 ? concatenate(transfer.collective, " ", bytes_text(transfer.bytes))
                            : std::string(transfer.collective);
}
inline void add_move(TextTable& table, Layout from, Layout to, const TransferPair& move) {
  if (move == TransferPair{}) return;
  table.line(concatenate("    ", nn::layout_name(from), " to ", nn::layout_name(to), ": ", transfer_text(move.forward),
                         "; backward: ", transfer_text(move.backward)));
}

/// The nodes of every distinct unit with their layouts, and the moves between them.
[[gnu::cold]] inline std::string units_text(const Explanation& program) {
  TextTable table("lllrr");
  table.row({"layer", "type", "layout over the tensor axis", "width of a rank", "parameters of a rank"});
  for (const UnitReport& unit : program.units) {
    const std::string names = unit_names(unit, unit.first_unit, unit.first_unit + unit.count);
    table.line(concatenate(
        names, unit.count > 1 ? ", each" : "", ": ", count_text(unit.whole_parameters), " parameters; ",
        unit.loss_chunks > 0 ? concatenate("runs with the loss in ", plural(unit.loss_chunks, "chunk"))
                             : concatenate("keeps ", bytes_text(unit.activations), " per micro-batch in flight"),
        "; forward ", flops_text(unit.flops_per_row), " per row"));
    for (const NodeReport& node : unit.nodes) {
      add_move(table, node.rule.entering, node.rule.rule.in, node.before);
      if (!node.type.empty())
        table.row({concatenate("  ", node.path), node.type, layouts_text(node.rule.rule), widths_text(node.rule),
                   node.tied             ? "tied"
                   : node.parameters > 0 ? count_text(node.parameters)
                                         : ""});
      if (node.rule.kind == NodeTraits::Kind::join) table.row({concatenate("  ", node.path), "residual sum"});
      add_move(table, node.rule.rule.out, node.rule.leaving, node.after);
    }
  }
  return concatenate("layers and what moves between them, per micro-batch\n", table.text());
}

// Stages next to each other whose rows say the same are one row: "1-6".
template <class Same>
std::vector<Range> alike(const Explanation& program, Same same) {
  std::vector<Range> groups;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const auto stage = static_cast<Index>(s);
    if (!groups.empty() && same(program.stages[static_cast<std::size_t>(groups.back().begin)], program.stages[s]))
      groups.back().end = stage + 1;
    else
      groups.push_back({stage, stage + 1});
  }
  return groups;
}
[[gnu::cold]] inline std::string stage_numbers(Range stages) {
  return stages.size() == 1 ? concatenate(stages.begin) : concatenate(stages.begin, "-", stages.end - 1);
}

// "278,101 to 278,102" where shards are uneven.
[[gnu::cold]] inline std::string shard_text(const StageReport& stage) {
  return stage.smallest_shard == stage.largest_shard
             ? count_text(stage.largest_shard)
             : concatenate(count_text(stage.smallest_shard), " to ", count_text(stage.largest_shard));
}

[[gnu::cold]] inline std::string stages_text(const Explanation& program) {
  const bool chunks = !program.stages.empty() && program.stages.front().units.size() > 1;
  const bool shards = program.sharding.level > 0;
  const bool again = recomputes(program);
  const auto row = [&](std::string stage, std::string chunk, std::string work, std::string in_flight,
                       std::string recomputed, std::string shard, std::string units) {
    std::vector<std::string> cells{std::move(stage)};
    if (chunks) cells.push_back(std::move(chunk));
    cells.push_back(std::move(work));
    cells.push_back(std::move(in_flight));
    if (again) cells.push_back(std::move(recomputed));
    if (shards) cells.push_back(std::move(shard));
    cells.push_back(std::move(units));
    return cells;
  };
  TextTable table(concatenate(chunks ? "lr" : "l", "rr", again ? "r" : "", shards ? "r" : "", "l"));
  table.row(row("stage", "chunk", "work per step", "in flight", "recomputed", "a rank updates", "units"));
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const StageReport& stage = program.stages[s];
    for (std::size_t c = 0; c < stage.units.size(); ++c) {
      const std::string recomputed = concatenate(stage.recomputed[c], " of ", plural(stage.units[c].size(), "unit"));
      std::string names;
      for (const std::string& line : units_of_stage(program, stage.units[c], 40)) {
        if (names.empty())
          table.row(row(c == 0 ? concatenate(s) : "", concatenate(c), c == 0 ? flops_text(stage.flops) : "",
                        concatenate(stage.chunks[c].in_flight), recomputed, c == 0 ? shard_text(stage) : "", line));
        else
          table.row(row("", "", "", "", "", "", line));
        names = line;
      }
    }
  }
  return concatenate("stages\n", table.text());
}

[[gnu::cold]] inline std::string memory_text(const Explanation& program) {
  struct Kind {
    std::string_view name;
    Index (*bytes)(const StageReport&);
    bool always;
  };
  static constexpr std::array<Kind, 11> kinds{
      {{"parameters", [](const StageReport& stage) { return stage.memory.parameters; }, true},
       {"gradients", [](const StageReport& stage) { return stage.memory.gradients; }, true},
       {"optimizer", [](const StageReport& stage) { return stage.optimizer; }, true},
       {"activations", [](const StageReport& stage) { return stage.memory.activations; }, true},
       {"logits", [](const StageReport& stage) { return stage.memory.logits; }, true},
       {"transient", [](const StageReport& stage) { return stage.memory.transient; }, true},
       {"gathered", [](const StageReport& stage) { return stage.memory.gathered; }, false},
       {"buckets", [](const StageReport& stage) { return stage.memory.buckets; }, false},
       {"constants", [](const StageReport& stage) { return stage.memory.constants; }, false},
       {"tokens", [](const StageReport& stage) { return stage.memory.tokens; }, true},
       {"total", [](const StageReport& stage) { return stage.total_bytes(); }, true}}};
  std::vector<const Kind*> shown;
  for (const Kind& kind : kinds)
    if (kind.always || std::ranges::any_of(program.stages, [&](const auto& stage) { return kind.bytes(stage) > 0; }))
      shown.push_back(&kind);
  const std::string alignment = concatenate("l", std::string(shown.size(), 'r'));
  TextTable table(alignment);
  std::vector<std::string> head{"stage"};
  for (const Kind* kind : shown) head.emplace_back(kind->name);
  table.row(std::move(head));
  const auto groups = alike(program, [](const StageReport& a, const StageReport& b) {
    return a.memory == b.memory && a.optimizer == b.optimizer;
  });
  for (const Range group : groups) {
    const StageReport& stage = program.stages[static_cast<std::size_t>(group.begin)];
    std::vector<std::string> cells{stage_numbers(group)};
    for (const Kind* kind : shown) cells.push_back(bytes_text(kind->bytes(stage)));
    table.row(std::move(cells));
  }
  return concatenate("memory of ", program.sharding.level > 0 ? "the largest rank of each stage" : "one rank", " (",
                     plural(program.optimizer_states, "optimizer state"),
                     " per parameter); all ranks together: ", bytes_text(program.all_ranks_bytes), "\n") +
         table.text();
}

[[gnu::cold]] inline std::string communication_text(const Explanation& program) {
  TextTable table("lllrrl");
  table.row({"stage", "axis", "collective", "calls", "bytes", "of"});
  const auto groups =
      alike(program, [](const StageReport& a, const StageReport& b) { return a.communications == b.communications; });
  bool any = false;
  for (const Range group : groups) {
    bool first = true;
    for (const Communication& call : program.stages[static_cast<std::size_t>(group.begin)].communications) {
      table.row({first ? stage_numbers(group) : "", call.axis, call.collective, count_text(call.calls),
                 bytes_text(call.bytes), call.purpose});
      first = false;
      any = true;
    }
  }
  if (!any) return "communication: none\n";
  return concatenate("communication of one rank per step, besides a few numbers for loss, token count and norm\n",
                     table.text());
}

[[gnu::cold]] inline std::string schedule_text(const Explanation& program) {
  std::string text = concatenate("schedule ", program.schedule, ": ", micro_batches_text(program.batch), " on ",
                                 plural(static_cast<Index>(program.stages.size()), "stage"), ", idle ",
                                 percent_text(program.bubble), " of the time when stages cost the same\n");
  if (!program.stages.empty() && program.stages.front().units.size() > 1)
    text +=
        "  F1.0: forward of micro-batch 1 on the stage's chunk 0; B: backward; I, W: of the input, of the weights\n";
  constexpr std::size_t room = text_columns - 6;
  for (std::size_t begin = 0; begin < program.timeline.size();) {
    const std::size_t end = std::min(program.timeline.find('\n', begin), program.timeline.size());
    const std::size_t length = end - begin;
    text +=
        concatenate("  ", program.timeline.substr(begin, std::min(length, room)), length > room ? " ..." : "", "\n");
    begin = end + 1;
  }
  return text;
}

}  // namespace detail

/// The explanation as text of at most 120 columns.
[[gnu::cold]] [[nodiscard]] inline std::string describe(const Explanation& program) {
  return detail::head_text(program) + "\n" + detail::units_text(program) + "\n" + detail::stages_text(program) + "\n" +
         detail::memory_text(program) + "\n" + detail::communication_text(program) + "\n" +
         detail::schedule_text(program);
}

}  // namespace dtrain::parallel
