#include "fast/ptx/slice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "fast/ptx/flow.h"
#include "fast/ptx/fragments.h"
#include "fast/ptx/matrix.h"
#include "fast/ptx/shuffle.h"
#include "fast/ptx/text.h"
#include "fast/ptx/wgmma.h"

namespace assay::ptx {

namespace {

constexpr size_t kMostRounds = 64;

// Walks a run's instructions backwards. Wanted are bits of registers and of memory; an instruction that gave
// one of them belongs to the slice, and its operands are wanted instead.
class Walk {
 public:
  explicit Walk(const Recorder& r) : r_(r) {}

  void want(const BytePlace& p, uint8_t bits) {
    if (const Allocation* a = r_.launches().back().memory.named(p.allocation))
      global_[a->base + p.offset] |= bits;
  }
  void walk() {
    const auto& events = r_.events();
    for (size_t n = events.size(); n > 0;) {
      size_t first = n - 1;
      while (events[first].meeting && first > 0 && events[first - 1].meeting == events[first].meeting)
        --first;
      if (events[first].block != block_) enter(events[first].block);
      if (r_.instruction(events[first]).flow == Flow::meeting) meeting(first, n);
      else plain(events[first]);
      n = first;
    }
  }
  // Bytes of memory that a launch may have written, whose writer is not among the blocks that were kept.
  std::set<BytePlace> missing() const {
    std::set<BytePlace> out;
    for (const auto& [at, bits] : global_)
      if (const Allocation* a = holding(at); a && a->writable) out.insert({a->id, at - a->base});
    return out;
  }
  std::vector<SliceStep> steps() const { return {steps_.rbegin(), steps_.rend()}; }

 private:
  using Key = std::tuple<uint16_t, uint32_t, unsigned, bool>;  // warp, place, lane, predicate

  // The allocation of an address, as of the last launch that could reach it.
  const Allocation* holding(uint64_t at) const {
    for (auto l = r_.launches().rbegin(); l != r_.launches().rend(); ++l)
      if (const Allocation* a = l->memory.holding(at, 1)) return a;
    return nullptr;
  }

  void enter(uint32_t block) {
    block_ = block;
    registers_.clear(), shared_.clear(), local_.clear();
  }

  // Takes the wanted bits of a destination.
  uint64_t take(const Recorded& e, unsigned k, unsigned lane) {
    const Instruction& i = r_.instruction(e);
    const auto found = registers_.find(Key{e.warp, i.d[k], lane, (i.predicate_d >> k & 1) != 0});
    if (found == registers_.end()) return 0;
    const uint64_t bits = found->second;
    registers_.erase(found);
    return bits;
  }
  void want_source(const Recorded& e, unsigned k, unsigned lane, uint64_t bits) {
    const Instruction& i = r_.instruction(e);
    if (bits) registers_[Key{e.warp, i.s[k], lane, (i.predicate_s >> k & 1) != 0}] |= bits;
  }

  // Bits of memory in the space of an access, at most 64 from a byte on: taken, or wanted.
  template <class F> void in_space(const Recorded& e, unsigned lane, F f) {
    uint64_t at = r_.address(e, lane);
    switch (located(r_.instruction(e), at)) {
      case Space::shared: return f([&](uint64_t n) { return std::pair(&shared_, at + n); });
      case Space::local:
        return f([&](uint64_t n) {
          return std::pair(&local_, (uint64_t{e.warp} * kLanes + lane) * kWindowBytes + at + n);
        });
      case Space::param: return;
      default: return f([&](uint64_t n) { return std::pair(&global_, at + n); });
    }
  }
  uint64_t take_memory(const Recorded& e, unsigned lane, uint64_t begin, unsigned bytes) {
    uint64_t taken = 0;
    in_space(e, lane, [&](auto place) {
      for (unsigned n = 0; n < bytes; ++n) {
        const auto [memory, at] = place(begin + n);
        const auto found = memory->find(at);
        if (found == memory->end()) continue;
        taken |= uint64_t{found->second} << (8 * n);
        memory->erase(found);
      }
    });
    return taken;
  }
  void want_memory(const Recorded& e, unsigned lane, uint64_t begin, uint64_t bits) {
    in_space(e, lane, [&](auto place) {
      for (unsigned n = 0; n < 8; ++n)
        if (const auto of_byte = static_cast<uint8_t>(bits >> (8 * n))) {
          const auto [memory, at] = place(begin + n);
          (*memory)[at] |= of_byte;
        }
    });
  }

