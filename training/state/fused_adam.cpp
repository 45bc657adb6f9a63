#include "training/state/fused_adam.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "training/base/f32.h"
#include "training/dispatch/in_place.h"
#include "training/formats/hybrid.h"
#include "training/formats/identity.h"
#include "training/state/adam_kernels.h"

namespace assay::training {

namespace {

using std::string;

[[noreturn]] void refuse(const string& what) {
  throw SemanticError(ErrorClass::runtime_error, "FusedAdam: " + what);
}

bool one_of(const string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return name == n; });
}

ArrayPtr one() {
  constexpr F32Bits kOne = 0x3F800000;
  return from_bytes({1}, DType::float32, std::as_bytes(std::span(&kOne, 1)));
}

}  // namespace

// ---- parameters and states -------------------------------------------------------------

Storage* Trained::quantized() const {
  const StoragePtr* s = std::get_if<StoragePtr>(&value);
  return s ? s->get() : nullptr;
}

const Float8Quantizer* Trained::delayed() const {
  const auto* fp8 = dynamic_cast<const Float8Storage*>(quantized());
  return fp8 ? dynamic_cast<const Float8Quantizer*>(fp8->quantizer.get()) : nullptr;
}

DType Trained::nominal() const { return quantized() ? quantized()->dtype : std::get<ArrayPtr>(value)->dtype; }

Dims Trained::shape() const { return quantized() ? quantized()->size() : std::get<ArrayPtr>(value)->shape; }

string AdamState::dtype() const { return fp8 ? string(fp8->class_name()) : string(name_of(plain->dtype)); }

// ---- construction ----------------------------------------------------------------------

FusedAdam::FusedAdam(Session& session, std::vector<AdamGroup> groups, AdamOptions options, AdamLog log)
    : session_(session), groups_(std::move(groups)), options_(std::move(options)), log_(std::move(log)) {
  check();
  if (options_.set_grad_none)
    session_.warn("DeprecationWarning",
                  "set_grad_none is deprecated and has no effect; call zero_grad(set_to_none=...)");
  options_.store_param_remainders =
      options_.store_param_remainders && options_.master_weights && options_.master_weight_dtype == "float32";
  fuse_unscale_ = options_.exp_avg_dtype == "bfloat16" && options_.exp_avg_sq_dtype == "bfloat16";
}

void FusedAdam::check() const {
  const AdamOptions& o = options_;
  if (o.amsgrad) refuse("the AMSGrad variant is not supported; construct it with amsgrad off");
  if (o.master_weights && !one_of(o.master_weight_dtype, {"float32", "float16"}))
    refuse("expected master weights of float32 or float16, found " + o.master_weight_dtype);
  const auto check_moment = [](const char* name, const string& dtype) {
    if (!one_of(dtype, {"float32", "float16", "bfloat16", "uint8"}))
      refuse(string("expected float32, float16, bfloat16 or uint8 for ") + name + ", found " + dtype);
  };
  check_moment("exp_avg.", o.exp_avg_dtype);
  check_moment("exp_avg_sq.", o.exp_avg_sq_dtype);
  if (!o.capturable) return;
  if (o.master_weights && o.master_weight_dtype != "float32")
    refuse("Capturable mode takes master weights of float32, found " + o.master_weight_dtype);
  if (o.exp_avg_dtype != o.exp_avg_sq_dtype || !one_of(o.exp_avg_dtype, {"float32", "bfloat16"}))
    refuse("Capturable mode takes moments that are both float32 or both bfloat16, found " + o.exp_avg_dtype +
           " and " + o.exp_avg_sq_dtype);
  if (o.store_param_remainders && o.master_weights)
    refuse("Capturable mode stores no remainders of parameters");
}

// ---- states ----------------------------------------------------------------------------

bool FusedAdam::keeps_remainder(const Trained& p) const {
  return options_.store_param_remainders && p.nominal() == DType::bfloat16;
}

AdamState FusedAdam::make_state(const Dims& shape, const string& dtype) {
  AdamState out;
  if (dtype != "float32") out.scale = one();
  if (dtype != "uint8") {
    out.plain = zeros(shape, *dtype_named(dtype));
    return out;
  }
  const auto q = std::make_shared<Float8Quantizer>(one(), zeros({1}, DType::float32), Encoding::e4m3);
  out.fp8 = std::dynamic_pointer_cast<Float8Storage>(q->make_empty(session_, shape, DType::float32));
  if (log_.quantize) log_.quantize(*out.fp8->quantizer);
  dispatch::quantize_(session_, zeros(shape, DType::float32), *out.fp8);
  return out;
}

