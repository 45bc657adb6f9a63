#include "fast/ptx/contraction.h"

#include <algorithm>
#include <map>
#include <set>

#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/values_float.h"

namespace assay::ptx {

namespace {

// Of binary32 and binary64, whose fused form has a sign for each term.
bool has_signs(Form f) {
  return f == Form::mul_f32 || f == Form::mul_f64 || f == Form::add_f32 || f == Form::sub_f32 ||
         f == Form::add_f64 || f == Form::sub_f64;
}
bool is_product(Form f) {
  return f == Form::mul_f32 || f == Form::mul_f64 || f == Form::mul_f32x2 || f == Form::mul_half ||
         f == Form::mul_half_mode;
}
bool is_sum(Form f) {
  return f == Form::add_f32 || f == Form::sub_f32 || f == Form::add_f64 || f == Form::sub_f64 ||
         f == Form::add_f32x2 || f == Form::add_half || f == Form::add_half_mode;
}
bool rounds(const Opcode& op) { return op.has("rn") || op.has("rz") || op.has("rm") || op.has("rp"); }

// The places where a stretch of code begins: targets of branches, and what stands behind one. Barriers and
// meetings of lanes end none.
std::set<uint32_t> begins(const Kernel& k) {
  std::set<uint32_t> out;
  for (uint32_t n = 0; n < k.code.size(); ++n) {
    const Flow flow = k.code[n].flow;
    if (flow == Flow::plain || flow == Flow::meeting || flow == Flow::barrier || flow == Flow::wait) continue;
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
template <class T, bool kFlush, bool kSaturate> void fused(Warp& w, const Instruction& i) {
  Cell<T>* d = cells<T>(w, i.d[0]);
  const Cell<T>*a = cells<T>(w, i.s[0]), *b = cells<T>(w, i.s[1]), *c = cells<T>(w, i.s[2]);
  const T product = i.code & 1 ? T(-1) : T(1), addend = i.code & 2 ? T(-1) : T(1);
  for_lanes(w.active, [&](unsigned l) {
    const T x = get<T>(a[l]) * product, y = get<T>(b[l]), z = get<T>(c[l]) * addend;
    T v;
    if constexpr (kFlush) v = Flushed<FmaF>{}(x, y, z);
    else v = FmaF{}(x, y, z);
    if constexpr (kSaturate) v = v > T(0) ? std::min(v, T(1)) : T(0);  // NaN too becomes +0
    d[l] = put<T>(v);
  });
}
Handler fused_of(const Opcode& sum) {
  if (sum.first() == Type::f64) return &fused<double, false, false>;
  if (sum.has("sat")) return sum.has("ftz") ? &fused<float, true, true> : &fused<float, false, true>;
  return sum.has("ftz") ? &fused<float, true, false> : &fused<float, false, false>;
}

// Who reads and writes the registers of a kernel.
struct Uses {
  explicit Uses(const Kernel& k) : begins_of_stretches(begins(k)) {
    for (uint32_t n = 0; n < k.code.size(); ++n) {
      const Instruction& i = k.code[n];
      for (unsigned s = 0; s < i.sources; ++s)
        if (!(i.predicate_s >> s & 1)) reads[i.s[s]].push_back({n, s});
      for (unsigned d = 0; d < i.destinations; ++d)
        if (!(i.predicate_d >> d & 1)) ++writes[i.d[d]];
    }
  }
  // The instructions that read what instruction n gives, and the source that it is there; none where one of
  // them does not stand behind it in its stretch and under its guard.
  std::vector<std::pair<uint32_t, unsigned>> of(const Kernel& k, uint32_t n) const {
    const uint32_t place = k.code[n].d[0];
    const auto read = reads.find(place);
    if (read == reads.end() || writes.at(place) != 1) return {};
    const auto end = begins_of_stretches.upper_bound(n);
    for (const auto& [at, operand] : read->second)
      if (at < n || (end != begins_of_stretches.end() && at >= *end) || !same_guard(k.code[n], k.code[at]))
        return {};
    return read->second;
  }
  std::map<uint32_t, std::vector<std::pair<uint32_t, unsigned>>> reads;  // by register
  std::map<uint32_t, unsigned> writes;
  std::set<uint32_t> begins_of_stretches;
};

bool same_kind(const Opcode& product, const Opcode& sum) {
  return is_sum(sum.row->form) && !rounds(sum) && sum.first() == product.first() &&
         sum.has("ftz") == product.has("ftz");
}

// Adds the sums that take a product, which stands in the destination of instruction `at`, over copies and
// negations of it. Whether nothing else takes it, nor one sum twice.
bool add_sums(const Kernel& k, const Uses& uses, uint32_t at, const Contraction& so_far,
              std::vector<Contraction>& out) {
  const Instruction& product = k.code[so_far.product];
  const Opcode& op = k.opcodes[product.opcode];
  const auto takers = uses.of(k, at);
  for (const auto& taker : takers) {
    const uint32_t n = taker.first;
    const Instruction& i = k.code[n];
    const Opcode& with = k.opcodes[i.opcode];
    const bool negates = with.row->form == Form::neg_f32 || with.row->form == Form::neg_f64;
    const bool copies = with.row->form == Form::mov && i.width == 0 && i.sources == 1;
    Contraction found = so_far;
    if (copies || (negates && has_signs(op.row->form) && with.has("ftz") == op.has("ftz"))) {
      found.negated ^= negates;
      if (!add_sums(k, uses, n, found, out)) return false;
      continue;
    }
    found.sum = n, found.operand = taker.second;
    const auto again = [&](const Contraction& other) { return other.sum == n; };
    if (!same_kind(op, with) || operands_change(k, product, so_far.product, n) ||
        std::any_of(out.begin(), out.end(), again))
      return false;
    out.push_back(found);
  }
  return !takers.empty();
}

// The products that ptxas may fuse with something.
std::vector<uint32_t> products(const Kernel& k) {
  std::vector<uint32_t> out;
  for (uint32_t n = 0; n < k.code.size(); ++n)
    if (const Opcode& op = k.opcodes[k.code[n].opcode];
        is_product(op.row->form) && !rounds(op) && !op.has("sat"))
      out.push_back(n);
  return out;
}

}  // namespace

std::vector<Contraction> contractions(const Kernel& k) {
  const Uses uses(k);
  std::vector<Contraction> out;
  std::set<uint32_t> taken;
  for (const uint32_t n : products(k)) {
    std::vector<Contraction> sums;
    if (!add_sums(k, uses, n, {n, 0, 0, false}, sums)) continue;
    for (const Contraction& one : sums)
      if (taken.insert(one.sum).second) out.push_back(one);
  }
  return out;
}

std::vector<uint32_t> untried(const Kernel& k, std::span<const Contraction> tried) {
  const Uses uses(k);
  std::vector<uint32_t> out;
  for (const uint32_t n : products(k)) {
    const auto read = uses.reads.find(k.code[n].d[0]);
    if (read == uses.reads.end() ||
        std::any_of(tried.begin(), tried.end(), [&](const Contraction& c) { return c.product == n; }))
      continue;
    for (const auto& [at, operand] : read->second)
      if (same_kind(k.opcodes[k.code[n].opcode], k.opcodes[k.code[at].opcode])) {
        out.push_back(n);
        break;
      }
  }
  return out;
}

Kernel contracted(const Kernel& kernel, std::span<const Contraction> pairs) {
  Kernel out = kernel;
  for (const Contraction& pair : pairs) {
    const Instruction& product = kernel.code[pair.product];
    Instruction& sum = out.code[pair.sum];
    const Opcode& op = kernel.opcodes[sum.opcode];
    const uint32_t addend = sum.s[1 - pair.operand];
    sum.s[0] = product.s[0], sum.s[1] = product.s[1], sum.s[2] = addend;
    sum.sources = 3;
    if (has_signs(op.row->form)) {
      // a b - c, or c - a b.
      const unsigned code = op.row->name != "sub" ? 0 : pair.operand == 0 ? 2 : 1;
      sum.code = code ^ static_cast<unsigned>(pair.negated);
      sum.handler = fused_of(op);
    } else {
      const size_t words = op.text.find('.');
      choose(understand("fma.rn" + op.text.substr(words)), sum);
    }
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
