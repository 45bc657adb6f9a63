#include "compare/packs/tiled_case.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/packs/dump.h"
#include "compare/process/guarded_run.h"
#include "compare/process/pool.h"
#include "compare/process/run_in_child.h"
#include "fixtures/json.h"
#include "fixtures/mapped_pages.h"

namespace assay {

namespace {

using std::string;

// ---- parts of recorded planes -----------------------------------------------------------------------------

bool row_major(const Plane& p) { return p.layout == ScaleLayout::compact; }

// Rows of `part` as they lie in the whole, from `origin` on.
void copy_rows(const PlaneView& whole, Shape origin, PlaneData& part) {
  const Plane& p = part.plane;
  const size_t row =
      p.bytes_of(p.packed ? round_up(p.logical.cols, info(p.encoding).packed_codes()) : p.logical.cols);
  for (int64_t r = 0; r < p.logical.rows; ++r) {
    const int64_t from = (origin.rows + r) * whole.plane.padded.cols + origin.cols;
    if (row)
      std::memcpy(part.bytes.data() + p.bytes_of(r * p.padded.cols),
                  whole.bytes.data() + whole.plane.bytes_of(from), row);
  }
}

// A plane of a tile, cut out of the recorded one. Padding is taken over where the layout has a meaning for it
// (N6.4) and is zero elsewhere.
PlaneData part_of(const PlaneView& whole, const Plane& plane, Shape origin) {
  PlaneData part{plane, std::vector<std::byte>(plane.bytes())};
  if (row_major(plane) && whole.plane.packed == plane.packed) {
    copy_rows(whole, origin, part);
    return part;
  }
  const Shape shape = row_major(plane) ? plane.logical : plane.padded;
  for (int64_t r = 0; r < shape.rows; ++r)
    for (int64_t c = 0; c < shape.cols; ++c)
      set_code(plane, part.bytes, index_of(plane, r, c),
               code_at(whole.plane, whole.bytes, index_of(whole.plane, origin.rows + r, origin.cols + c)));
  return part;
}

using Views = PlaneViews;

// Of the planes of a tile those that are recorded.
std::vector<PlaneData> parts_of(const Views& views, const Tiling& tiling, const Tile& tile,
                                const std::vector<Plane>& planes) {
  std::vector<PlaneData> out;
  for (const Plane& plane : planes)
    if (const auto whole = views.find(plane.name); whole != views.end())
      out.push_back(part_of(whole->second, plane, tiling.origin(tile, plane)));
  return out;
}

// ---- the tensor's amax ------------------------------------------------------------------------------------

// N3.1: the largest magnitude that is no NaN, as binary32.
F32Bits largest(const PlaneData& x) {
  const EncodingInfo& e = info(x.plane.encoding);
  const uint32_t sign = 1u << (e.bits - 1);
  uint32_t most = 0;
  for (int64_t i = 0; i < x.plane.logical.count(); ++i) {
    const uint32_t code = code_at(x.plane.encoding, x.bytes, i) & ~sign;
    if (code > most && code <= e.infinity) most = code;
  }
  return std::bit_cast<F32Bits>(static_cast<float>(value_of(x.plane.encoding, most)));
}

float as_float(F32Bits bits) { return std::bit_cast<float>(bits); }

// What a task needs of the case.
struct Source {
  const PackCase& recorded;
  const Tiling& tiling;
  Subject& reference;
  Views in, out;