void FusedAdam::initialize_state(const TrainedPtr& p) {
  if (states_.contains(p)) return;
  const Dims shape = p->shape();
  AdamStates& s = states_[p];
  s.exp_avg = make_state(shape, options_.exp_avg_dtype);
  s.exp_avg_sq = make_state(shape, options_.exp_avg_sq_dtype);
  if (!options_.master_weights) return;
  s.master.emplace();
  if (keeps_remainder(*p)) {
    s.master->plain = zeros(shape, DType::int16);
    return;
  }
  *s.master = make_state(shape, options_.master_weight_dtype);
  const ArrayPtr values =
      p->quantized() ? p->quantized()->dequantize(session_, DType::float32) : std::get<ArrayPtr>(p->value);
  copy_into(*cast(session_, values, s.master->plain->dtype), *s.master->plain);
}

const AdamStates* FusedAdam::states(const TrainedPtr& p) const {
  const auto at = states_.find(p);
  return at == states_.end() ? nullptr : &at->second;
}

ArrayPtr FusedAdam::unscaled(const AdamState& s) {
  if (s.fp8) return s.fp8->dequantize(session_, DType::float32);
  if (s.plain->dtype == DType::float16) return unscaled_state(session_, *s.plain, *s.scale);
  return s.plain->dtype == DType::bfloat16 ? cast(session_, s.plain, DType::float32) : s.plain;
}

// As a kernel reads it.
ArrayPtr FusedAdam::operand(const AdamState& s, bool keep_bf16) {
  return keep_bf16 && s.plain && s.plain->dtype == DType::bfloat16 ? s.plain : unscaled(s);
}

// N19.6. f32 is written where it is; the others through their scale.
void FusedAdam::store(AdamState& s, const ArrayPtr& values) {
  if (s.plain && (s.plain->dtype == DType::float32 || s.plain->dtype == DType::int16)) {
    if (values != s.plain) copy_into(*values, *s.plain);
    return;
  }
  if (s.plain && s.plain->dtype == DType::bfloat16)
    return copy_into(*cast(session_, values, DType::bfloat16), *s.plain);
  const ScaledState made = scaled_state(session_, *values, s.fp8 ? Encoding::e4m3 : Encoding::f16);
  copy_into(*made.scale, *s.scale);
  if (s.plain) return copy_into(*made.state, *s.plain);
  const auto& q = dynamic_cast<const Float8Quantizer&>(*s.fp8->quantizer);
  copy_into(*made.multiplier, *q.scale);
  if (log_.quantize) log_.quantize(q);
  dispatch::quantize_(session_, values, *s.fp8);
}

// ---- a step ----------------------------------------------------------------------------

// One parameter of a launch. Buffers are written in place; what is a temporary is stored afterwards.
struct AdamEntry {
  TrainedPtr param;
  AdamStates* states;
  ArrayPtr grad, m, v, master;
};
struct FusedAdam::Work {
  std::vector<AdamEntry> half, remainder, fp8, full;
  std::vector<AdamEntry> quantized;  // to be written back, in parameter order
  std::vector<AdamEntry> all;
  bool float16 = false, bfloat16 = false;
};

