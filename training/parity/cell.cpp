#include "training/parity/cell.h"

namespace assay::training {

using std::string;
using std::string_view;

bool is_parallel(Phase p) { return p == Phase::column || p == Phase::row; }

ModuleSettings module_of(const Cell& c, bool packed) {
  ModuleSettings s;
  s.module = c.module;
  s.rows = c.tokens;
  s.parallel = c.phase == Phase::column ? ParallelMode::column
               : c.phase == Phase::row  ? ParallelMode::row
                                        : ParallelMode::none;
  s.packed = packed;
  s.checkpoint_core = c.checkpoint_core;
  if (is_attention_module(c.module)) s.hidden = 128;
  if (c.ranks > 0) {
    s.sequence = c.sequence;
    s.tp_size = tensor_ranks(c);
  }
  // Under FSDP2 each rank's rows of a weight are a whole tile of square blocks, the largest there is.
  if (!c.fsdp.empty()) {
    s.out = s.hidden = 128 * mesh_size(c);
    if (c.module == "layernorm_mlp" || is_attention_module(c.module)) s.in = s.hidden;
  }
  return s;
}

int tensor_ranks(const Cell& c) {
  if (!is_parallel(c.phase)) return 1;
  return c.fsdp.empty() || c.ranks == 1 ? c.ranks : c.ranks / 2;
}

int mesh_size(const Cell& c) { return c.fsdp.empty() ? 1 : c.ranks / tensor_ranks(c); }

bool is_trained(const Cell& c) { return c.ranks > 0 || c.adam || c.recompute; }

string to_text(const GemmFormats& f) {
  string out(f.fprop);
  if (f.dgrad != f.fprop || f.wgrad != f.fprop) out += "|" + string(f.dgrad);
  if (f.wgrad != f.dgrad) out += "|" + string(f.wgrad);
  return out;
}

string circumstances(const Cell& c) {
  string out;
  const auto say = [&](string_view key, string_view value) {
    out += (out.empty() ? "" : " ") + string(key) + "=" + string(value);
  };
  if (c.phase != Phase::train) say("phase", name_of(c.phase));
  if (c.arch != Arch::sm100) say("arch", word_of(c.arch));
  if (c.flavour != Flavour::assay) say("flavour", "te");
  if (c.tokens != 64) say("tokens", std::to_string(c.tokens));
  if (c.packed) say("packed", "1");
  if (c.ranks > 0) say("ranks", std::to_string(c.ranks));
  if (c.sequence) say("sequence", "1");
  if (!c.fsdp.empty()) say("fsdp", c.fsdp);
  if (c.adam) say("optimizer", "adam");
  if (c.recompute || c.checkpoint_core)
    say("recompute", !c.checkpoint_core ? "1" : c.recompute ? "1,core" : "core");
  return out;
}

string to_text(const Cell& c) {
  const string formats = c.factory.empty() ? to_text(c.formats) : "factory=" + string(c.factory);
  string out = "parity " + string(c.module) + " " + formats;
  if (c.roles != "input,weight") out += " roles=" + string(c.roles);
  if (!c.core.empty()) out += " core=" + string(c.core);
  if (!c.backward_override.empty()) out += " override=" + string(c.backward_override);
  const string rest = circumstances(c);
  return out + (rest.empty() ? "" : " " + rest);
}

}  // namespace assay::training