  void plain(const Recorded& e) {
    const Instruction& i = r_.instruction(e);
    for (uint32_t m = e.lanes; m; m &= m - 1) {
      const auto lane = static_cast<unsigned>(std::countr_zero(m));
      if (opcode(e).row->name == "wgmma") multiplied_later(e, lane);
      else if (i.kind == Class::load) load(e, lane);
      else if (i.kind == Class::store) store(e, lane);
      else if (i.kind != Class::atomic) compute(e, lane);
    }
    if (i.kind == Class::atomic) atomic(e);
  }

  void compute(const Recorded& e, unsigned lane) {
    const Instruction& i = r_.instruction(e);
    SourceBits needed{};
    bool any = false;
    LaneValues v;
    for (unsigned k = 0; k < i.destinations; ++k) {
      const uint64_t wanted = take(e, k, lane);
      if (!wanted) continue;
      if (!std::exchange(any, true)) v = values(e, lane);
      add_sources_of(i, opcode(e), v, k, wanted, needed);
      step(e, lane, v.d[k], (i.predicate_d >> k & 1) != 0, opcode(e).first());
    }
    for (unsigned k = 0; any && k < i.sources; ++k) want_source(e, k, lane, needed[k]);
  }

  void load(const Recorded& e, unsigned lane) {
    const Instruction& i = r_.instruction(e);
    const unsigned bytes = access_bytes(opcode(e));
    for (unsigned k = 0; k < i.destinations; ++k) {
      const uint64_t wanted = take(e, k, lane), inside = low_bits_mask(8 * bytes);
      if (!wanted) continue;
      // Beyond the type lies its sign.
      const bool sign = wanted & ~inside && info(opcode(e).last()).kind == Kind::integer;
      want_memory(e, lane, uint64_t{k} * bytes,
                  (wanted & inside) | (sign ? uint64_t{1} << (8 * bytes - 1) : 0));
      step(e, lane, r_.destination(e, k, lane), false, opcode(e).last());
      name_memory(e, lane, uint64_t{k} * bytes);
      steps_.back().loads = true;
    }
  }

  void store(const Recorded& e, unsigned lane) {
    const Instruction& i = r_.instruction(e);
    const unsigned bytes = access_bytes(opcode(e));
    for (unsigned k = 0; k < i.vector; ++k) {
      const uint64_t taken = take_memory(e, lane, uint64_t{k} * bytes, bytes);
      if (!taken) continue;
      want_source(e, k + 1, lane, taken);
      step(e, lane, r_.source(e, k + 1, lane), false, opcode(e).last());
      name_memory(e, lane, uint64_t{k} * bytes);
      steps_.back().stores = true;
    }
  }

  // Lanes that change one place: the lane whose operand is what was left, or else all of them and what was
  // found.
  void atomic(const Recorded& e) {
    const Instruction& i = r_.instruction(e);
    const unsigned bytes = access_bytes(opcode(e)), operand = i.sources - 1u;
    const uint64_t mask = low_bits_mask(8 * bytes);
    std::map<uint64_t, uint32_t> by_address;
    for (uint32_t m = e.lanes; m; m &= m - 1)
      by_address[r_.address(e, static_cast<unsigned>(std::countr_zero(m)))] |= m & (0 - m);
    for (const auto& [address, lanes] : by_address) {
      const auto first = static_cast<unsigned>(std::countr_zero(lanes));
      const uint64_t left = r_.left(e, first) & mask;
      bool returned = false;
      for (uint32_t m = lanes; m && i.destinations; m &= m - 1)
        returned |= take(e, 0, static_cast<unsigned>(std::countr_zero(m))) != 0;
      const bool changed = left != (r_.found(e, first) & mask);
      const uint64_t taken = changed ? take_memory(e, first, 0, bytes) : 0;
      if (taken) {
        uint32_t made = 0;
        for (uint32_t m = lanes; m; m &= m - 1)
          if (const auto l = static_cast<unsigned>(std::countr_zero(m));
              (r_.source(e, operand, l) & mask) == left)
            made = 1u << l;
        const bool sums = opcode(e).has("add") || opcode(e).has("inc") || opcode(e).has("dec");
        if (!made || sums) made = lanes, want_memory(e, first, 0, taken);
        for (uint32_t m = made; m; m &= m - 1)
          atomic_step(e, static_cast<unsigned>(std::countr_zero(m)), operand, r_.left(e, first));
      }
      if (returned) {
        want_memory(e, first, 0, mask);
        step(e, first, r_.destination(e, 0, first), false, opcode(e).last());
        name_memory(e, first, 0);
        steps_.back().loads = true;
      }
    }
  }
  void atomic_step(const Recorded& e, unsigned lane, unsigned operand, uint64_t left) {
    want_source(e, operand, lane, ~uint64_t{0});
    step(e, lane, left, false, opcode(e).last());
    name_memory(e, lane, 0);
    steps_.back().stores = true;
  }

