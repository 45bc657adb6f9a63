#include "training/parity/parity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <memory>
#include <numeric>
#include <span>

#include "contract/line.h"
#include "contract/words.h"
#include "training/base/data.h"
#include "training/base/errors.h"
#include "training/base/f32.h"
#include "training/recipes/factories.h"
#include "training/formats/hybrid.h"
#include "training/recipes/line_factory.h"
#include "training/modules/grouped_linear.h"
#include "training/modules/layernorm_linear.h"
#include "training/modules/layernorm_mlp.h"
#include "training/modules/linear.h"
#include "training/modules/ops_grouped_linear.h"
#include "training/modules/ops_linear.h"
#include "training/recipes/producers.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr int64_t kIn = 128, kOut = 96, kHidden = 160;   // a multiple of 128 for fused kernels, and a partial block of 128 beside it
constexpr size_t kExperts = 3;

// --- routes -----------------------------------------------------------------------------------------------------------------------------------

// What may be taken away from a cell to see whether a difference goes with it. Codes are those of docs/parity.md.
struct Removed {
  bool fused_producers = false;      // E1: vanilla quantizes the rounded output of norm and activation, as hybrid does
  bool random_states = false;        // E2: every draw of a tensor takes the same state on both routes, and a word of it the same element whatever a launch produces
  bool sign_of_zero = false;         // E12: every kernel keeps the sign of a zero product
  bool fused_bias_gradient = false;  // E13: vanilla sums the bias gradient plainly
  bool tn_only = false;              // E8: an architecture without a physical transpose
  bool packed = false;               // E10: separate weights
};
struct Cause {
  string_view code, what;
  bool Removed::*removed;
  bool (*possible)(const Cell&);
};

bool uses(const Cell& c, string_view format) { return c.formats.fprop == format || c.formats.dgrad == format || c.formats.wgrad == format; }
bool normed(const Cell& c) { return c.module.starts_with("layernorm"); }
constexpr Cause kCauses[] = {
    {"E13", "vanilla sums the bias gradient inside its kernel, in chunks of rows", &Removed::fused_bias_gradient, [](const Cell& c) { return uses(c, "mxfp8"); }},
    {"E1", "vanilla quantizes un-rounded values of a fused norm or activation", &Removed::fused_producers, normed},
    {"E2", "stochastic rounding draws another state per direction", &Removed::random_states, [](const Cell& c) { return c.formats.dgrad == "nvfp4" || c.formats.wgrad == "nvfp4"; }},
    {"E12", "kernel selection of MXFP8 decides the sign of a zero", &Removed::sign_of_zero, [](const Cell& c) { return c.flavour == Flavour::te && uses(c, "mxfp8"); }},
    {"E8", "per-tensor FP8 has no columns without rows where columns are a physical transpose", &Removed::tn_only,
     [](const Cell& c) { return uses(c, "fp8_current") && c.arch != Arch::sm100 && c.arch != Arch::sm110; }},
    {"E10", "packed grouped weights take neither hybrids nor Identity", &Removed::packed, [](const Cell& c) { return c.packed; }},
};

// A quantizer of one format for one role, as its base factory makes it.
QuantizerPtr make(string_view format, const RolePtr& role) {
  static const std::pair<string_view, string_view> kFactories[] = {{"fp8_current", "current_scaling_factory"}, {"fp8_block", "float8_block_scaling_factory"},
                                                                   {"mxfp8", "mxfp8_factory"}, {"nvfp4", "nvfp4_factory"}, {"identity", "high_precision_factory"}};
  for (const auto& [name, factory] : kFactories)
    if (name == format) return std::get<QuantizerPtr>(factory_named(factory)->call(role));
  throw std::logic_error("no factory for " + string(format));
}

// Hybrid's recipe: each tensor gets the formats of the two GEMMs that read it.
RecipePtr hybrid_recipe(const Cell& c) {
  if (!c.factory.empty()) return custom_recipe(c.factory);
  const auto recipe = std::make_shared<CustomRecipe>();
  recipe->qfactory = std::make_shared<const QFactory>(QFactory{"parity", [c](const RolePtr& role) -> QuantizerLike {
    const string tensor = role ? role->tensor_type : "";
    const auto [row, col] = tensor == "weight" ? std::pair(c.formats.fprop, c.formats.dgrad)
                            : tensor == "grad_output" ? std::pair(c.formats.dgrad, c.formats.wgrad)
                                                      : std::pair(c.formats.fprop, c.formats.wgrad);
    const bool chosen = !tensor.empty() && c.roles.find(tensor) != string_view::npos;
    if (row == col && !chosen) return make(row, role);
    return std::static_pointer_cast<Quantizer>(
        std::make_shared<HybridQuantizer>(make(row, role), make(col, role), c.backward_override == "dequantized" ? "rowwise_dequantized" : "original"));
  }});
  return recipe;
}

// Vanilla's recipe for one format; null for none.
RecipePtr vanilla_recipe(string_view format, string_view backward_override) {
  RecipePtr recipe;
  if (format == "fp8_current") recipe = std::make_shared<Float8CurrentScaling>();
  if (format == "fp8_block") recipe = std::make_shared<Float8BlockScaling>();
  if (format == "mxfp8") recipe = std::make_shared<MXFP8BlockScaling>();
  if (format == "nvfp4") recipe = std::make_shared<NVFP4BlockScaling>();
  if (recipe && !backward_override.empty()) recipe->backward_override = string(backward_override);
  return recipe;
}

