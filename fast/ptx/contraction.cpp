#include "fast/ptx/contraction.h"

#include <map>
#include <set>

#include "fast/ptx/handlers.h"
#include "fast/ptx/values_float.h"

namespace assay::ptx {

namespace {

bool is_product(Form f) { return f == Form::mul_f32 || f == Form::mul_f64; }
bool is_sum(Form f) {
  return f == Form::add_f32 || f == Form::sub_f32 || f == Form::add_f64 || f == Form::sub_f64;
}
bool rounds(const Opcode& op) { return op.has("rn") || op.has("rz") || op.has("rm") || op.has("rp"); }

// The places where a stretch of code begins: targets of branches, and what stands behind one.
std::set<uint32_t> begins(const Kernel& k) {
  std::set<uint32_t> out;
  for (uint32_t n = 0; n < k.code.size(); ++n) {
    if (k.code[n].flow == Flow::plain) continue;
    out.insert(n + 1);
    if (k.code[n].flow == Flow::branch) out.insert(k.code[n].target);
    if (k.code[n].flow == Flow::table)
      out.insert(k.tables[k.code[n].code].begin(), k.tables[k.code[n].code].end());
  }
  return out;
}

// Whether an instruction between the two, or the product's own line, writes what the product reads.
bool operands_change(const Kernel& k, const Instruction& product, uint32_t from, uint32_t to) {
  for (uint32_t n = from; n < to; ++n) {
    const Instruction& i = k.code[n];
    for (unsigned d = 0; d < i.destinations; ++d)
      for (unsigned s = 0; s < product.sources; ++s)
        if (!(i.predicate_d >> d & 1) && i.d[d] == product.s[s]) return true;
  }
  return false;
}

bool same_guard(const Instruction& a, const Instruction& b) {
  return a.has_guard == b.has_guard &&
         (!a.has_guard || (a.guard == b.guard && a.guard_inverted == b.guard_inverted));
}

// a b + c with the signs that add and sub give them: code 1 negates the product, 2 the addend.
template <class T, bool kFlush> void fused(Warp& w, const Instruction& i) {
  Cell<T>* d = cells<T>(w, i.d[0]);
  const Cell<T>*a = cells<T>(w, i.s[0]), *b = cells<T>(w, i.s[1]), *c = cells<T>(w, i.s[2]);
  const T product = i.code & 1 ? T(-1) : T(1), addend = i.code & 2 ? T(-1) : T(1);
  for_lanes(w.active, [&](unsigned l) {
    const T x = get<T>(a[l]) * product, y = get<T>(b[l]), z = get<T>(c[l]) * addend;
    if constexpr (kFlush) d[l] = put<T>(Flushed<FmaF>{}(x, y, z));
    else d[l] = put<T>(FmaF{}(x, y, z));
  });
}

}  // namespace

std::vector<Contraction> contractions(const Kernel& k) {
  std::map<uint32_t, std::vector<std::pair<uint32_t, unsigned>>> uses;  // by register
  std::map<uint32_t, unsigned> writes;
  for (uint32_t n = 0; n < k.code.size(); ++n) {
    const Instruction& i = k.code[n];
    for (unsigned s = 0; s < i.sources; ++s)
      if (!(i.predicate_s >> s & 1)) uses[i.s[s]].push_back({n, s});
    for (unsigned d = 0; d < i.destinations; ++d)
      if (!(i.predicate_d >> d & 1)) ++writes[i.d[d]];
  }
  const std::set<uint32_t> stretches = begins(k);
  std::vector<Contraction> out;
  std::set<uint32_t> taken;
  for (uint32_t n = 0; n < k.code.size(); ++n) {
    const Instruction& product = k.code[n];
    const Opcode& op = k.opcodes[product.opcode];
    if (!is_product(op.row->form) || rounds(op) || op.has("sat")) continue;
    const auto& used = uses[product.d[0]];
    if (used.size() != 1 || writes[product.d[0]] != 1) continue;
    const auto [sum, operand] = used.front();
    const Opcode& with = k.opcodes[k.code[sum].opcode];
    const auto end = stretches.upper_bound(n);
    if (sum < n || (end != stretches.end() && sum >= *end) || taken.contains(sum)) continue;
    if (!is_sum(with.row->form) || rounds(with) || with.has("sat") || with.first() != op.first() ||
        with.has("ftz") != op.has("ftz") || !same_guard(product, k.code[sum]) ||
        operands_change(k, product, n, sum))
      continue;
    taken.insert(sum);
    out.push_back({n, sum, operand});
  }
  return out;
}

Kernel contracted(const Kernel& kernel, std::span<const Contraction> pairs) {
  Kernel out = kernel;
  for (const Contraction& pair : pairs) {
    const Instruction& product = kernel.code[pair.product];
    Instruction& sum = out.code[pair.sum];
    const Opcode& op = kernel.opcodes[sum.opcode];
    const bool subtracts = op.row->name == "sub";
    const uint32_t addend = sum.s[1 - pair.operand];
    sum.s[0] = product.s[0], sum.s[1] = product.s[1], sum.s[2] = addend;
    sum.sources = 3;
    // a b - c, or c - a b.
    sum.code = !subtracts ? 0 : pair.operand == 0 ? 2 : 1;
    sum.handler = op.first() == Type::f64 ? &fused<double, false>
                  : op.has("ftz")         ? &fused<float, true>
                                          : &fused<float, false>;
  }
  return out;
}

std::string to_text(const Kernel& k, const Contraction& c) {
  const Instruction &product = k.code[c.product], &sum = k.code[c.sum];
  std::string out = "PTX line " + std::to_string(product.line) + " (" + k.text(product) + ") and " +
                    std::to_string(sum.line) + " (" + k.text(sum) + ")";
  if (!sum.source) return out;
  const SourceLine& s = k.sources[sum.source - 1];
  return s.file + ":" + std::to_string(s.line) + ", " + out;
}

}  // namespace assay::ptx