  Result<std::vector<PlaneData>> inputs(const Problem& p, const Tile& tile) const {
    return inputs_with(p, parts_of(in, tiling, tile, input_planes(p)), reference);
  }
};

Result<Source> source_of(const PackCase& c, const Tiling& tiling, Subject& reference) {
  auto in = views_of(c, input_planes(tiling.problem));
  if (!in) return in.error();
  auto out = views_of(c, output_planes(tiling.problem));
  if (!out) return out.error();
  return Source{c, tiling, reference, std::move(*in), std::move(*out)};
}

// The amax of direction d in one tile: of x, or of the rotated x as the reference has it (N11.2).
Result<F32Bits> amax_of_tile(const Source& s, Direction d, const Tile& tile) {
  Problem p = s.tiling.problem_of(tile);
  p.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
  p.col_source = ColSource::original;
  if (!p.quantizer(d)->rht) {
    const auto inputs = s.inputs(p, tile);
    if (!inputs) return inputs.error();
    return largest(*find_plane(*inputs, "x"));
  }
  p.quantizer(d)->amax.reset();
  const auto inputs = s.inputs(p, tile);
  if (!inputs) return inputs.error();
  const Execution run = execute(s.reference, p, *inputs, Environment{});
  if (run.error) return Error{"reference: " + *run.error, 0, ""};
  return code_at(Encoding::f32, find_plane(run.planes, plane_name(d, "amax"))->bytes, 0);
}

// ---- what crosses the pipe --------------------------------------------------------------------------------

json::Value to_json(const PlaneDifference& d) {
  return json::object({{"plane", d.plane.name},
                       {"differ", d.differ},
                       {"row", d.place.row},
                       {"col", d.place.col},
                       {"got", d.got},
                       {"want", d.want},
                       {"explained", d.explained}});
}

int64_t number(const json::Value& v, std::string_view key) {
  const json::Value* found = v.find(key);
  return found ? found->to_int().value_or(0) : 0;
}

json::Value list_of(const std::vector<PlaneDifference>& differences) {
  json::Value out = json::array();
  for (const PlaneDifference& d : differences) out.push(to_json(d));
  return out;
}

string failure(const string& why) { return json::dump(json::object({{"error", why}})); }

json::Value to_json(const JudgedBlocks& b) {
  return json::object({{"accepted", b.accepted}, {"referred", b.referred}, {"counted", b.counted}});
}

// A tile that was judged block by block.
json::Value to_json(const AcceptedTile& accepted) {
  json::Value scalars = json::object();
  for (const auto& [name, bits] : accepted.scalars) scalars.set(name, bits);
  json::Value out = json::object({{"scalars", std::move(scalars)}, {"blocks", to_json(accepted.blocks)}});
  if (accepted.differences.empty()) return out;
  const PlaneDifference& cause = accepted.differences.front();
  std::vector<PlaneDifference> after, beside;
  for (auto d = accepted.differences.begin() + 1; d != accepted.differences.end(); ++d)
    (d->plane.direction == cause.plane.direction ? after : beside).push_back(*d);
  out.set("cause", to_json(cause));
  out.set("after", list_of(after));
  out.set("beside", list_of(beside));
  out.set("hint", accepted.hint);
  return out;
}

// One tile against the reference, whose work the acceptor may shorten. Planes of one value are no tile's: the
// reference's are handed on.
string judge_tile(const Source& s, const Tile& tile, Acceptor* acceptor) {
  const Problem p = s.tiling.problem_of(tile);
  JudgedBlocks blocks;
  if (acceptor) {
    if (const auto accepted = accept_tile(p, tile, s.in, s.out, *acceptor, s.reference))
      return json::dump(to_json(*accepted));
    blocks.referred = blocks_of(p, s.out, *acceptor);
  }
  const auto inputs = s.inputs(p, tile);
  if (!inputs) return failure(inputs.error().text());
  if (const Support support = s.reference.supports(p); !support.yes)
    return failure("reference: " + support.why);
  Execution run = execute(s.reference, p, *inputs, Environment{});
  if (run.error || run.trespass)
    return failure("reference: " + run.error.value_or(run.trespass.value_or("")));
  json::Value scalars = json::object();
  std::vector<PlaneData> want;
  for (PlaneData& plane : run.planes) {
    const auto whole = s.out.find(plane.plane.name);
    if (whole == s.out.end()) continue;
    if (is_scalar(whole->second.plane)) scalars.set(plane.plane.name, code_at(plane.plane, plane.bytes, 0));
    else want.push_back(std::move(plane));
  }
  std::vector<Plane> planes;
  for (const PlaneData& w : want) planes.push_back(w.plane);
  const Judgement j =
      want.empty() ? Judgement{} : judge(&p, parts_of(s.out, s.tiling, tile, planes), want, true);
  if (!j.error.empty()) return failure(j.error);
  json::Value out = json::object({{"scalars", std::move(scalars)}, {"blocks", to_json(blocks)}});
  if (j.cause) {
    out.set("cause", to_json(*j.cause));
    out.set("after", list_of(j.after));
    out.set("beside", list_of(j.beside));
    out.set("hint", j.hint);
  }
  if (!j.padding.empty()) out.set("padding", list_of(j.padding));
  return json::dump(out);
}

// ---- putting tiles together -------------------------------------------------------------------------------

// One plane over all tiles.
struct Total {
  Plane plane;
  PlaneDifference logical, padding;
  std::map<string, int64_t> explained;  // of `logical`, by the first plane that differs in the same tile
  Tile first;                           // of logical
};

class Totals {
 public:
  Totals(const Tiling& tiling, const Views& out) : tiling_(tiling) {
    for (const Plane& plane : output_planes(tiling.problem))
      if (out.contains(plane.name)) {
        Total& t = totals_.emplace_back();
        t.plane = t.logical.plane = t.padding.plane = plane;
        t.logical.of = plane.logical.count();
        t.padding.of = plane.padded.count() - plane.logical.count();
        t.padding.in_padding = true;
      }
  }