void FusedAdam::collect(const TrainedPtr& p, Work& work) {
  initialize_state(p);
  if (!p->grad) return;
  if (p->sparse_grad) refuse("gradients that are sparse are not supported");
  AdamStates& s = states_[p];
  // A checkpoint without masters leaves none behind, and nothing makes them anew.
  if (options_.master_weights && !s.master && (p->quantized() || p->nominal() != DType::float32))
    throw SemanticError(ErrorClass::key_error, "FusedAdam: expected the state master_param, found none");
  AdamEntry e{p,
              &s,
              p->grad,
              operand(s.exp_avg, fuse_unscale_),
              operand(s.exp_avg_sq, fuse_unscale_),
              s.master ? operand(*s.master, false) : nullptr};
  if (p->quantized()) {
    if (p->delayed()) {
      work.fp8.push_back(e);
    } else {
      if (!options_.master_weights)
        refuse("expected master_weights for a parameter of class " + string(p->quantized()->class_name()) +
               ", found none");
      e.grad = cast(session_, e.grad, DType::float32);
      work.full.push_back(e);
      work.quantized.push_back(e);
    }
  } else if (p->nominal() == DType::float32) {
    work.full.push_back(e);
  } else {
    (p->nominal() == DType::float16 ? work.float16 : work.bfloat16) = true;
    (keeps_remainder(*p) ? work.remainder : work.half).push_back(e);
  }
  work.all.push_back(e);
  if (options_.capturable && p->quantized())
    refuse("capturable mode does not update quantized parameters; construct it without");
  if (work.float16 && work.bfloat16) refuse("a mix of float16 and bfloat16 parameters is not supported");
}

void FusedAdam::step() {
  for (AdamGroup& group : groups_) {
    if (!options_.capturable || !noop_flag) ++group.step;
    Work work;
    for (const TrainedPtr& p : group.params) collect(p, work);
    launch(work, group.step);
    write_back(work);
    for (const AdamEntry& e : work.all) {
      store(e.states->exp_avg, e.m);
      store(e.states->exp_avg_sq, e.v);
      if (e.states->master) store(*e.states->master, e.master);
    }
  }
}

void FusedAdam::launch(const Work& work, int64_t step) {
  const bool masters = options_.master_weights;
  const string plain = !options_.capturable ? "adam" : masters ? "adam_capturable_master" : "adam_capturable";
  const auto each = [&](const std::vector<AdamEntry>& list, const string& kernel, auto&& dtypes) {
    if (list.empty()) return;
    if (log_.launch) log_.launch({kernel, dtypes(list.front()), list.size(), step, kernel == "adam_fp8"});
    for (AdamEntry e : list) run_kernel(kernel, e, step);
  };
  const auto four = [](const AdamEntry& e) {
    const DType p = e.param->quantized() ? e.master->dtype : e.param->nominal();
    return std::vector<DType>{e.grad->dtype, p, e.m->dtype, e.v->dtype};
  };
  const auto five = [&](const AdamEntry& e) {
    std::vector<DType> out = four(e);
    if (e.master) out.push_back(e.master->dtype);
    return out;
  };
  each(work.half, plain, five);
  each(work.remainder, "adam_param_remainder", five);
  if (masters)  // without them nothing runs, and nothing says so
    each(work.fp8, "adam_fp8", [](const AdamEntry& e) {
      return std::vector<DType>{e.grad->dtype,   DType::uint8,   e.m->dtype,     e.v->dtype,
                                e.master->dtype, DType::float32, DType::float32, DType::float32};
    });
  each(work.full, options_.capturable ? "adam_capturable" : "adam", four);
}

void FusedAdam::run_kernel(const string& kernel, AdamEntry& e, int64_t step) {
  if (options_.capturable && noop_flag) return;
  const bool fp8 = kernel == "adam_fp8";
  const auto refused = [&](DType found) {
    refuse(kernel + ": the kernel refuses a tensor of " + string(name_of(found)));
  };
  if (e.param->quantized()) {
    if (e.master->dtype == DType::int16) {  // never an update
      if (!session_.stand_ins) refused(e.master->dtype);
      return;
    }
    if (fp8 && !session_.stand_ins)
      for (const ArrayPtr& moment : {e.m, e.v})
        if (moment->dtype != DType::float32) refused(moment->dtype);
  }
  const AdamSettings settings{options_, step};
  if (kernel == "adam_param_remainder") {
    Array& parameter = *std::get<ArrayPtr>(e.param->value);
    const ArrayPtr master = joined_remainder(parameter, *e.master);
    adam_step(session_, settings, *e.grad, *master, *e.m, *e.v);
    const SplitMaster now = split_remainder(*master);
    copy_into(*now.parameter, parameter);
    return copy_into(*now.remainder, *e.master);
  }
  const bool own = !e.param->quantized() && (!e.master || e.param->nominal() == DType::float32);
  Array& updated = own ? *std::get<ArrayPtr>(e.param->value) : *e.master;
  adam_step(session_, settings, *e.grad, updated, *e.m, *e.v);
  if (fp8) cast_parameter(session_, *e.master, dynamic_cast<Float8Storage&>(*e.param->quantized()));
  else if (!own && !e.param->quantized())
    copy_into(*cast(session_, e.master, e.param->nominal()), *std::get<ArrayPtr>(e.param->value));
}