  // What the lanes of a warp carried out together: the events [first, end).
  void meeting(size_t first, size_t end) {
    const Recorded& head = r_.events()[first];
    if (r_.instruction(head).kind == Class::load) return load_matrices(head);
    if (r_.instruction(head).kind == Class::store) return store_matrices(head);
    struct Wanted {
      const Recorded* e;
      unsigned lane, k;
      uint64_t bits;
    };
    std::vector<Wanted> wanted;
    for (size_t n = first; n < end; ++n)
      for (uint32_t m = r_.events()[n].lanes; m; m &= m - 1)
        for (unsigned k = 0; k < r_.instruction(r_.events()[n]).destinations; ++k) {
          const auto lane = static_cast<unsigned>(std::countr_zero(m));
          if (const uint64_t bits = take(r_.events()[n], k, lane))
            wanted.push_back({&r_.events()[n], lane, k, bits});
        }
    for (const Wanted& w : wanted) {
      const Instruction& i = r_.instruction(*w.e);
      step(*w.e, w.lane, r_.destination(*w.e, w.k, w.lane), (i.predicate_d >> w.k & 1) != 0,
           opcode(*w.e).last());
      if (opcode(*w.e).row->form == Form::shfl && w.k == 0) shuffled(first, end, *w.e, w.lane, w.bits);
      else if (opcode(*w.e).row->name == "mma" || opcode(*w.e).row->name == "wmma")
        multiplied(*w.e, w.lane, w.k);
      else if (opcode(*w.e).row->form == Form::movmatrix) transposed_in_registers(*w.e, w.lane, w.bits);
      else reduced(first, end, *w.e, w.lane, w.k);
    }
  }
  void shuffled(size_t first, size_t end, const Recorded& e, unsigned lane, uint64_t bits) {
    unsigned from = lane;
    const auto b = static_cast<uint32_t>(r_.source(e, 1, lane)),
               c = static_cast<uint32_t>(r_.source(e, 2, lane));
    if (!source_lane(shuffle_of(opcode(e)), lane, b, c, from)) from = lane;
    for (size_t n = first; n < end; ++n)
      if (r_.events()[n].lanes >> from & 1) want_source(r_.events()[n], 0, from, bits);
  }
  void transposed_in_registers(const Recorded& e, unsigned lane, uint64_t bits) {
    for (unsigned half = 0; half < 2; ++half) {
      const HalfPlace from = transposed({lane, half});
      want_source(e, 0, from.lane, (bits >> (16 * half) & 0xFFFF) << (16 * from.half));
    }
  }
  // A reduction is that of the lane whose value it is; other meetings are made of every lane.
  void reduced(size_t first, size_t end, const Recorded& e, unsigned lane, unsigned k) {
    const bool extreme = opcode(e).has("min") || opcode(e).has("max");
    const uint64_t result = r_.destination(e, k, lane);
    for (size_t n = first; n < end; ++n)
      for (uint32_t m = r_.events()[n].lanes; m; m &= m - 1) {
        const auto l = static_cast<unsigned>(std::countr_zero(m));
        if (r_.instruction(r_.events()[n]).sources < 2) continue;
        if (extreme && r_.source(r_.events()[n], 0, l) != result) continue;
        want_source(r_.events()[n], 0, l, ~uint64_t{0});
        if (extreme) return;
      }
  }