// Rows per expert: one has none, and grouped NVFP4 needs multiples of 64. 64 tokens leave members that are no multiple of 128, beyond them one is.
std::vector<int64_t> splits_of(const Cell& c) { return {round_up(c.tokens, 64), 0, 64}; }
int64_t rows_of(const Cell& c) {
  const std::vector<int64_t> splits = splits_of(c);
  return c.module.find("grouped") == string_view::npos ? c.tokens : std::accumulate(splits.begin(), splits.end(), int64_t{0});
}

std::unique_ptr<Module> make_module(Session& session, const Cell& c, bool packed) {
  const ParallelMode parallel = c.phase == Phase::column ? ParallelMode::column : c.phase == Phase::row ? ParallelMode::row : ParallelMode::none;
  LinearSettings linear;
  linear.name = "m";
  linear.in_features = kIn;
  linear.out_features = kOut;
  linear.parallel_mode = parallel;
  linear.sequence_parallel = parallel != ParallelMode::none;
  if (c.module == "linear") return std::make_unique<Linear>(session, linear);
  if (c.module == "layernorm_linear") return std::make_unique<LayerNormLinear>(session, LayerNormLinearSettings{linear, {}});
  if (c.module == "layernorm_mlp") {
    LayerNormMLPSettings s;
    s.name = "m";
    s.hidden_size = kIn;
    s.ffn_hidden_size = kHidden;
    s.activation = Activation::srelu;   // its large results have more digits than bf16 holds, which GELU's have not: E1 shows
    s.sequence_parallel = s.set_parallel_mode = parallel != ParallelMode::none;
    return std::make_unique<LayerNormMLP>(session, s);
  }
  if (c.module == "grouped_linear") {
    GroupedLinearSettings s;
    s.name = "m";
    s.num_gemms = kExperts;
    s.in_features = kIn;
    s.out_features = kOut;
    s.single_grouped_parameter = packed;
    auto m = std::make_unique<GroupedLinear>(session, s);
    m->m_splits = splits_of(c);
    return m;
  }
  if (c.module == "ops_linear") return std::make_unique<OpsLinear>(session, OpsLinearSettings{"m", kIn, kOut, true, DType::bfloat16, UsagePolicy::assign});
  OpsGroupedLinearSettings s;
  s.name = "m";
  s.num_groups = kExperts;
  s.in_features = kIn;
  s.out_features = kOut;
  s.bias = true;
  auto m = std::make_unique<OpsGroupedLinear>(session, s);
  m->m_splits = splits_of(c);
  return m;
}

// The amaxes of another rank, larger in one tensor than in the next, so that a reduction that is left out shows.
GroupPtr tensor_parallel_group() {
  const auto group = std::make_shared<ProcessGroup>();
  group->name = "tp";
  group->size = 2;
  group->all_reduce_max = [](std::span<F32Bits> amaxes) {
    for (F32Bits& a : amaxes) a = std::max<F32Bits>(a, 0x44A00000);   // 1280
  };
  return group;
}

uint64_t hash_of(string_view text) {
  uint64_t h = 0xCBF29CE484222325;
  for (const char ch : text) h = (h ^ static_cast<unsigned char>(ch)) * 0x100000001B3;
  return h;
}

// One route through a cell: the module is built, filled and stepped, and its last step's record kept.
StepRecord run_route(const Cell& c, const RecipePtr& recipe, const Removed& removed, Subject& subject, const Environment& environment) {
  Session session(subject, environment);
  session.arch = removed.tn_only ? Arch::sm100 : c.arch;
  session.flavour = c.flavour;
  session.rng.reseed(7);
  if (removed.random_states) session.rng.inject = [&session] { return hash_of(session.tensor_name) % 4096 * kPhiloxStep; };
  if (removed.random_states || removed.sign_of_zero)
    session.adjust = [removed](Numerics& n) {
      if (removed.random_states) n.draw = Draw::logical;
      if (removed.sign_of_zero) n.neg_zero = NegZero::keep;
    };
  const std::unique_ptr<Module> m = make_module(session, c, c.packed && !removed.packed);
  uint64_t seed = 100;
  std::vector<ArrayPtr> masters;
  for (Parameter& p : m->parameters) {
    const ArrayPtr* plain_value = std::get_if<ArrayPtr>(&p.value);
    const Dims shape = plain_value ? (*plain_value)->shape : shape_of(p.value);
    masters.push_back(drawn(shape, DType::float32, seed++));
    write_back(session, p, masters.back());
  }
  if (recipe && (c.phase == Phase::quantized_init || c.phase == Phase::evaluation || c.phase == Phase::trajectory)) m->quantize_parameters(session, recipe);
  const int64_t out = c.module == "layernorm_mlp" ? kIn : kOut;
  StepOptions options;
  options.recipe = recipe;
  options.fusions = {!removed.fused_producers, !removed.fused_producers, !removed.fused_bias_gradient};
  if (c.phase == Phase::column || c.phase == Phase::row) options.tp_group = tensor_parallel_group();
  const auto step = [&](uint64_t n) {
    const ArrayPtr dy = gradient({rows_of(c), out}, DType::bfloat16, 20 + n);
    if (rows_of(c) > 128 && c.formats.dgrad == "mxfp8") plant_sum_order(*dy, out / 2);
    m->step(session, gradient({rows_of(c), kIn}, DType::bfloat16, 10 + n), dy, options);
  };
  switch (c.phase) {
    case Phase::cached:
      options.is_first_microbatch = true;
      step(0);
      options.is_first_microbatch = false;
      step(1);
      break;
    case Phase::trajectory:
      for (uint64_t n = 0; n < 3; ++n) {
        step(n);
        if (n == 2) break;
        // An update that every gradient bit takes part in; that it ascends does not matter here.
        for (size_t i = 0; i < m->parameters.size(); ++i) {
          Parameter& p = m->parameters[i];
          if (!p.grad) continue;
          masters[i] = add(session, masters[i], view(cast(session, contiguous(p.grad), DType::float32), masters[i]->shape));
          write_back(session, p, masters[i]);
        }
      }
      break;
    case Phase::evaluation:
      step(0);
      options.grad_enabled = false;
      m->forward(session, gradient({rows_of(c), kIn}, DType::bfloat16, 30), options);
      options.grad_enabled = true;
      for (size_t i = 0; i < m->parameters.size(); ++i) write_back(session, m->parameters[i], drawn(masters[i]->shape, DType::float32, 300 + i));
      step(1);
      break;
    default: step(0);
  }
  return m->record;
}