  void add(const Tile& tile, const json::Value& found) {
    if (const json::Value* blocks = found.find("blocks")) {
      blocks_.accepted += number(*blocks, "accepted");
      blocks_.referred += number(*blocks, "referred");
      blocks_.counted += number(*blocks, "counted");
    }
    if (const json::Value* scalars = found.find("scalars"); scalars && scalars->object())
      for (const auto& [name, bits] : *scalars->object())
        add_scalar(name, static_cast<F32Bits>(bits.to_int().value_or(0)));
    if (const json::Value* padding = found.find("padding"))
      for (const json::Value& d : *padding->array()) add(tile, d, true, {});
    const json::Value* cause = found.find("cause");
    if (!cause) return;
    const string name(cause->text("plane"));
    add(tile, *cause, false, name);
    for (const char* list : {"after", "beside"})
      for (const json::Value& d : *found.find(list)->array()) add(tile, d, false, name);
    auto [hint, is_new] = hints_.emplace(name, found.text("hint"));
    if (!is_new && hint->second != found.text("hint")) hint->second.clear();
  }

  // A value of the whole tensor that no tile's line makes.
  void give(const string& plane, F32Bits bits) { scalars_[plane] = bits; }

  // What the planes of one value hold, against what they should.
  void judge_scalars(const Views& out) {
    for (Total& t : totals_) {
      const auto want = scalars_.find(t.plane.name);
      if (want == scalars_.end()) continue;
      PlaneDifference& d = t.logical;
      d.want = want->second;
      d.got = code_at(t.plane, out.at(t.plane.name).bytes, 0);
      d.differ = d.got != d.want;
      d.apart = codes_apart(t.plane.encoding, d.got, d.want);
    }
  }

  TiledJudgement judgement() {
    TiledJudgement out;
    out.blocks = blocks_;
    Judgement& j = out.judgement;
    const Total* cause = nullptr;
    for (Total& t : totals_) {
      out.judged.push_back(t.plane.name);
      j.compared += t.plane.logical.count();
      if (t.padding.differ) j.padding.push_back(t.padding);
      if (!t.logical.differ) continue;
      if (!cause) {
        cause = &t;
        j.cause = t.logical;
        j.hint = hints_[t.plane.name];
        if (blocks_.counted && !j.hint.empty()) j.hint = "in the blocks that the reference judged: " + j.hint;
        if (!is_scalar(t.plane)) out.first = t.first;
        continue;
      }
      const std::optional<Direction> chain = cause->plane.direction, d = t.plane.direction;
      if (chain && d && *chain != *d) {
        j.beside.push_back(t.logical);
      } else {
        t.logical.explained = is_scalar(cause->plane) ? t.logical.differ : t.explained[cause->plane.name];
        j.after.push_back(t.logical);
      }
    }
    return out;
  }