  // An element of D is made of a row of A, a column of B and its element of C.
  void multiplied(const Recorded& e, unsigned lane, unsigned k) {
    const MmaShape s = mma_shape(opcode(e));
    const auto [row, column] = element_of_c(lane, k);
    const auto want = [&](unsigned first, const Place& p) {
      want_source(e, first + p.index, p.lane, low_bits_mask(s.bits) << (s.bits * p.part));
    };
    for (unsigned n = 0; n < s.k; ++n) {
      want(0, place_in_a(s, row, n));
      want(s.a_registers(), place_in_b(s, n, column));
    }
    want_source(e, s.a_registers() + s.b_registers() + k, lane, ~uint64_t{0});
  }
  // Of wgmma, where A and B may lie in shared memory.
  void multiplied_later(const Recorded& e, unsigned lane) {
    const Instruction& i = r_.instruction(e);
    const unsigned a_sources = r_.kernel(e).products[i.target].a_in_registers ? 4 : 1;
    for (unsigned k = 0; k < i.destinations; ++k) {
      if (!take(e, k, lane)) continue;
      const ProductParts p =
          product_parts(r_.kernel(e), i, e.warp, r_.source(e, 0, lane), r_.source(e, a_sources, lane),
                        r_.source(e, a_sources + 5, lane) != 0);
      const auto [row, column] = element_of_c(lane, k);
      const auto want_bytes = [&](const SharedMatrix& m, unsigned line, unsigned n) {
        for (unsigned byte = 0; byte < m.element; ++byte) shared_[m.at(line, n) + byte] = 0xFF;
      };
      for (unsigned n = 0; n < p.shape.k; ++n) {
        want_bytes(p.b, p.first_column + column, n);
        if (!p.form->a_in_registers) {
          want_bytes(p.a, p.first_row + row, n);
          continue;
        }
        const Place at = place_in_a(p.shape, row, n);
        want_source(e, at.index, at.lane, low_bits_mask(p.shape.bits) << (p.shape.bits * at.part));
      }
      if (p.adds) want_source(e, a_sources + 1 + k, lane, ~uint64_t{0});
      step(e, lane, r_.destination(e, k, lane), false, Type::f32);
    }
  }
  void load_matrices(const Recorded& e) {
    const Instruction& i = r_.instruction(e);
    for_elements(i, [&](unsigned matrix, unsigned row, unsigned column, unsigned lane, unsigned half) {
      const auto found = registers_.find(Key{e.warp, i.d[matrix], lane, false});
      const uint64_t bits = found == registers_.end() ? 0 : found->second >> (16 * half) & 0xFFFF;
      if (!bits) return;
      found->second &= ~(uint64_t{0xFFFF} << (16 * half));
      const uint64_t at = row_address(e, matrix, row) + 2 * column;
      for (unsigned n = 0; n < 2; ++n)
        if (const auto of_byte = static_cast<uint8_t>(bits >> (8 * n))) shared_[at + n] |= of_byte;
      step(e, lane, r_.destination(e, matrix, lane), false, Type::b32);
      if (found->second == 0) registers_.erase(found);
    });
  }
  void store_matrices(const Recorded& e) {
    const Instruction& i = r_.instruction(e);
    for_elements(i, [&](unsigned matrix, unsigned row, unsigned column, unsigned lane, unsigned half) {
      const uint64_t at = row_address(e, matrix, row) + 2 * column;
      uint64_t bits = 0;
      for (unsigned n = 0; n < 2; ++n)
        if (const auto found = shared_.find(at + n); found != shared_.end())
          bits |= uint64_t{found->second} << (8 * n), shared_.erase(found);
      if (!bits) return;
      want_source(e, 1 + matrix, lane, bits << (16 * half));
      step(e, lane, r_.source(e, 1 + matrix, lane), false, Type::b32);
    });
  }
  uint64_t row_address(const Recorded& e, unsigned matrix, unsigned row) const {
    uint64_t at = r_.address(e, kMatrixRows * matrix + row);
    located(r_.instruction(e), at);
    return at;
  }