// --- a factory's quantizers -------------------------------------------------------------------------------------------------------------------

constexpr struct {
  string_view name;
  Producer producer;
} kModules[] = {{"linear", Producer::linear},
                {"layernorm_linear", Producer::layernorm_linear},
                {"layernorm_mlp", Producer::layernorm_mlp},
                {"grouped_linear", Producer::grouped_linear},
                {"ops_linear", Producer::ops_basic_linear},
                {"ops_grouped_linear", Producer::ops_grouped_linear}};
constexpr string_view kGemms[] = {"fprop", "dgrad", "wgrad"};

// One direction of a tensor: what the factory makes it with, and the GEMM that reads it.
struct Operand {
  RolePtr role;
  Direction direction;
  size_t gemm;
  QuantizerPtr quantizer;
  string_view format;
  bool from_rows;   // columns of dequantized rows
  bool plain;       // a built-in recipe's own quantizer, no hybrid
  string text() const {
    return string(direction == Direction::row ? "rows of " : "columns of ") + role->module_type + "/" + role->tensor_type + (role->name.empty() ? "" : "/" + role->name);
  }
};

// The format word of a quantizer; empty where no built-in recipe makes it.
string_view format_of(const Quantizer& q) {
  static constexpr std::pair<string_view, string_view> kClasses[] = {{"Float8CurrentScalingQuantizer", "fp8_current"}, {"Float8BlockQuantizer", "fp8_block"},
                                                                     {"MXFP8Quantizer", "mxfp8"}, {"NVFP4Quantizer", "nvfp4"}, {"IdentityQuantizer", "identity"}};
  for (const auto& [name, format] : kClasses)
    if (q.class_name() == name) return format;
  return "";
}

// The operands of every GEMM of a module, layer by layer, as `factory` makes them.
Result<std::vector<Operand>> operands_of(const QFactory& factory, Producer producer) {
  static constexpr struct {
    string_view tensor;
    size_t row, col;
  } kReaders[] = {{"input", 0, 2}, {"weight", 0, 1}, {"grad_output", 1, 2}};
  std::vector<RolePtr> roles;
  for (const Mode mode : {Mode::forward, Mode::backward})
    for (const RolePtr& role : role_list(producer, "m", mode, slots_of_module(mode, 2)))
      if (role && std::none_of(roles.begin(), roles.end(), [&](const RolePtr& r) { return same_role(r, role); })) roles.push_back(role);
  std::vector<Operand> out;
  for (const RolePtr& role : roles)
    for (const auto& reader : kReaders) {
      if (role->tensor_type != reader.tensor) continue;
      Operand row{role, Direction::row, reader.row, nullptr, "", false, false}, col{role, Direction::col, reader.col, nullptr, "", false, false};
      QuantizerLike made;
      try {
        made = factory.call(role);
      } catch (const std::exception& e) {
        return Error{factory.name + " raises for " + to_text(*role) + ": " + e.what(), 0, ""};
      }
      const bool delayed = std::holds_alternative<DelayedScalingRequest>(made);
      if (const QuantizerPtr* q = std::get_if<QuantizerPtr>(&made); q && *q) {
        row.quantizer = col.quantizer = *q;
        if (const auto* pair = dynamic_cast<const HybridQuantizer*>(q->get())) {
          row.quantizer = pair->rowwise_quantizer;
          col.quantizer = pair->columnwise_quantizer;
          col.from_rows = pair->columnwise_source == "rowwise_dequantized";
        }
      }
      for (Operand* o : {&row, &col}) {
        if (o->quantizer) o->format = format_of(*o->quantizer);
        o->plain = o->quantizer && o->format != "identity" && row.quantizer == col.quantizer;
        if (!o->format.empty()) continue;
        const auto* other = std::get_if<NotAQuantizer>(&made);
        const string found = o->quantizer ? string(o->quantizer->class_name()) : delayed ? "a request for delayed scaling (exclusion E4 of docs/parity.md)" : other ? other->what : "nothing";
        return Error{"expected a quantizer that a built-in recipe has too for " + o->text() + ", which " + string(kGemms[o->gemm]) + " reads; " + factory.name + " returns " + found, 0, "scenarios judge what has no vanilla counterpart: assay list scenarios"};
      }
      out.push_back(row);
      out.push_back(col);
    }
  return out;
}