 private:
  // What is one value for the tensor is the same in every tile, but for an amax that begins with a given one
  // (N3.11): that is the largest of them.
  void add_scalar(const string& name, F32Bits bits) {
    const auto [known, is_new] = scalars_.emplace(name, bits);
    if (!is_new && as_float(bits) > as_float(known->second)) known->second = bits;
  }

  void add(const Tile& tile, const json::Value& found, bool padding, const string& cause) {
    const string name(found.text("plane"));
    const auto total =
        std::find_if(totals_.begin(), totals_.end(), [&](const Total& t) { return t.plane.name == name; });
    if (total == totals_.end()) return;
    PlaneDifference& d = padding ? total->padding : total->logical;
    const Shape origin = tiling_.origin(tile, total->plane);
    const Place place{padding, origin.rows + number(found, "row"), origin.cols + number(found, "col")};
    const bool is_first =
        d.differ == 0 || std::pair(place.row, place.col) < std::pair(d.place.row, d.place.col);
    d.differ += number(found, "differ");
    if (!padding) total->explained[cause] += number(found, "explained");
    if (!is_first) return;
    d.place = place;
    d.index = index_of(total->plane, place.row, place.col);
    d.got = static_cast<uint32_t>(number(found, "got"));
    d.want = static_cast<uint32_t>(number(found, "want"));
    d.apart = codes_apart(total->plane.encoding, d.got, d.want);
    if (!padding) total->first = tile;
  }

