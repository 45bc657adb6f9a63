#include "compare/diagnosis/replay/steps.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/equal_bytes.h"
#include "compare/arithmetic/factors.h"
#include "compare/diagnosis/replay/planes.h"

namespace assay {

namespace {

using Use = Hypothesis::Use;
using Planes = std::vector<PlaneData>;

std::deque<Matrix> matrices_of(const WholeTensor& whole, Hypotheses hypotheses) {
  std::deque<Matrix> out;
  out.emplace_back(whole.x(), whole.direction());
  for (const Hypothesis* h : hypotheses)
    if (h->element)
      out.emplace_back(Matrix(out.back(), h->element, h->widened ? Encoding::f32 : out.back().encoding()));
  return out;
}

Problem read_as(Problem p, Encoding source) {
  p.x.source = source;
  return p;
}

bool changes_scale(const Hypothesis& h, Use use) { return h.scale && h.use == use; }

}  // namespace

Run::Run(const WholeTensor& whole, const Selection& chosen, Hypotheses hypotheses, Problem p)
    : whole(whole),
      hypotheses(hypotheses),
      everything(chosen.everything),
      matrices(matrices_of(whole, hypotheses)),
      edited(matrices.size() > 1),
      selection(chosen.everything ? all_of(x()) : chosen),
      window{whole, selection, read_as(std::move(p), x().encoding()), whole.direction(), {}, &x(), &x()},
      format(info(q().format)),
      of_rows(q().row_scaled && !format.has_blocks()),
      of_amaxes(q().format == FormatId::fp8_block),
      amax_given(q().amax.has_value()) {}

bool Run::has_tensor_amax() const {
  return q().format == FormatId::fp8_current || q().format == FormatId::fp8_delayed ||
         q().format == FormatId::nvfp4;
}

double Run::whole_amax() const {
  if (tensor_amax) return *tensor_amax;
  if (const PlaneData* given = whole.given_amax()) return static_cast<double>(scalar_of(*given));
  if (!has_tensor_amax()) return 0;
  return edited ? window.quantized->amax() : whole.amax();
}

// ---- the amax of the tensor ----

bool rotate(Run& run) {
  if (!run.q().rht || run.turned) return true;
  if (run.edited || run.whole.rotated().bytes.empty()) return false;
  run.turned.emplace(run.whole.rotated(), Direction::row);
  run.window.quantized = &*run.turned;
  return true;
}

namespace {

// The amax of x as it is read, rotated as the run's line says.
double amax_of_rotated(const Run& run) {
  const WholeTensor& whole = run.whole;
  const Matrix& x = run.x();
  Problem turn = whole.lane().problem;
  turn.col = run.q();
  turn.op = Hadamard{};
  PlaneData changed = whole.x();
  for (int64_t i = 0; i < x.lines(); ++i)
    for (int64_t j = 0; j < x.length(); ++j)
      set_code(changed.plane.encoding, changed.bytes,
               whole.direction() == Direction::row ? i * x.length() + j : j * x.lines() + i, x.code(i, j));
  const auto made = run.edited && equal_bytes(changed.bytes, whole.x().bytes)
                        ? std::nullopt
                        : whole.execute(turn, {changed});
  return made ? Matrix(made->front(), Direction::row).amax() : whole.amax();
}

// The tensor's amax where a part is replayed.
double amax_for_part(const Run& run, std::optional<double> observed) {
  const Quantizer& own = run.whole.quantizer();
  const bool other = run.edited || run.q().rht != own.rht || run.q().sign_mask != own.sign_mask;
  if (!other) return run.whole.amax();
  if (observed) return *observed;
  return run.q().rht ? amax_of_rotated(run) : run.x().amax();
}

}  // namespace

bool set_tensor_amax(Run& run, std::optional<double> observed) {
  if (!run.has_tensor_amax() || run.q().row_scaled) return true;
  if (const Hypothesis* edit =
          run.first([](const Hypothesis& h) { return h.tensor_amax || h.tensor_part || h.group_amax; })) {
    const std::optional<double>& of_group = run.whole.lane().group_amax;
    if (!rotate(run) || (edit->group_amax && !of_group)) return false;
    const Matrix& quantized = *run.window.quantized;
    const double amax = edit->group_amax    ? *of_group
                        : edit->tensor_part ? run.whole.amax_of_part(quantized, edit->tensor_part, run.edited)
                                            : edit->tensor_amax(quantized, run.x());
    run.tensor_amax = static_cast<float>(amax);
    const PlaneData* given = run.whole.given_amax();
    run.shown_amax = edit->amax_shown ? *run.tensor_amax
                     : given          ? static_cast<double>(scalar_of(*given))
                     : run.edited     ? run.x().amax()
                                      : run.whole.amax();
  } else if (!run.everything && !run.amax_given) {
    run.tensor_amax = run.shown_amax = amax_for_part(run, observed);
  }
  if (run.tensor_amax && run.q().format != FormatId::fp8_delayed)
    run.window.q().amax = bits_of(*run.tensor_amax);
  return true;
}

// ---- what is given ----

bool couple_draws(Run& run) {
  const Quantizer& q = run.q();
  if (q.round != Round::sr) return true;
  const bool logical = q.numerics.draw == Draw::logical;
  if (!run.everything && (!logical || run.whole.quantizer().round != Round::sr))
    return false;  // its lines are not the leading ones
  const std::optional<Quantizer>& other = run.whole.lane().partner;
  if (!other || logical || other->rht || (run.window.d == Direction::col && q.rht)) return true;
  Quantizer partner = *other;
  partner.numerics.draw = q.numerics.draw;
  run.window.p.quantizer(other_than(run.window.d)) = partner;
  return true;
}

void give_inputs(Run& run) {
  Window& w = run.window;
  for (const PlaneData& data : run.whole.lane().inputs) {
    if (data.plane.name == "x") continue;
    w.inputs.push_back(data);
    if (run.everything || data.plane.logical.rows <= 1 || !run.of_rows) continue;
    PlaneData& given = w.inputs.back();  // one value for each row of the whole: those of the part's rows
    given.plane.logical = given.plane.padded = {w.lines(), 1};
    given.bytes.resize(given.plane.bytes());
    for (int64_t i = 0; i < w.lines(); ++i)
      set_code(Encoding::f32, given.bytes, i, code_at(Encoding::f32, data.bytes, w.line(i)));
  }
  if (run.everything && !run.edited) {
    w.inputs.push_back(run.whole.x());
  } else {
    PlaneData part{input_planes(w.p).front(), {}};
    part.bytes.resize(part.plane.bytes());
    const int64_t lines = w.lines(), places = w.places();
    for (int64_t i = 0; i < lines; ++i)
      for (int64_t j = 0; j < places; ++j)
        set_code(part.plane.encoding, part.bytes, w.d == Direction::row ? i * places + j : j * lines + i,
                 w.x->code(w.line(i), w.place(j)));
    w.inputs.push_back(std::move(part));
  }
  if (!run.tensor_amax) return;
  if (run.amax_given)
    std::erase_if(w.inputs, [&](const PlaneData& data) { return data.plane.name == w.name("given.amax"); });
  if (w.q().amax) w.inputs.push_back(scalar_plane(w.name("given.amax"), w.d, *w.q().amax));
}

// ---- blocks ----

namespace {

bool changes_amax(const Hypothesis& h) { return h.amax || h.tensor_amax || h.tensor_part; }

// Scales of blocks outside a part are those of the lane's own line. That holds where nothing else would
// change them.
bool choose_whole_scales(Run& run) {
  if (run.everything || !run.first([](const Hypothesis& h) { return h.scale && h.wide; })) return true;
  const auto harmless = [](const Hypothesis& h) {
    if (h.scale) return h.wide;
    return (h.keys.empty() || h.stage >= Stage::scaled_value) && !h.element && !changes_amax(h);
  };
  if (run.first([&](const Hypothesis& h) { return !harmless(h); })) return false;
  if (std::count_if(run.hypotheses.begin(), run.hypotheses.end(),
                    [](const Hypothesis* h) { return h->scale != nullptr; }) > 1)
    return false;
  const bool stored = run.first([](const Hypothesis& h) { return changes_scale(h, Use::stored); });
  run.of_whole = run.of_amaxes && !stored ? &run.whole.scale_amaxes() : &run.whole.scales();
  return !run.of_whole->codes.empty();
}

bool changes_used_scales(const Run& run) {
  return run.first([](const Hypothesis& h) { return h.scale && h.use != Use::stored; });
}

// Under row scales: the hypothesis about a row's amax.
const Hypothesis* of_row(const Run& run) { return run.of_rows ? run.first(changes_amax) : nullptr; }

}  // namespace

bool choose_block_edits(Run& run) {
  for (const Hypothesis* h : run.hypotheses) {
    if (!h->amax) continue;
    if (run.block_amax) return false;
    run.block_amax = &h->amax;
  }
  if (const Hypothesis* row = of_row(run); row && (row->tensor_part || run.q().round == Round::sr))
    return false;
  if (!choose_whole_scales(run)) return false;
  if ((!run.block_amax || run.of_rows) && !(run.of_amaxes && changes_used_scales(run))) return true;
  if (!run.format.has_blocks() || run.q().scale_from != ScaleFrom::x || !rotate(run)) return false;
  run.window.give(run.window.grid_of_amaxes(run.block_amax, run.x()), ScaleFrom::amax);
  return true;
}

namespace {

// N3.12 under other amaxes: row i is a tensor of its own, whose amax is given.
std::optional<Planes> run_row(const Run& run, const PlaneData& x, int64_t i, F32Bits amax) {
  const Window& w = run.window;
  const bool rows = w.d == Direction::row;
  const int64_t lines = w.lines(), places = w.places();
  Problem one = w.p;
  one.x.shape = rows ? Shape{1, places} : Shape{places, 1};
  one.quantizer(w.d)->row_scaled = false;
  one.quantizer(w.d)->amax = amax;
  Planes inputs = {scalar_plane(w.name("given.amax"), w.d, amax)};
  PlaneData& row = inputs.emplace_back(PlaneData{input_planes(one).front(), {}});
  row.bytes.resize(row.plane.bytes());
  for (int64_t j = 0; j < places; ++j)
    set_code(row.plane.encoding, row.bytes, j,
             code_at(x.plane.encoding, x.bytes, rows ? i * places + j : j * lines + i));
  return run.whole.execute(one, inputs);
}

// The bytes of row i in the planes of all of them. False where a plane is lacking or of another size.
bool place_row(Planes& out, const Planes& row, int64_t i, int64_t lines, const std::string& except) {
  for (PlaneData& whole : out) {
    if (whole.plane.name == except) continue;
    const PlaneData* from = find_plane(row, whole.plane.name);
    if (!from || static_cast<int64_t>(from->bytes.size()) * lines != static_cast<int64_t>(whole.bytes.size()))
      return false;
    std::copy(from->bytes.begin(), from->bytes.end(),
              whole.bytes.begin() + i * static_cast<int64_t>(from->bytes.size()));
  }
  return true;
}

std::optional<Planes> run_rows(const Run& run, const Hypothesis& h) {
  const Window& w = run.window;
  const Matrix& x = run.x();
  const PlaneData& part = *find_plane(w.inputs, "x");
  if (w.places() == 0) return {};
  const F32Bits of_tensor = h.tensor_amax ? bits_of(h.tensor_amax(x, x)) : 0;
  Planes out;
  for (const Plane& plane : output_planes(w.p)) out.push_back({plane, std::vector<std::byte>(plane.bytes())});
  PlaneData* amaxes = find_plane(out, w.name("amax"));
  for (int64_t i = 0; i < w.lines(); ++i) {
    const BlockView view{x, x, w.line(i), w.line(i) + 1, 0, x.length(), 1, x.length()};
    const F32Bits amax = h.tensor_amax ? of_tensor : bits_of(h.amax(view));
    const auto made = run_row(run, part, i, amax);
    if (!made || !place_row(out, *made, i, w.lines(), w.name("amax"))) return {};
    if (amaxes) set_code(Encoding::f32, amaxes->bytes, i, h.amax_shown ? amax : bits_of(view.amax()));
  }
  if (h.use != Use::codes) return out;
  auto right = run.whole.execute(w.p, w.inputs);  // what is stored is each row's own
  if (right) *w.data_in(*right) = std::move(*w.data_in(out));
  return right;
}

}  // namespace

bool make_planes(Run& run) {
  const Hypothesis* row = of_row(run);
  auto planes = row ? run_rows(run, *row) : run.whole.execute(run.window.p, run.window.inputs);
  if (!planes) return false;
  run.planes = std::move(*planes);
  return true;
}

namespace {

void edit_scales(const Run& run, ScaleGrid& grid, Use use) {
  for (const Hypothesis* h : run.hypotheses)
    if (changes_scale(*h, use)) run.window.edit(grid, *h, run.of_whole);
}

// The scales of the selection with what they are made of, before any edit.
ScaleGrid scales_to_edit(const Run& run, const PlaneData& scales, const ScaleGrid& made_of) {
  ScaleGrid out = run.of_amaxes ? made_of : run.window.grid_of(scales);
  out.amaxes = made_of.amaxes;
  if (run.q().format == FormatId::nvfp4 && !run.q().row_scaled) {
    out.tensor_amax = run.whole_amax();
    out.encode_scale =
        encode_scale(run.q(), static_cast<float>(out.tensor_amax), run.whole.lane().problem.x.source);
  }
  return out;
}

}  // namespace

bool change_scales(Run& run) {
  if (!changes_used_scales(run)) return true;
  Window& w = run.window;
  const PlaneData* plane = w.scales_in(run.planes);
  if (!plane || !run.format.has_blocks() || !rotate(run)) return false;
  const ScaleGrid made_of = w.grid_of_amaxes(run.block_amax, run.x());
  if (made_of.codes.empty()) return false;
  ScaleGrid shown = scales_to_edit(run, *plane, made_of);
  edit_scales(run, shown, Use::both);
  ScaleGrid used = shown;
  edit_scales(run, used, Use::codes);
  const ScaleFrom from = run.of_amaxes ? ScaleFrom::amax : ScaleFrom::scale;
  w.give(used, from);
  auto second = run.whole.execute(w.p, w.inputs);
  if (!second) return false;
  if (run.first([](const Hypothesis& h) {
        return changes_scale(h, Use::codes);
      })) {  // what is stored follows the scales that are shown
    Window show = w;
    show.give(shown, from);
    auto right = run.whole.execute(show.p, show.inputs);
    if (!right) return false;
    *w.data_in(*right) = *w.data_in(*second);
    second = std::move(right);
  }
  run.planes = std::move(*second);
  return true;
}

bool change_stored_scales(Run& run) {
  for (const Hypothesis* h : run.hypotheses) {
    if (!changes_scale(*h, Use::stored)) continue;
    PlaneData* plane = run.window.scales_in(run.planes);
    if (!plane || !run.format.has_blocks() || !rotate(run)) return false;
    ScaleGrid grid = run.window.grid_of(*plane);
    grid.amaxes = run.window.grid_of_amaxes(run.block_amax, run.x()).amaxes;
    run.window.edit(grid, *h, run.of_whole);
    run.window.write(grid, plane->plane, plane->bytes);
  }
  return true;
}

}  // namespace assay