// Fills formats and override of a factory's cell.
Result<Cell> with_formats(Cell c) {
  const QFactoryPtr factory = factory_named(c.factory);
  const auto module = std::find_if(std::begin(kModules), std::end(kModules), [&](const auto& m) { return m.name == c.module; });
  const Result<std::vector<Operand>> operands = operands_of(*factory, module->producer);
  if (!operands) return operands.error();
  std::array<const Operand*, 3> first{};
  bool dequantized = true;   // every column of a forward tensor
  for (const Operand& o : *operands) {
    const Operand*& seen = first[o.gemm];
    if (!seen) seen = &o;
    if (seen->format != o.format) {
      const bool layers = seen->role->name != o.role->name;
      return Error{"expected one format for " + (layers ? "both layers of " + string(c.module) + " in " : "both operands of ") + string(kGemms[o.gemm]) + ", found " + string(seen->format) + " for " + seen->text() + " and " +
                       string(o.format) + " for " + o.text(), 0, layers ? "E6 of docs/parity.md: no single vanilla recipe has both" : "vanilla has a recipe per GEMM, not per operand"};
    }
    if (o.direction == Direction::col && o.role->tensor_type != "grad_output") dequantized &= o.from_rows;
  }
  c.formats = {first[0]->format, first[1]->format, first[2]->format};
  const bool gradients_plain = c.formats.dgrad == "identity" && c.formats.wgrad == "identity" && c.formats.fprop != "identity";
  if (c.module == "layernorm_mlp" && (c.formats.fprop != c.formats.dgrad || c.formats.dgrad != c.formats.wgrad))
    return Error{"expected one format for all GEMMs of layernorm_mlp, found " + to_text(c.formats) + " (fprop | dgrad | wgrad)", 0, "E6 of docs/parity.md: its second layer's backward depends on both, no single vanilla step has it"};
  if (gradients_plain && dequantized && c.backward_override.empty()) c.backward_override = "dequantized";
  const bool keeps_weights = c.phase == Phase::quantized_init || c.phase == Phase::trajectory || c.phase == Phase::evaluation;
  const auto plain = std::find_if(operands->begin(), operands->end(), [](const Operand& o) { return o.role->tensor_type == "weight" && o.plain; });
  if (keeps_weights && plain != operands->end() && !c.module.starts_with("ops"))
    return Error{"expected a hybrid for a weight that stays quantized, found " + string(plain->quantizer->class_name()) + ", which the original refuses under CustomRecipe", 0, "return a HybridQuantizer of two"};
  if (c.phase == Phase::trajectory && c.backward_override.empty() && (c.formats.fprop != c.formats.dgrad || c.formats.dgrad != c.formats.wgrad))
    return Error{"expected one format for a trajectory, found " + to_text(c.formats) + " (fprop | dgrad | wgrad)", 0, "no vanilla trajectory has its weights: each step of vanilla's updates by gradients of its own format"};
  if (!c.backward_override.empty() && !gradients_plain)
    return Error{"expected gradients in high precision with override=" + string(c.backward_override) + ", found " + to_text(c.formats) + " (fprop | dgrad | wgrad)", 0, "leave override= out"};
  return c;
}

// --- comparison -------------------------------------------------------------------------------------------------------------------------------

struct Difference {
  string what, expected, found;
};
using Found = std::optional<Difference>;

string hex_at(const std::vector<std::byte>& bytes, size_t i) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  const unsigned b = std::to_integer<unsigned>(bytes[i]);
  return {kDigits[b >> 4], kDigits[b & 15]};
}

Found compare_bytes(const string& what, const std::vector<std::byte>& got, const std::vector<std::byte>& want, int64_t& compared) {
  if (got.size() != want.size()) return Difference{what, std::to_string(want.size()) + " bytes", std::to_string(got.size()) + " bytes"};
  compared += static_cast<int64_t>(got.size());
  const auto at = static_cast<size_t>(std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin());
  if (at == got.size()) return std::nullopt;
  size_t differ = 0;
  for (size_t i = 0; i < got.size(); ++i) differ += got[i] != want[i];
  return Difference{what, hex_at(want, at) + " at byte " + std::to_string(at), hex_at(got, at) + "; " + std::to_string(differ) + " of " + std::to_string(got.size()) + " bytes differ"};
}

std::vector<std::byte> bytes_of_array(const ArrayPtr& a) {
  if (!a) return {};
  const ArrayPtr dense = contiguous(a);
  const auto bytes = std::as_const(*dense).bytes();
  return {bytes.begin(), bytes.end()};
}

// The GEMM "fc1.dgrad" or "wgrad.2" is one of the three kinds.
bool is_gemm(const GemmRecord& g, string_view kind) { return g.name.find(kind) != string::npos; }

// Operand planes and result of every GEMM of one kind.
Found compare_gemms(string_view kind, const StepRecord& got, const StepRecord& want, int64_t& compared) {
  std::vector<const GemmRecord*> a, b;
  for (const GemmRecord& g : got.gemms)
    if (is_gemm(g, kind)) a.push_back(&g);
  for (const GemmRecord& g : want.gemms)
    if (is_gemm(g, kind)) b.push_back(&g);
  if (a.size() != b.size() || b.empty()) return Difference{"GEMMs of " + string(kind), std::to_string(b.size()), std::to_string(a.size())};
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i]->name != b[i]->name) return Difference{"name of a GEMM", b[i]->name, a[i]->name};
    if (a[i]->planes.size() != b[i]->planes.size()) return Difference{a[i]->name + ": operand planes", std::to_string(b[i]->planes.size()), std::to_string(a[i]->planes.size())};
    for (size_t p = 0; p < a[i]->planes.size(); ++p) {
      const PlaneData &x = a[i]->planes[p], &y = b[i]->planes[p];
      if (x.plane.name != y.plane.name) return Difference{a[i]->name + ": operand plane", y.plane.name, x.plane.name};
      if (Found d = compare_bytes(a[i]->name + ": " + x.plane.name, x.bytes, y.bytes, compared)) return d;
    }
    if (a[i]->line != b[i]->line) return Difference{a[i]->name + ": settings", b[i]->line, a[i]->line};
    if (Found d = compare_bytes(a[i]->name + ": result", bytes_of_array(a[i]->out), bytes_of_array(b[i]->out), compared)) return d;
  }
  return std::nullopt;
}