  const Opcode& opcode(const Recorded& e) const { return r_.kernel(e).opcodes[r_.instruction(e).opcode]; }
  LaneValues values(const Recorded& e, unsigned lane) const {
    LaneValues v;
    const Instruction& i = r_.instruction(e);
    for (unsigned k = 0; k < i.sources; ++k) v.s[k] = r_.source(e, k, lane);
    for (unsigned k = 0; k < i.destinations; ++k) v.d[k] = r_.destination(e, k, lane);
    return v;
  }

  void step(const Recorded& e, unsigned lane, uint64_t value, bool predicate, Type type) {
    const Instruction& i = r_.instruction(e);
    SliceStep s;
    s.launch = e.launch;
    s.kernel = r_.launches()[e.launch].name;
    s.block = r_.blocks()[e.block].index;
    s.thread = e.warp * kLanes + lane;
    s.line = i.line;
    s.text = text_of(e);
    if (i.source) s.source = r_.kernel(e).sources[i.source - 1];
    s.type = type, s.predicate = predicate;
    const int bits = info(type).bits;
    s.value = predicate ? value & 1 : bits >= 64 ? value : value & ((uint64_t{1} << bits) - 1);
    steps_.push_back(std::move(s));
  }
  void name_memory(const Recorded& e, unsigned lane, uint64_t begin) {
    uint64_t at = r_.address(e, lane);
    SliceStep& s = steps_.back();
    switch (located(r_.instruction(e), at)) {
      case Space::shared: s.memory = "shared memory", s.offset = at + begin; return;
      case Space::local: s.memory = "local memory", s.offset = at + begin; return;
      case Space::param: s.memory = "parameters", s.offset = at + begin; return;
      default: break;
    }
    const Allocation* a = r_.launches()[e.launch].memory.holding(at + begin, 1);
    if (a) s.memory = a->id, s.offset = at + begin - a->base;
  }
  // The instruction as its line has it, without its guard.
  std::string text_of(const Recorded& e) {
    auto& lines = lines_[e.launch];
    if (lines.empty()) lines = lines_of(r_.launches()[e.launch].text);
    const uint32_t line = r_.instruction(e).line;
    const std::string& name = opcode(e).text;
    if (line == 0 || line > lines.size()) return name;
    const size_t at = lines[line - 1].find(name);
    return at == std::string_view::npos
               ? name
               : squeezed(lines[line - 1].substr(at, lines[line - 1].find(';', at) - at));
  }

  const Recorder& r_;
  std::map<Key, uint64_t> registers_;
  std::map<uint64_t, uint8_t> shared_, local_, global_;      // bits of a byte, by its address
  std::map<uint32_t, std::vector<std::string_view>> lines_;  // of each launch's text
  std::vector<SliceStep> steps_;
  uint32_t block_ = ~0u;
};

}  // namespace

std::vector<SliceStep> slice_behind(const std::function<void(Recorder&)>& run_all,
                                    const std::string& allocation, uint64_t bit, unsigned bits) {
  Recorder recorder;
  std::map<BytePlace, uint8_t> targets;
  for (uint64_t n = bit; n < bit + bits; ++n)
    targets[{allocation, n / 8}] |= static_cast<uint8_t>(1u << n % 8);
  for (const auto& [place, wanted] : targets) recorder.watched.insert(place);
  std::vector<SliceStep> out;
  for (size_t round = 0; round < kMostRounds; ++round) {
    recorder.start_run();
    run_all(recorder);
    if (recorder.launches().empty()) return {};
    Walk walk(recorder);
    for (const auto& [place, wanted] : targets) walk.want(place, wanted);
    walk.walk();
    out = walk.steps();
    const size_t watched = recorder.watched.size(), kept = recorder.keep.size();
    recorder.watched.merge(walk.missing());
    recorder.keep.insert(recorder.writers().begin(), recorder.writers().end());
    if (recorder.watched.size() == watched && recorder.keep.size() == kept) break;
  }
  return out;
}

}  // namespace assay::ptx
