// What the user asks for on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace example {

/// The main job's defaults.
struct Options {
  std::vector<std::string> data{};
  std::string metrics = "metrics.jsonl";
  std::string strategy = "dp2-pp2-tp2";
  long long steps = 2000;
  long long seed = 1337;
  long long batch = 12;
  long long micro_batches = 0;  ///< 0: as many as the pipeline has stages, where the batch allows
  bool micro_batches_given = false;
  std::string json{};     ///< where an explanation is written as JSON, if anywhere
  std::string picture{};  ///< where the schedule is drawn as SVG
  double learning_rate = 1e-3;
};

}  // namespace example