// Outputs that one kind of GEMM decides.
Found compare_outputs(const std::function<bool(const string&)>& wanted, const StepRecord& got, const StepRecord& want, int64_t& compared) {
  for (const NamedArray& y : want.outputs) {
    if (!wanted(y.name)) continue;
    const auto x = std::find_if(got.outputs.begin(), got.outputs.end(), [&](const NamedArray& o) { return o.name == y.name; });
    if (x == got.outputs.end()) return Difference{y.name, "present", "absent"};
    if (Found d = compare_bytes(y.name, bytes_of_array(x->array), bytes_of_array(y.array), compared)) return d;
  }
  return std::nullopt;
}

// The settings of one direction, as keys of a line.
string settings_text(const assay::Quantizer& q, Direction d) {
  Problem p;
  p.op = Quantize{};
  p.quantizer(d) = q;
  const string line = to_line(p);
  const Words words = words_of(line, ' ');
  string out(words[1]);
  for (size_t i = 4; i < words.size(); ++i)   // behind op, format, shape and source
    if (!words[i].starts_with("dir=")) out += " " + string(words[i]);
  return out;
}

// What a factory sets for each operand against what the built-in recipe of its format does. Settings that decide no bit of a direction are no difference.
Found compare_settings(const Cell& c) {
  if (c.factory.empty()) return std::nullopt;
  const auto module = std::find_if(std::begin(kModules), std::end(kModules), [&](const auto& m) { return m.name == c.module; });
  const Result<std::vector<Operand>> operands = operands_of(*factory_named(c.factory), module->producer);
  if (!operands) return Difference{"quantizers", "those of the cell", operands.error().text()};
  for (const Operand& o : *operands) {
    if (o.format == "identity") continue;
    const Result<Problem> vanilla = parse_line("quantize " + string(o.format) + " 128x256 bf16 role=" + o.role->module_type + "/" + o.role->tensor_type);
    const std::optional<assay::Quantizer> got = o.quantizer->line(o.direction);
    if (!vanilla || !got) return Difference{"settings of " + o.text(), vanilla ? settings_text(*vanilla->quantizer(o.direction), o.direction) : vanilla.error().text(), got ? settings_text(*got, o.direction) : "none"};
    if (*got != *vanilla->quantizer(o.direction))
      return Difference{"settings of " + o.text() + ", which " + string(kGemms[o.gemm]) + " reads", settings_text(*vanilla->quantizer(o.direction), o.direction), settings_text(*got, o.direction)};
  }
  return std::nullopt;
}

// A quantizer's settings for each direction, without what differs between the routes on purpose: class, usages, storage kind.
json::Value settings_of(const json::Value& quantizer, string_view child) {
  if (const json::Value* sub = quantizer.find(child)) return settings_of(*sub, child);
  json::Value out = json::object();
  if (!quantizer.object()) return out;
  for (const auto& [key, value] : *quantizer.object())
    if (key != "rowwise_usage" && key != "columnwise_usage" && key != "internal" && key != "optimize_for_gemm" && key != "amax_reduction_group" && key != "with_amax_reduction")
      out.set(key, value);
  return out;
}

Found compare_quantizers(const RoleList& roles, const std::vector<json::Value>& got, const std::vector<json::Value>& want) {
  if (got.size() != want.size()) return Difference{"quantizers", std::to_string(want.size()), std::to_string(got.size())};
  for (size_t i = 0; i < got.size(); ++i) {
    if (!roles || i >= roles->size() || !(*roles)[i]) continue;   // a boundary that nobody consumes
    for (const string_view child : {string_view("rowwise_quantizer"), string_view("columnwise_quantizer")})
      if (const json::Value x = settings_of(got[i], child), y = settings_of(want[i], child); x != y)
        return Difference{"quantizer of " + to_text(*(*roles)[i]), json::dump(y), json::dump(x)};
  }
  return std::nullopt;
}

Found compare_roles(const RoleList& got, const RoleList& want) {
  if (got.has_value() != want.has_value() || (got && got->size() != want->size())) return Difference{"role list", "vanilla's", "another length"};
  for (size_t i = 0; got && i < got->size(); ++i) {
    const RolePtr &x = (*got)[i], &y = (*want)[i];
    if (!x != !y || (x && *x != *y)) return Difference{"role " + std::to_string(i), y ? to_text(*y) : "none", x ? to_text(*x) : "none"};
  }
  return std::nullopt;
}

template <class T, class Text>
Found compare_lists(const string& what, const std::vector<T>& got, const std::vector<T>& want, Text text) {
  const auto words = [&](const std::vector<T>& list) {
    string out;
    for (const T& item : list) out += (out.empty() ? "" : ", ") + text(item);
    return out.empty() ? string("none") : out;
  };
  const string x = words(got), y = words(want);
  return x == y ? std::nullopt : Found(Difference{what, y, x});
}

// A hybrid reduces in each of its two launches where vanilla reduces in its one: the same tensor over the same group twice in a row counts once.
std::vector<Collective> once_per_tensor(std::vector<Collective> trace) {
  trace.erase(std::unique(trace.begin(), trace.end()), trace.end());
  return trace;
}

