#include "training/kit/modules.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "contract/planes.h"
#include "training/base/data.h"
#include "training/modules/attention_module.h"
#include "training/modules/grouped_linear.h"
#include "training/modules/layer_module.h"
#include "training/modules/layernorm_linear.h"
#include "training/modules/layernorm_mlp.h"
#include "training/modules/linear.h"
#include "training/modules/ops_grouped_linear.h"
#include "training/modules/ops_linear.h"

namespace assay::training {

namespace {

using std::string_view;

bool grouped(string_view module) { return module.find("grouped") != string_view::npos; }

// What the settings of linear modules have in common.
template <class Settings> Settings linear_settings(const ModuleSettings& s) {
  Settings out;
  out.name = "m";
  out.in_features = s.in;
  out.out_features = s.out;
  out.bias = s.bias;
  out.params_dtype = s.dtype;
  return out;
}

std::unique_ptr<Module> make_mlp(Session& session, const ModuleSettings& s) {
  LayerNormMLPSettings mlp;
  mlp.name = "m";
  mlp.hidden_size = s.in;
  mlp.ffn_hidden_size = s.hidden;
  mlp.bias = s.bias;
  mlp.params_dtype = s.dtype;
  mlp.activation = s.activation;
  mlp.set_parallel_mode = s.parallel != ParallelMode::none;
  mlp.sequence_parallel = mlp.set_parallel_mode && s.sequence;
  return std::make_unique<LayerNormMLP>(session, mlp);
}

std::unique_ptr<Module> make_grouped(Session& session, const ModuleSettings& s) {
  const std::vector<int64_t> splits = splits_of(s);
  if (s.module == "grouped_linear") {
    auto settings = linear_settings<GroupedLinearSettings>(s);
    settings.num_gemms = splits.size();
    settings.save_original_input = s.save_original_input;
    settings.single_grouped_parameter = s.packed;
    settings.parallel_mode = s.parallel;
    settings.sequence_parallel = s.parallel != ParallelMode::none && s.sequence;
    settings.tp_size = s.tp_size;
    settings.bias = s.bias && s.tp_size == 1;
    auto m = std::make_unique<GroupedLinear>(session, settings);
    m->m_splits = splits;
    return m;
  }
  auto settings = linear_settings<OpsGroupedLinearSettings>(s);
  settings.num_groups = splits.size();
  auto m = std::make_unique<OpsGroupedLinear>(session, settings);
  m->m_splits = splits;
  return m;
}

// Weights and inputs that are drawn make logits of thousands, whose softmax is one key: a smaller softmax
// scale than usual spreads the probabilities.
constexpr int64_t kHead = 32;
constexpr F32Bits kSoftmaxScale = 0x3A800000;  // 2^-10

std::unique_ptr<Module> make_attention(Session& session, const ModuleSettings& s) {
  AttentionModuleSettings settings;
  settings.name = "m";
  settings.hidden_size = s.in;
  settings.heads = s.hidden / kHead;
  settings.head_size = kHead;
  settings.cross = s.module == "cross_mha";
  settings.input_layernorm = s.module == "layernorm_mha";
  settings.bias = s.bias;
  settings.params_dtype = s.dtype;
  settings.set_parallel_mode = s.parallel != ParallelMode::none;
  settings.sequence_parallel = settings.set_parallel_mode && s.sequence;
  settings.checkpoint_core = s.checkpoint_core;
  settings.softmax_scale = kSoftmaxScale;
  auto m = std::make_unique<AttentionModule>(session, settings);
  if (settings.cross) m->context = gradient({input_rows(s), s.in}, s.dtype, 40);
  return m;
}

std::unique_ptr<Module> make_layer(Session& session, const ModuleSettings& s) {
  LayerModuleSettings settings;
  settings.name = "m";
  settings.hidden_size = s.in;
  settings.ffn_hidden_size = s.hidden;
  settings.heads = s.hidden / kHead;
  settings.head_size = kHead;
  settings.bias = s.bias;
  settings.params_dtype = s.dtype;
  settings.set_parallel_mode = s.parallel != ParallelMode::none;
  settings.sequence_parallel = settings.set_parallel_mode && s.sequence;
  settings.checkpoint_core = s.checkpoint_core;
  settings.softmax_scale = kSoftmaxScale;
  settings.activation = s.activation;
  return std::make_unique<LayerModule>(session, settings);
}

}  // namespace

bool is_attention_module(string_view module) {
  return std::find(std::begin(kAttentionModules), std::end(kAttentionModules), module) !=
         std::end(kAttentionModules);
}

Producer producer_of(string_view module) {
  static constexpr std::pair<string_view, Producer> kProducers[] = {
      {"linear", Producer::linear},
      {"layernorm_linear", Producer::layernorm_linear},
      {"layernorm_mlp", Producer::layernorm_mlp},
      {"grouped_linear", Producer::grouped_linear},
      {"ops_linear", Producer::ops_basic_linear},
      {"ops_grouped_linear", Producer::ops_grouped_linear},
  };
  for (const auto& [name, producer] : kProducers)
    if (name == module) return producer;
  throw std::logic_error("no module " + std::string(module));
}

std::unique_ptr<Module> make_module(Session& session, const ModuleSettings& s) {
  if (s.module == "layernorm_mlp") return make_mlp(session, s);
  if (s.module == "transformer_layer") return make_layer(session, s);
  if (is_attention_module(s.module)) return make_attention(session, s);
  if (s.module == "ops_linear") {
    auto settings = linear_settings<OpsLinearSettings>(s);
    settings.parallel_mode = s.parallel;
    settings.sequence_parallel = s.parallel != ParallelMode::none && s.sequence;
    return std::make_unique<OpsLinear>(session, settings);
  }
  if (s.module == "grouped_linear" || s.module == "ops_grouped_linear") return make_grouped(session, s);
  auto linear = linear_settings<LinearSettings>(s);
  linear.parallel_mode = s.parallel;
  linear.sequence_parallel = s.parallel != ParallelMode::none && s.sequence;
  linear.save_original_input = s.save_original_input;
  if (s.module == "linear") return std::make_unique<Linear>(session, linear);
  if (s.module == "layernorm_linear")
    return std::make_unique<LayerNormLinear>(session, LayerNormLinearSettings{linear, {}});
  throw std::logic_error("no module " + std::string(s.module));
}

std::vector<int64_t> splits_of(const ModuleSettings& s) {
  return s.splits.empty() ? std::vector<int64_t>{round_up(s.rows, 64), 0, 64} : s.splits;
}

int64_t input_rows(const ModuleSettings& s) {
  if (is_attention_module(s.module)) return round_up(s.rows, 128);  // what MXFP8 needs of a sequence
  if (!grouped(s.module)) return s.rows;
  const std::vector<int64_t> splits = splits_of(s);
  return std::accumulate(splits.begin(), splits.end(), int64_t{0});
}

int64_t output_columns(const ModuleSettings& s) {
  return s.module == "layernorm_mlp" || is_attention_module(s.module) ? s.in : s.out;
}

}  // namespace assay::training
