#include "fast/ptx/wmma.h"

#include <array>

namespace assay::ptx {

namespace {

constexpr const char* kTurn = "movmatrix.sync.aligned.m8n8.trans.b16";
constexpr uint64_t kDefaultStride = 16;           // elements, where the text names none
constexpr int64_t kHalfRow = 16, kWholeRow = 32;  // bytes of eight elements of 16 and of 32 bits

// One load or store, as it is written, and the instructions that are made of it.
class Wmma {
 public:
  Wmma(const Opcode& op, const std::vector<Operand>& operands, Names& names)
      : op_(op), names_(names), load_(op.has("load")), wide_elements_(op.last() == Type::f32) {
    const size_t fragment = load_ ? 0 : 1, stride = 2;
    if (operands.size() < 2 || operands.size() > 3)
      throw Fault("'" + op.text + "' takes 2 or 3 operands, not " + std::to_string(operands.size()));
    fragment_ = operands[fragment];
    const size_t count = wide_elements_ ? 8 : 4;
    if (fragment_.what != Operand::What::vector || fragment_.parts.size() != count)
      throw Fault("'" + op.text + "' needs " + std::to_string(count) + " registers in braces");
    base_ = operands[1 - fragment];
    if (!base_.address) throw Fault("'" + op.text + "' needs an address in brackets");
    stride_ = operands.size() > stride ? operands[stride] : number(kDefaultStride);
    const uint64_t step = stride_.number.bits;
    if (stride_.what == Operand::What::number &&
        (step < kDefaultStride || step * (wide_elements_ ? 4 : 2) % 16))
      throw Fault("'" + op.text + "' has a stride of " + std::to_string(step) +
                  " elements, and needs at least 16, and a multiple of 16 bytes");
  }

  std::vector<Part> parts() {
    // The whole warp comes together, as .sync and .aligned say. That orders no accesses to memory, and the
    // register that this writes is not read.
    add(kTurn, {fresh(Type::b32), special("%laneid")});
    if (wide_elements_ && op_.has("col")) columns_of_words();
    else matrices();
    return std::move(parts_);
  }

 private:
  static Operand number(uint64_t value) {
    Operand o;
    o.what = Operand::What::number;
    o.number = {Number::Form::integer, value};
    return o;
  }
  Operand fresh(Type type) {
    Operand o;
    o.what = Operand::What::reg;
    o.reg = {type, names_.unnamed(info(type).bits > 32)};
    return o;
  }
  void add(std::string opcode, std::vector<Operand> operands) {
    parts_.push_back({std::move(opcode), std::move(operands)});
  }
  // A new register with a result of 32 bits.
  Operand result(std::string opcode, std::vector<Operand> sources) {
    const Operand to = fresh(Type::u32);
    sources.insert(sources.begin(), to);
    add(std::move(opcode), std::move(sources));
    return to;
  }
  // The address that lies so many bytes behind another, which may be the text's.
  Operand behind(const Operand& from, const Operand& bytes) {
    const bool wide = from.what != Operand::What::reg || from.reg.wide();
    const std::string type = wide ? ".u64" : ".u32";
    Operand at = fresh(wide ? Type::u64 : Type::u32), start = from, step = bytes;
    start.address = false;
    if (start.what == Operand::What::symbol) add("mov" + type, {at, start}), start = at;
    if (start.what == Operand::What::number) start = number(static_cast<uint64_t>(from.displacement));
    if (wide) step = fresh(Type::u64), add("cvt.u64.u32", {step, bytes});
    add("add" + type, {at, start, step});
    at.address = true;
    at.displacement = from.what == Operand::What::reg ? from.displacement : 0;
    return at;
  }
  // Moves a register or two between memory and the fragment.
  void move(const Operand& at, int64_t bytes, const Operand& registers) {
    Operand place = at;
    place.displacement += bytes;
    std::string opcode = load_ ? "ld" : "st";
    for (const char* space : {"global", "shared", "shared::cta"})
      if (op_.has(space)) opcode += "." + std::string(space);
    opcode += registers.parts.empty() ? ".b32" : ".v2.b32";
    if (load_) add(opcode, {registers, place});
    else add(opcode, {place, registers});
  }

  // Every lane has a place in each matrix: in line lane / 4 of memory the pair of elements lane % 4. Where
  // memory has rows, the second matrix of the fragment lies eight lines on, else the third.
  void matrices() {
    const int64_t near = wide_elements_ ? kWholeRow : kHalfRow;
    const Operand lane = special("%laneid"), log2 = number(wide_elements_ ? 2 : 1);
    const Operand line = result("shr.u32", {lane, number(2)}), pair = result("and.b32", {lane, number(3)});
    const Operand in_line = result("shl.b32", {pair, number(wide_elements_ ? 3 : 2)});
    const Operand line_bytes = result("shl.b32", {stride_, log2});
    const Operand offset = result("mad.lo.u32", {line, line_bytes, in_line});
    const Operand first = behind(base_, offset);
    const Operand far = behind(first, result("shl.b32", {line_bytes, number(3)}));
    const bool rows = op_.has("row"), turned = !wide_elements_ && rows == op_.has("b");
    for (size_t n = 0; n < 4; ++n) {
      const bool on_far = (rows ? n & 1 : n & 2) != 0, on_near = (rows ? n & 2 : n & 1) != 0;
      Operand registers = fragment_.parts[n];
      if (wide_elements_) {
        registers = fragment_;
        registers.parts = {fragment_.parts[2 * n], fragment_.parts[2 * n + 1]};
      }
      const auto turn = [&] { add(kTurn, {registers, fragment_.parts[n]}); };
      if (turned && !load_) registers = fresh(Type::b32), turn();
      move(on_far ? far : first, on_near ? near : 0, registers);
      if (turned && load_) turn();
    }
  }
  // Elements of 32 bits whose columns lie side by side in memory: two columns for each lane, and of each two
  // rows; and the same eight columns on.
  void columns_of_words() {
    const Operand lane = special("%laneid"), step = result("shl.b32", {stride_, number(2)});
    const Operand row = result("shr.u32", {lane, number(2)}), pair = result("and.b32", {lane, number(3)});
    const Operand in_column = result("shl.b32", {row, number(2)});
    const Operand column = result("shl.b32", {pair, number(1)});
    const Operand even = behind(base_, result("mad.lo.u32", {column, step, in_column}));
    const Operand odd = behind(even, step), later = result("shl.b32", {step, number(3)});
    const std::array<Operand, 4> columns = {even, odd, behind(even, later), behind(odd, later)};
    for (size_t n = 0; n < 8; ++n)
      move(columns[n / 4 * 2 + n % 2], n & 2 ? kWholeRow : 0, fragment_.parts[n]);
  }
  Operand special(std::string_view name) {
    Operand o;
    o.what = Operand::What::reg;
    o.reg = *names_.find_special(name);
    return o;
  }

  const Opcode& op_;
  Names& names_;
  bool load_, wide_elements_;
  Operand fragment_, base_, stride_;
  std::vector<Part> parts_;
};

}  // namespace

std::vector<Part> parts_of_wmma(const Opcode& op, const std::vector<Operand>& operands, Names& names) {
  return Wmma(op, operands, names).parts();
}

}  // namespace assay::ptx