// The hybrid step against up to three vanilla ones, in the order in which one thing explains the next.
Found compare_steps(const Cell& c, const StepRecord& hybrid, const std::array<StepRecord, 3>& vanilla, bool states_given, int64_t& compared) {
  const StepRecord &f = vanilla[0], &d = vanilla[1], &w = vanilla[2];
  const bool one = c.formats.fprop == c.formats.dgrad && c.formats.dgrad == c.formats.wgrad && c.backward_override.empty() && c.formats.fprop != "identity";
  if (one) {
    if (Found x = compare_roles(hybrid.forward_roles, f.forward_roles)) return x;
    if (Found x = compare_roles(hybrid.backward_roles, f.backward_roles)) return x;
    if (c.factory.empty()) {   // a factory's are compared by what each direction makes of them, before anything runs
      if (Found x = compare_quantizers(f.forward_roles, hybrid.forward_quantizers, f.forward_quantizers)) return x;
      if (Found x = compare_quantizers(f.backward_roles, hybrid.backward_quantizers, f.backward_quantizers)) return x;
    }
  }
  if (Found x = compare_gemms("fprop", hybrid, f, compared)) return x;
  if (Found x = compare_outputs([](const string& n) { return n == "output"; }, hybrid, f, compared)) return x;
  if (Found x = compare_gemms("dgrad", hybrid, d, compared)) return x;
  if (Found x = compare_gemms("wgrad", hybrid, w, compared)) return x;
  const auto of_wgrad = [](const string& n) { return n.find("weight") != string::npos && n.find("layer_norm") == string::npos; };
  if (Found x = compare_outputs([&](const string& n) { return n != "output" && !of_wgrad(n); }, hybrid, d, compared)) return x;
  if (Found x = compare_outputs(of_wgrad, hybrid, w, compared)) return x;
  if (!one) return std::nullopt;
  if (!states_given) {
    if (Found x = compare_lists("random states drawn", hybrid.draws, f.draws, [](const RngDraw& r) { return std::to_string(r.offset) + (r.used ? "" : " unused"); })) return x;
    if (hybrid.rng_offset != f.rng_offset) return Difference{"generator's offset after the step", std::to_string(f.rng_offset), std::to_string(hybrid.rng_offset)};
  }
  if (Found x = compare_lists("collectives", once_per_tensor(hybrid.collectives), once_per_tensor(f.collectives), [](const Collective& k) { return k.what + " of " + k.who + " over " + k.group; })) return x;
  if (Found x = compare_lists("workspaces", hybrid.cache, f.cache, [](const CacheEvent& e) { return e.weight + " " + e.what; })) return x;
  return std::nullopt;
}

struct Compared {
  Found difference;
  int64_t bytes = 0;
};

Compared run_cell(const Cell& c, const Removed& removed, Subject& subject, const Environment& environment) {
  Compared out;
  const auto vanilla = [&](string_view format) {
    return run_route(c, vanilla_recipe(c.backward_override.empty() ? format : c.formats.fprop, c.backward_override), removed, subject, environment);
  };
  std::array<StepRecord, 3> routes;
  routes[0] = vanilla(c.formats.fprop);
  routes[1] = c.formats.dgrad == c.formats.fprop || !c.backward_override.empty() ? routes[0] : vanilla(c.formats.dgrad);
  routes[2] = c.formats.wgrad == c.formats.dgrad ? routes[1] : c.formats.wgrad == c.formats.fprop ? routes[0] : vanilla(c.formats.wgrad);
  StepRecord hybrid;
  try {
    hybrid = run_route(c, hybrid_recipe(c), removed, subject, environment);
  } catch (const SemanticError& e) {
    out.difference = Difference{"hybrid's step", "a step", string(name_of(e.error_class)) + ": " + e.what()};
    return out;
  }
  out.difference = compare_steps(c, hybrid, routes, removed.random_states, out.bytes);
  return out;
}

// --- the table --------------------------------------------------------------------------------------------------------------------------------

constexpr string_view kFormats[] = {"fp8_current", "mxfp8", "fp8_block", "nvfp4"};
constexpr string_view kArchs[] = {"sm90", "sm100", "sm110", "sm120"};   // by Arch
constexpr string_view kOverrides[] = {"high_precision", "dequantized"};
constexpr string_view kRoleSets[] = {"input,weight", "input", "weight", "input,weight,grad_output"};

bool is_parallel(Phase p) { return p == Phase::column || p == Phase::row; }
bool has_tensor_parallelism(string_view module) { return !module.starts_with("ops") && module != "grouped_linear"; }

// Phases, architectures, kernel selection, both sides of the fused kernels' row count.
void add_circumstances(std::vector<Cell>& cells, const Cell& cell, bool every_phase, bool long_sums) {
  const auto add = [&](auto set) {
    cells.push_back(cell);
    set(cells.back());
  };
  for (size_t p = 0; p < std::size(kPhaseNames); ++p) {
    const Phase phase = static_cast<Phase>(p);
    if ((is_parallel(phase) && !has_tensor_parallelism(cell.module)) || (!every_phase && phase != Phase::train)) continue;
    add([&](Cell& c) { c.phase = phase; });
  }
  add([](Cell& c) { c.arch = Arch::sm90; });
  add([](Cell& c) { c.flavour = Flavour::te; });
  add([](Cell& c) { c.tokens = 96; });
  if (long_sums) add([](Cell& c) { c.tokens = 160; });
}