  const Tiling& tiling_;
  std::vector<Total> totals_;
  std::map<string, string> hints_;  // by the first plane that differs in a tile; empty where tiles disagree
  std::map<string, F32Bits> scalars_;
  JudgedBlocks blocks_;
};

// ---- tasks ------------------------------------------------------------------------------------------------

// Runs a task for every tile and hands its JSON over, in order. Returns the number of tiles, or the first
// error.
Result<size_t> for_tiles(const PackCase& c, const Tiling& tiling, const TiledOptions& options, size_t before,
                         size_t of, const std::function<string(const Tile&)>& task,
                         const std::function<void(const Tile&, const json::Value&)>& result) {
  std::optional<Error> error;
  TaskHooks hooks;
  hooks.task = [&](size_t i) {
    string found = task(tiling.tiles[i]);
    for (const PackPlane& plane : c.planes)  // what was read stays no longer than its tile
      if (plane.tensor) release_mapped_pages(plane.tensor->bytes);
    return found;
  };
  hooks.crashed = [](const string& why) { return failure("reference: " + why); };
  hooks.result = [&](size_t i, const string& text) {
    const auto found = json::parse(text);
    if (!found) error = found.error();
    else if (found->find("error")) error = Error{string(found->text("error")), 0, ""};
    else result(tiling.tiles[i], *found);
    if (options.on_progress) options.on_progress(before + i + 1, of);
    return !error && !(options.stop && *options.stop);
  };
  const size_t done = run_tasks(tiling.tiles.size(), options.jobs, options.timeout, std::move(hooks));
  if (error) return *error;
  return done;
}

// Finds the amaxes that tiles do not know. The number of tiles that were looked at.
Result<size_t> find_amaxes(const PackCase& c, Tiling& tiling, Subject& reference,
                           const TiledOptions& options) {
  std::vector<Direction> wanted;
  for (const Direction d : kDirections)
    if (tiling.needs_amax(d)) wanted.push_back(d);
  if (wanted.empty()) return tiling.tiles.size();
  auto source = source_of(c, tiling, reference);
  if (!source) return source.error();
  std::array<F32Bits, 2> most{};
  const auto done = for_tiles(
      c, tiling, options, 0, 2 * tiling.tiles.size(),
      [&](const Tile& tile) {
        json::Value found = json::array();
        for (const Direction d : wanted) {
          const auto amax = amax_of_tile(*source, d, tile);
          if (!amax) return failure(amax.error().text());
          found.push(*amax);
        }
        return json::dump(json::object({{"amax", std::move(found)}}));
      },
      [&](const Tile&, const json::Value& found) {
        for (size_t n = 0; n < wanted.size(); ++n) {
          const auto bits = static_cast<F32Bits>(found.find("amax")->array()->at(n).to_int().value_or(0));
          if (as_float(bits) > as_float(most[n])) most[n] = bits;
        }
      });
  if (!done || *done < tiling.tiles.size()) return done;
  for (size_t n = 0; n < wanted.size(); ++n)
    (wanted[n] == Direction::row ? tiling.row_amax : tiling.col_amax) = most[n];
  return done;
}

}  // namespace

Result<Tiling> tiling_of_case(const PackCase& c, const Problem& problem, int64_t elements) {
  auto tiling = tiling_of(problem, elements);
  if (!tiling) return tiling;
  for (const PackPlane& p : c.planes)
    if (!p.tensor) return Error{"of " + p.name + " only a digest was recorded", 0, ""};
  for (const Plane& plane : input_planes(problem)) {
    if (c.find(plane.name) || said_by_keys(plane.name)) continue;
    const FillKind fill = problem.x.fill.kind;
    const bool drawn = plane.name == "x" && fill != FillKind::literal && fill != FillKind::pack;
    if (!drawn) return Error{"the pack holds no plane " + plane.name, 0, ""};
  }
  for (const Direction d : kDirections)  // hashed, and not by their places in the tensor
    if (const auto& q = problem.quantizer(d); q && q->scale_from != ScaleFrom::x)
      for (const Plane& plane : input_planes(problem))
        if (plane.name.find("given.block_amax") + 1 || plane.name.find("given.scale_inv") + 1)
          if (!c.find(plane.name)) return Error{"the pack holds no plane " + plane.name, 0, ""};
  return tiling;
}

Result<TiledJudgement> judge_in_tiles(const PackCase& c, Tiling& tiling, Subject& reference,
                                      const TiledOptions& options) {
  const size_t count = tiling.tiles.size();
  const size_t passes = tiling.needs_amax(Direction::row) || tiling.needs_amax(Direction::col) ? 2 : 1;
  const auto scanned = find_amaxes(c, tiling, reference, options);
  if (!scanned) return scanned.error();
  auto source = source_of(c, tiling, reference);
  if (!source) return source.error();
  Totals totals(tiling, source->out);
  size_t done = 0;
  bool told = false;
  if (*scanned == count) {
    const auto judged = for_tiles(
        c, tiling, options, (passes - 1) * count, passes * count,
        [&](const Tile& tile) { return judge_tile(*source, tile, options.acceptor); },
        [&](const Tile& tile, const json::Value& found) {
          totals.add(tile, found);
          if (told || !options.on_first) return;
          const TiledJudgement so_far = totals.judgement();
          told = so_far.judgement.cause.has_value();
          if (told) options.on_first(*so_far.judgement.cause);
        });
    if (!judged) return judged.error();
    done = *judged;
  }
  for (const Direction d : kDirections)
    if (tiling.needs_amax(d) && done)
      totals.give(plane_name(d, "amax"), d == Direction::row ? *tiling.row_amax : *tiling.col_amax);
  totals.judge_scalars(source->out);
  TiledJudgement out = totals.judgement();
  out.tiles = done;
  out.of = count;
  return out;
}

Result<TilePlanes> planes_of_tile(const PackCase& c, const Tiling& tiling, const Tile& tile,
                                  Subject& reference) {
  auto source = source_of(c, tiling, reference);
  if (!source) return source.error();
  TilePlanes out{tiling.problem_of(tile), {}, {}};
  auto inputs = source->inputs(out.problem, tile);
  if (!inputs) return inputs.error();
  out.inputs = std::move(*inputs);
  out.got = parts_of(source->out, tiling, tile, output_planes(out.problem));
  return out;
}

}  // namespace assay
