// What nvcc has to compile besides the headers: the types of whole models, named where nothing is a template.
#include <dtrain/dtrain.hpp>

namespace dt = dtrain;

using Strategy = dt::Strategy<dt::DataParallel<2>, dt::TensorParallel<2>>;
using Gpt = dt::models::Gpt<dt::models::GptShape{.vocab = 16, .context = 8, .width = 8, .heads = 2, .layers = 2}>;
using Llama = dt::models::Llama<dt::models::LlamaShape{.vocab = 16, .context = 8, .width = 8, .heads = 2, .layers = 2}>;

std::string explain_gpt() { return dt::explain<Gpt, Strategy>({.samples = 8, .context = 8}); }
dt::Index count_llama() {
  return dt::parallel::explanation_of<Llama, dt::Serial>({.samples = 8, .context = 8}).whole_parameters;
}