std::vector<Cell> make_cells() {
  std::vector<Cell> cells;
  // One format, each set of roles.
  for (const auto& [module, producer] : kModules)
    for (const string_view f : kFormats) {
      Cell c;
      c.module = module;
      c.formats = {f, f, f};
      for (const string_view roles : kRoleSets) {
        c.roles = roles;
        add_circumstances(cells, c, roles == kRoleSets[0] || roles == kRoleSets[3], roles == kRoleSets[3]);
      }
    }
  // Two formats: forward and gradients apart; Identity stands for one that is not quantized.
  for (const auto& [module, producer] : kModules)
    for (const string_view row : {string_view("fp8_current"), string_view("mxfp8"), string_view("fp8_block"), string_view("nvfp4"), string_view("identity")})
      for (const string_view col : {string_view("fp8_current"), string_view("mxfp8"), string_view("fp8_block"), string_view("nvfp4"), string_view("identity")}) {
        if (module == "layernorm_mlp" || (row == col && row != "identity")) continue;   // two layers have no single vanilla recipe: E6 of docs/parity.md
        Cell c;
        c.module = module;
        c.formats = {row, col, col};
        cells.push_back(c);
        if (module == "linear") {
          c.phase = Phase::quantized_init;
          cells.push_back(c);
        }
      }
  for (const Phase phase : {Phase::train, Phase::quantized_init}) {
    Cell c;
    c.module = "layernorm_mlp";
    c.formats = {"identity", "identity", "identity"};
    c.phase = phase;
    cells.push_back(c);
  }
  // Gradients in high precision, against the built-in override.
  for (const string_view module : {string_view("linear"), string_view("layernorm_linear"), string_view("grouped_linear")})
    for (const string_view f : {string_view("fp8_current"), string_view("mxfp8"), string_view("fp8_block")})
      for (const string_view how : {string_view("high_precision"), string_view("dequantized")}) {
        Cell c;
        c.module = module;
        c.formats = {f, "identity", "identity"};
        c.backward_override = how;
        cells.push_back(c);
      }
  // Three formats.
  for (const string_view module : {string_view("linear"), string_view("layernorm_linear")})
    for (const string_view f : kFormats)
      for (const string_view d : kFormats)
        for (const string_view w : kFormats) {
          if (f == d || d == w || f == w) continue;
          Cell c;
          c.module = module;
          c.formats = {f, d, w};
          cells.push_back(c);
        }
  Cell packed;
  packed.module = "grouped_linear";
  packed.formats = {"mxfp8", "mxfp8", "mxfp8"};
  packed.phase = Phase::quantized_init;
  packed.packed = true;
  cells.push_back(packed);
  return cells;
}

}  // namespace

string to_text(const Formats& f) {
  string out(f.fprop);
  if (f.dgrad != f.fprop || f.wgrad != f.fprop) out += "|" + string(f.dgrad);
  if (f.wgrad != f.dgrad) out += "|" + string(f.wgrad);
  return out;
}

string circumstances(const Cell& c) {
  string out;
  const auto say = [&](string_view key, string_view value) { out += (out.empty() ? "" : " ") + string(key) + "=" + string(value); };
  if (c.phase != Phase::train) say("phase", name_of(c.phase));
  if (c.arch != Arch::sm100) say("arch", kArchs[static_cast<size_t>(c.arch)]);
  if (c.flavour != Flavour::assay) say("flavour", "te");
  if (c.tokens != 64) say("tokens", std::to_string(c.tokens));
  if (c.packed) say("packed", "1");
  return out;
}

string to_text(const Cell& c) {
  string out = "parity " + string(c.module) + " " + (c.factory.empty() ? to_text(c.formats) : "factory=" + string(c.factory));
  if (c.roles != "input,weight") out += " roles=" + string(c.roles);
  if (!c.backward_override.empty()) out += " override=" + string(c.backward_override);
  const string rest = circumstances(c);
  return out + (rest.empty() ? "" : " " + rest);
}

const std::vector<Cell>& parity_cells() {
  static const std::vector<Cell> kCells = make_cells();
  return kCells;
}