void FusedAdam::write_back(const Work& work) {
  if (options_.capturable && noop_flag) return;
  for (const AdamEntry& e : work.quantized) {
    Storage& s = *e.param->quantized();
    ArrayPtr master = e.master;
    if (master->dtype == DType::int16) {  // only where a stand-in has taken it
      const auto* hybrid = dynamic_cast<const HybridStorage*>(&s);
      const auto* q = hybrid ? dynamic_cast<const HybridQuantizer*>(s.quantizer.get()) : nullptr;
      if (q && q->columnwise_source == "rowwise_dequantized" &&
          !dynamic_cast<const IdentityStorage*>(hybrid->rowwise_storage.get()))
        throw SemanticError(ErrorClass::key_error, "no kernel dequantizes to int16");
      master = zeros(master->shape, DType::float32);
    }
    if (log_.quantize) log_.quantize(*s.quantizer);
    dispatch::quantize_(session_, master, s);
  }
}

// ---- checkpoints -----------------------------------------------------------------------

FusedAdam::Saved FusedAdam::state_dict() {
  Saved out;
  for (const AdamGroup& group : groups_) {
    out.steps.push_back(group.step);
    for (const TrainedPtr& p : group.params) {
      auto& saved = out.states.emplace_back();
      const AdamStates* s = states(p);
      if (!s) continue;
      saved["exp_avg"] = clone(unscaled(s->exp_avg));
      saved["exp_avg_sq"] = clone(unscaled(s->exp_avg_sq));
      if (s->master) saved["master_param"] = clone(unscaled(*s->master));
    }
  }
  return out;
}

void FusedAdam::load_state_dict(const Saved& from) {
  size_t at = 0, wanted = 0;
  for (const AdamGroup& group : groups_) wanted += group.params.size();
  if (from.steps.size() != groups_.size() || from.states.size() != wanted)
    throw SemanticError(ErrorClass::value_error, "FusedAdam: expected a state of " +
                                                     std::to_string(groups_.size()) + " groups with " +
                                                     std::to_string(wanted) + " parameters, found " +
                                                     std::to_string(from.steps.size()) + " with " +
                                                     std::to_string(from.states.size()));
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].step = from.steps[g];
    for (const TrainedPtr& p : groups_[g].params) {
      const auto& saved = from.states[at++];
      states_.erase(p);  // what is not in the checkpoint is not there any more
      if (saved.empty()) continue;
      initialize_state(p);
      AdamStates& s = states_[p];
      store(s.exp_avg, saved.at("exp_avg"));
      store(s.exp_avg_sq, saved.at("exp_avg_sq"));
      if (!saved.contains("master_param")) s.master.reset();
      else if (s.master) store(*s.master, saved.at("master_param"));
    }
  }
}

// ---- remainders ------------------------------------------------------------------------

ArrayPtr joined_remainder(const Array& parameter, const Array& remainder) {
  const auto count = static_cast<size_t>(parameter.count());
  std::vector<uint16_t> high(count), low(count);
  std::memcpy(high.data(), parameter.bytes().data(), 2 * count);
  std::memcpy(low.data(), remainder.bytes().data(), 2 * count);
  std::vector<F32Bits> out(count);
  for (size_t i = 0; i < count; ++i)
    out[i] = static_cast<F32Bits>(static_cast<uint16_t>(high[i] - (low[i] >> 15))) << 16 | low[i];
  return from_bytes(parameter.shape, DType::float32, std::as_bytes(std::span(out)));
}

SplitMaster split_remainder(const Array& master) {
  const std::vector<F32Bits> bits = f32_bits(master);
  std::vector<uint16_t> high, low;
  for (const F32Bits b : bits) {
    low.push_back(static_cast<uint16_t>(b));
    high.push_back(static_cast<uint16_t>((b >> 16) + (b >> 15 & 1)));
  }
  return {from_bytes(master.shape, DType::bfloat16, std::as_bytes(std::span(high))),
          from_bytes(master.shape, DType::int16, std::as_bytes(std::span(low)))};
}

}  // namespace assay::training
