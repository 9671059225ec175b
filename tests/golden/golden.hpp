// Reads the golden values of tests/golden/*.json, which make_golden.py computed with PyTorch in float64.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace golden {

/// Values of logical tensors by name, row-major, whole: no padding, no shards.
using Tensors = std::map<std::string, std::vector<double>>;

/// A small GPT or Llama, one batch, and what PyTorch makes of them.
struct Case {
  std::string model;  ///< "gpt" or "llama"
  std::int64_t vocabulary, context, width, heads, key_value_heads, hidden, layers, samples;
  bool tied;
  bool bias = false;  ///< of the linear layers; GPT only
  std::string gelu;   ///< "tanh" or "erf"; GPT only
  std::map<std::string, std::vector<std::int64_t>> shapes;
  Tensors weights;                            ///< before the first step
  std::vector<std::int32_t> tokens, targets;  ///< samples x context; -100 is not counted
  std::int64_t counted;
  std::vector<double> logits;  ///< samples x context x vocabulary
  double loss;                 ///< mean over the counted targets
  Tensors gradients;           ///< of that loss, not clipped; a tied weight has the sum of both uses
  double gradient_norm;

  /// AdamW on this batch at a constant rate. Decay is for tensors of two dimensions only, embeddings included;
  /// gradients are multiplied by min(1, max_norm / norm) in every step.
  struct Training {
    std::int64_t steps;
    double learning_rate, beta1, beta2, epsilon, weight_decay, max_norm;
    std::vector<double> losses;          ///< before each step
    std::vector<double> gradient_norms;  ///< before clipping
    Tensors weights;                     ///< after the last step
  } training;
};

inline nlohmann::json read(const std::string& name) {
  const std::string path = std::string(DTRAIN_SOURCE_DIR) + "/tests/golden/" + name + ".json";
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  return nlohmann::json::parse(file);
}

/// `name` is that of the file without its ending: "gpt", "llama", ...
inline Case load(const std::string& name) {
  const nlohmann::json json = read(name);
  const auto& config = json.at("config");
  const auto& training = json.at("training");
  Case c{};
  config.at("model").get_to(c.model);
  config.at("vocabulary").get_to(c.vocabulary);
  config.at("context").get_to(c.context);
  config.at("width").get_to(c.width);
  config.at("heads").get_to(c.heads);
  config.at("key_value_heads").get_to(c.key_value_heads);
  config.at("hidden").get_to(c.hidden);
  config.at("layers").get_to(c.layers);
  config.at("samples").get_to(c.samples);
  config.at("tied").get_to(c.tied);
  c.bias = config.value("bias", false);
  c.gelu = config.value("gelu", "");
  json.at("shapes").get_to(c.shapes);
  json.at("weights").get_to(c.weights);
  json.at("tokens").get_to(c.tokens);
  json.at("targets").get_to(c.targets);
  json.at("counted").get_to(c.counted);
  json.at("logits").get_to(c.logits);
  json.at("loss").get_to(c.loss);
  json.at("gradients").get_to(c.gradients);
  json.at("gradient_norm").get_to(c.gradient_norm);
  training.at("steps").get_to(c.training.steps);
  training.at("learning_rate").get_to(c.training.learning_rate);
  training.at("beta1").get_to(c.training.beta1);
  training.at("beta2").get_to(c.training.beta2);
  training.at("epsilon").get_to(c.training.epsilon);
  training.at("weight_decay").get_to(c.training.weight_decay);
  training.at("max_norm").get_to(c.training.max_norm);
  training.at("losses").get_to(c.training.losses);
  training.at("gradient_norms").get_to(c.training.gradient_norms);
  training.at("weights").get_to(c.training.weights);
  return c;
}

}  // namespace golden