Result<Cell> parity_cell(string_view text) {
  for (const Cell& c : parity_cells())
    if (to_text(c) == text) return c;
  Words words = words_of(text, ' ');
  std::erase(words, "");
  if (words.size() < 2 || words[0] != "parity" || text.find("factory=") == text.npos)
    return Error{"the parity matrix has no cell '" + string(text) + "'", 0, "assay list roles prints them; 'parity linear factory=<name>' is one of a factory"};
  const auto at = [&](string_view word) { return static_cast<size_t>(word.data() - text.data()) + 1; };
  // The place of `word` among `known`, or an error.
  const auto choose = [&](string_view what, string_view word, const Words& known) -> Result<size_t> {
    if (const auto found = std::find(known.begin(), known.end(), word); found != known.end()) return static_cast<size_t>(found - known.begin());
    string all;
    for (const string_view k : known) all += (all.empty() ? "" : ", ") + string(k);
    const string near = nearest_word(word, known);
    return Error{"unknown " + string(what) + " '" + string(word) + "'", at(word), near.empty() ? "one of " + all : "did you mean '" + near + "'?"};
  };
  Cell c;
  Words modules;
  for (const auto& m : kModules) modules.push_back(m.name);
  const Result<size_t> module = choose("module", words[1], modules);
  if (!module) return module.error();
  c.module = modules[*module];
  Words seen;
  static const Words kKeys = {"factory", "override", "phase", "arch", "flavour", "tokens", "packed"};
  for (size_t i = 2; i < words.size(); ++i) {
    const size_t equals = std::min(words[i].find('='), words[i].size());
    const string_view key = words[i].substr(0, equals), value = words[i].substr(std::min(equals + 1, words[i].size()));
    const Result<size_t> which = choose("key", key, kKeys);
    if (!which) return which.error();
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) return Error{"key '" + string(key) + "' is given twice", at(key), ""};
    seen.push_back(key);
    Result<size_t> chosen = size_t{0};
    if (key == "factory") {
      const Result<QFactoryPtr> factory = find_factory(value);
      if (!factory) return Error{factory.error().message, at(value), factory.error().hint};
      c.factory = (*factory)->name;   // the registry keeps it
    } else if (key == "override") {
      if ((chosen = choose(key, value, Words(std::begin(kOverrides), std::end(kOverrides))))) c.backward_override = kOverrides[*chosen];
    } else if (key == "phase") {
      if ((chosen = choose(key, value, Words(std::begin(kPhaseNames), std::end(kPhaseNames))))) c.phase = static_cast<Phase>(*chosen);
    } else if (key == "arch") {
      if ((chosen = choose(key, value, Words(std::begin(kArchs), std::end(kArchs))))) c.arch = static_cast<Arch>(*chosen);
    } else if (key == "flavour") {
      if ((chosen = choose(key, value, {"assay", "te"}))) c.flavour = *chosen ? Flavour::te : Flavour::assay;
    } else if (key == "packed") {
      if ((chosen = choose(key, value, {"0", "1"}))) c.packed = *chosen == 1;
    } else {
      const auto read = std::from_chars(value.data(), value.data() + value.size(), c.tokens);
      if (read.ec != std::errc() || read.ptr != value.data() + value.size() || c.tokens < 32 || c.tokens > 1024 || c.tokens % 32)
        return Error{"tokens: expected a multiple of 32 up to 1024, found '" + string(value) + "'", at(value), "tokens=96"};
    }
    if (!chosen) return chosen.error();
  }
  if (c.factory.empty()) return Error{"expected factory=<name> in '" + string(text) + "'", 0, "parity linear factory=mxfp8_factory"};
  if (is_parallel(c.phase) && !has_tensor_parallelism(c.module)) return Error{string(c.module) + " is not run over ranks: there is no phase=" + string(name_of(c.phase)), 0, "linear, layernorm_linear and layernorm_mlp are"};
  if (c.packed && c.module != "grouped_linear") return Error{string(c.module) + " has no weights to pack", 0, "packed= is of grouped_linear"};
  return with_formats(c);
}

Result<std::vector<FactoryCell>> factory_cells(string_view name) {
  const Result<QFactoryPtr> factory = find_factory(name);
  if (!factory) return factory.error();
  std::vector<FactoryCell> out;
  std::optional<Error> first;
  bool any = false;
  for (const auto& [module, producer] : kModules) {
    Cell c;
    c.module = module;
    c.factory = (*factory)->name;
    std::vector<Cell> cells;
    add_circumstances(cells, c, true, true);
    if (module == "grouped_linear") {
      c.phase = Phase::quantized_init;
      c.packed = true;
      cells.push_back(c);
    }
    for (const Cell& cell : cells) {
      const Result<Cell> whole = with_formats(cell);
      any |= static_cast<bool>(whole);
      if (!whole && !first) first = whole.error();
      out.push_back(whole ? FactoryCell{*whole, ""} : FactoryCell{cell, whole.error().text()});
    }
  }
  if (!any) return *first;
  return out;
}

CellResult judge_cell(const Cell& c, Subject& subject, const Environment& environment) {
  CellResult result;
  if (const Found d = compare_settings(c)) {
    result.first = d->what;
    result.expected = d->expected;
    result.found = d->found;
    result.reason = "the two recipes ask for different things: nothing was run";
    return result;
  }
  const Compared plain = run_cell(c, {}, subject, environment);
  result.compared = plain.bytes;
  if (!plain.difference) {
    result.outcome = CellResult::Outcome::bitwise;
    return result;
  }
  result.first = plain.difference->what;
  result.expected = plain.difference->expected;
  result.found = plain.difference->found;
  // The least set of causes that could apply: single ones first, then pairs, then all.
  std::vector<const Cause*> possible;
  for (const Cause& cause : kCauses)
    if (cause.possible(c)) possible.push_back(&cause);
  std::vector<std::vector<const Cause*>> sets;
  for (size_t i = 0; i < possible.size(); ++i) sets.push_back({possible[i]});
  for (size_t i = 0; i < possible.size(); ++i)
    for (size_t j = i + 1; j < possible.size(); ++j) sets.push_back({possible[i], possible[j]});
  if (possible.size() > 2) sets.push_back(possible);
  string tried;
  for (const auto& set : sets) {
    Removed removed;
    string codes, what;
    for (const Cause* cause : set) {
      removed.*(cause->removed) = true;
      codes += (codes.empty() ? "" : " ") + string(cause->code);
      what += (what.empty() ? "" : "; ") + string(cause->what);
    }
    const Compared again = run_cell(c, removed, subject, environment);
    if (!again.difference) {
      result.outcome = CellResult::Outcome::excluded;
      result.exclusions = codes;
      result.reason = what;
      result.compared += again.bytes;
      return result;
    }
    tried += (tried.empty() ? "without " : ", without ") + codes + " still at " + again.difference->what;
  }
  result.reason = tried.empty() ? "no exclusion applies to this cell" : tried;
  return result;
}

}  // namespace assay::training
