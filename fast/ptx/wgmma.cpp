#include "fast/ptx/wgmma.h"

#include <bit>
#include <utility>

#include "fast/ptx/checks.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/mbarriers.h"
#include "fast/ptx/recorder.h"

namespace assay::ptx {

namespace {

constexpr unsigned kWarpRows = kMmaRows;

bool same(const PendingProduct& a, const PendingProduct& b) {
  return a.instruction == b.instruction && a.a == b.a && a.b == b.b && a.adds == b.adds;
}

void need_whole_warp(Warp& w, const Meeting& m) {
  if (m.count != 1 || m.lanes != ~0u)
    fail(w, *m.parts[0].instruction, std::countr_zero(m.lanes),
         "is carried out by a part of its warp, and .aligned asks for the whole warpgroup");
  if ((w.index / kGroupWarps + 1) * kGroupWarps * kLanes > w.block->threads)
    fail(w, *m.parts[0].instruction, 0,
         "needs a warpgroup, four warps from a multiple of four on, and the block ends before the fourth");
}

// A source that all lanes must hold alike.
uint64_t of_all_lanes(Warp& w, const Instruction& i, unsigned k, const char* what) {
  const uint64_t v = read_cell(w, i.s[k], true, 0);
  for (unsigned l = 1; l < kLanes; ++l)
    if (read_cell(w, i.s[k], true, l) != v)
      fail(w, i, static_cast<int>(l), std::string("is given another ") + what + " than lane 0");
  return v;
}

// The part of an operand that this warp reads lies in shared memory.
void check_matrix(Warp& w, const Instruction& i, const SharedMatrix& m, const char* name, unsigned first,
                  unsigned lines, unsigned depth) {
  const Block& b = *w.block;
  const std::string its = std::string("has a matrix descriptor of ") + name;
  if (m.base_offset)
    fail(w, i, 0, its + " with base offset " + std::to_string(m.base_offset) + ", which is not understood");
  m.for_chunks(first, lines, depth, [&](uint64_t at) {
    if (at + 16 > b.shared.size())
      fail(w, i, 0,
           its + " that leads outside shared memory of " + std::to_string(b.shared.size()) +
               " bytes, offset " + std::to_string(at));
    if (const auto mbarrier = overlapped(b, at, 16))
      fail(w, i, 0, its + " that reaches into the mbarrier at shared offset " + std::to_string(*mbarrier));
  });
}

// One that the warps of a group have all carried out alike so far.
void note_in_group(Warp& w, const PendingProduct& p) {
  Warpgroup& g = w.block->warpgroups[w.index / kGroupWarps];
  const size_t number = g.of_warp[w.index % kGroupWarps]++;
  if (number == g.products.size()) g.products.push_back(p);
  if (same(g.products[number], p)) return;
  const bool other = g.products[number].instruction != p.instruction;
  fail(w, *p.instruction, 0,
       std::string("is carried out by one warp of its warpgroup ") +
           (other ? "where another carries out that at PTX line " +
                        std::to_string(g.products[number].instruction->line)
                  : "with another descriptor or scale-d than by another"));
}

// Carries a product out, whose registers may hold other descriptors by now.
void arrive(Warp& w, const PendingProduct& p) {
  Block& b = *w.block;
  const Kernel::Product& form = b.kernel->products[p.instruction->target];
  for (unsigned l = 0; l < kLanes; ++l) {
    write_cell(w, form.a_at, true, l, p.a);
    write_cell(w, form.b_at, true, l, p.b);
  }
  w.predicates[form.adds_at] = p.adds ? ~0u : 0u;
  w.active = ~0u;
  for (uint32_t n = 0; n < form.tiles; ++n) {
    const Instruction& tile = b.kernel->code[form.first_tile + n];
    if (b.recorder) b.recorder->before(w, tile);
    if (b.checks) b.checks->multiply(w, tile, product_parts(*b.kernel, tile, w.index, p.a, p.b, p.adds));
    tile.handler(w, tile);
    if (b.recorder) b.recorder->after(w, tile);
  }
  if (b.checks) b.checks->complete_product(w, p);
}

}  // namespace

uint64_t SharedMatrix::at(unsigned line, unsigned k) const {
  // Along one direction an element lies in a stretch of 16 bytes, or of the swizzled bytes; across it eight
  // of them make a core matrix. The other strides lead to the next of these.
  const unsigned along = element * (along_lines ? line : k), across = along_lines ? k : line;
  const uint64_t span = swizzle ? swizzle : 16;
  // Where nothing is swizzled, the leading offset is that along k; else only matrices along lines have one.
  const uint64_t next_along = along_lines && !swizzle ? stride : leading,
                 next_across = along_lines && !swizzle ? leading : stride;
  const uint64_t plain =
      start + along % span + along / span * next_along + across % 8 * span + across / 8 * next_across;
  return swizzle ? plain ^ ((plain >> 7 & (swizzle / 16 - 1)) << 4) : plain;
}

SharedMatrix shared_matrix(uint64_t descriptor, unsigned element_bytes, bool along_lines) {
  static constexpr unsigned kSwizzles[] = {0, 128, 64, 32};
  const auto field = [&](unsigned bit) { return (descriptor >> bit & 0x3FFF) << 4; };
  SharedMatrix m;
  m.start = field(0), m.leading = field(16), m.stride = field(32);
  m.base_offset = static_cast<unsigned>(descriptor >> 49 & 7);
  m.swizzle = kSwizzles[descriptor >> 62];
  m.element = element_bytes, m.along_lines = along_lines;
  return m;
}

ProductParts product_parts(const Kernel& k, const Instruction& tile, unsigned warp, uint64_t a, uint64_t b,
                           bool adds) {
  ProductParts p;
  p.op = &k.opcodes[tile.opcode];
  p.form = &k.products[tile.target];
  p.shape = mma_shape(*p.op);
  p.first_row = warp % kGroupWarps * kWarpRows;
  p.first_column = tile.code * kMmaColumns;
  if (!p.form->a_in_registers) p.a = shared_matrix(a, p.shape.bits / 8, p.form->a_along_lines);
  p.b = shared_matrix(b, p.shape.bits / 8, p.form->b_along_lines);
  p.adds = adds;
  return p;
}

void issue_product(Warp& w, const Meeting& m) {
  const Instruction& i = *m.parts[0].instruction;
  need_whole_warp(w, m);
  const Kernel::Product& form = w.block->kernel->products[i.target];
  const MmaShape shape = mma_shape(w.block->kernel->opcodes[i.opcode]);
  PendingProduct p;
  p.instruction = &i;
  const unsigned a_sources = form.a_in_registers ? shape.a_registers() : 1;
  if (!form.a_in_registers) p.a = of_all_lanes(w, i, 0, "descriptor of A");
  p.b = of_all_lanes(w, i, a_sources, "descriptor of B");
  const uint32_t adds = predicate(w, i, a_sources + 1);
  if (adds != 0 && adds != ~0u)
    fail(w, i, std::countr_zero(adds & 1 ? ~adds : adds), "is given another scale-d than lane 0");
  p.adds = adds != 0;
  p.group = w.closed_products;
  const unsigned bytes = shape.bits / 8;
  const unsigned first = w.index % kGroupWarps * kWarpRows;
  const SharedMatrix a = shared_matrix(p.a, bytes, form.a_along_lines),
                     b = shared_matrix(p.b, bytes, form.b_along_lines);
  if (!form.a_in_registers) check_matrix(w, i, a, "A", first, kWarpRows, shape.k);
  check_matrix(w, i, b, "B", 0, form.tiles * kMmaColumns, shape.k);
  note_in_group(w, p);
  if (w.block->checks) {
    p.number = w.block->checks->begin_product(w, i);
    const auto read = [&](uint64_t at) { w.block->checks->read_by_product(w, i, at); };
    if (!form.a_in_registers) a.for_chunks(first, kWarpRows, shape.k, read);
    b.for_chunks(0, form.tiles * kMmaColumns, shape.k, read);
  }
  if (w.block->products_at_once) arrive(w, p);
  else w.products.push_back(p);
}

void fence_products(Warp& w, const Meeting& m) {
  need_whole_warp(w, m);
  if (w.block->checks) w.block->checks->fence_products(w);
}

void close_product_group(Warp& w, const Meeting& m) {
  need_whole_warp(w, m);
  ++w.closed_products;
}

void wait_for_products(Warp& w, const Meeting& m) {
  need_whole_warp(w, m);
  const uint64_t left = m.parts[0].instruction->code;
  const auto due = [&](const PendingProduct& p) { return p.group + left < w.closed_products; };
  while (!w.products.empty() && due(w.products.front())) {
    arrive(w, w.products.front());
    w.products.erase(w.products.begin());
  }
}

void finish_products(const Block& b) {
  for (const auto& [number, g] : b.warpgroups)
    for (unsigned n = 0; n < kGroupWarps; ++n)
      if (g.of_warp[n] < g.products.size()) {
        const Warp& w = b.warps[number * kGroupWarps + n];
        fail(w, *g.products[g.of_warp[n]].instruction, 0,
             "was carried out by other warps of this warpgroup and never by this one");
      }
}

}  // namespace assay::ptx
