#include "compare/packs/accepted_tile.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/choices/dice.h"
#include "compare/judge/hints.h"
#include "compare/packs/block_planes.h"
#include "compare/packs/dump.h"
#include "compare/process/guarded_run.h"
#include "contract/planes.h"
#include "fixtures/inputs.h"

namespace assay {

namespace {

// The line with what the pack says beside it: a recorded scale or amax stands in the place of its key.
// Nothing: the pack holds an input of which the acceptor does not know.
std::optional<Problem> with_recorded_keys(Problem p, const PlaneViews& in) {
  for (const auto& [name, view] : in) {
    bool known = name == "x";
    for (const Direction d : kDirections) {
      std::optional<Quantizer>& q = p.quantizer(d);
      if (!q || !is_scalar(view.plane)) continue;
      const auto value = [&, &bytes = view.bytes] { return code_at(Encoding::f32, bytes, 0); };
      if (name == plane_name(d, "given.amax")) q->amax = value(), known = true;
      if (name == plane_name(d, "given.scale")) q->scale = value(), known = true;
      if (name == plane_name(d, "prior.amax")) q->prior_amax = value(), known = true;
    }
    if (!known) return {};
  }
  return p;
}

// N3.1: the largest magnitude of the tile that is no NaN, and of what the slot held.
F32Bits amax_with_prior(const DirectionPlanes& p, F32Bits prior) {
  const Encoding encoding = p.x->plane.encoding;
  const EncodingInfo& e = info(encoding);
  const uint32_t sign = 1u << (e.bits - 1);
  uint32_t most = 0;
  for (int64_t r = 0; r < p.tile.shape.rows; ++r) {
    const std::span<const std::byte> row(p.x_from({r, 0}).first, p.x->plane.bytes_of(p.tile.shape.cols));
    for (int64_t c = 0; c < p.tile.shape.cols; ++c) {
      const uint32_t code = code_at(encoding, row, c) & ~sign;
      if (code > most && code <= e.infinity) most = code;
    }
  }
  return std::max(prior, std::bit_cast<F32Bits>(static_cast<float>(value_of(encoding, most))));
}

// The planes of a direction. Nothing: they are not all there, or not compact. `absent`: none is there, so
// there is nothing to judge.
std::optional<DirectionPlanes> planes_of(const Problem& p, Direction d, const Tile& tile,
                                         const PlaneViews& in, const PlaneViews& out, bool& absent) {
  DirectionPlanes planes{d, p.quantizer(d)->format, tile};
  const auto view = [](const PlaneViews& views, const std::string& name) {
    const auto found = views.find(name);
    return found == views.end() ? nullptr : &found->second;
  };
  absent = std::none_of(out.begin(), out.end(), [&](const auto& named) {
    return named.first.starts_with(std::string(name_of(d)) + ".");
  });
  planes.x = view(in, "x");
  planes.data = view(out, plane_name(d, "data"));
  if (planes.has_block_scales()) planes.scales = view(out, plane_name(d, "scale_inv"));
  if (!planes.x || !planes.data || planes.has_block_scales() != (planes.scales != nullptr)) return {};
  for (const PlaneView* v : {planes.data, planes.scales})
    if (v && v->plane.layout != ScaleLayout::compact) return {};
  // FP4's codes as the line has them, two a byte, and not as a library may store them.
  if (planes.data->plane.packed != planes.is_fp4()) return {};
  return planes;
}

// A pseudo-random number of a seed.
uint64_t mixed(uint64_t seed) { return choices::Dice(seed).next(); }

std::pair<uint32_t, uint32_t> key(const BlockPlace& b) { return {b.row, b.col}; }
bool is_before(const BlockPlace& a, const BlockPlace& b) { return key(a) < key(b); }

// Adds one block of every kSampledBlocks, and leaves every block in the list once, in order.
void add_sample(const DirectionPlanes& p, std::vector<BlockPlace>& blocks) {
  const Shape s = p.grid();
  const uint64_t seed = mixed(mixed(static_cast<uint64_t>(p.tile.row)) ^ static_cast<uint64_t>(p.tile.col)) ^
                        (p.rows() ? 0 : 1);
  for (int64_t first = 0; first < s.count(); first += kSampledBlocks) {
    const int64_t width = std::min(kSampledBlocks, s.count() - first);
    const int64_t i = first + static_cast<int64_t>(mixed(seed + static_cast<uint64_t>(first)) %
                                                   static_cast<uint64_t>(width));
    blocks.push_back({static_cast<uint32_t>(i / s.cols), static_cast<uint32_t>(i % s.cols)});
  }
  std::sort(blocks.begin(), blocks.end(), is_before);
  const auto same = [](const BlockPlace& x, const BlockPlace& y) { return key(x) == key(y); };
  blocks.erase(std::unique(blocks.begin(), blocks.end(), same), blocks.end());
}

// The blocks that the reference is asked about, in order: every doubtful one where few of them differ, else
// the special ones and those that hold the first difference of a plane; and the sample. `doubtful` is in
// order.
std::vector<BlockPlace> blocks_to_refer(const DirectionPlanes& p,
                                        const std::vector<DoubtfulBlock>& doubtful) {
  const auto needs_reference = [](const DoubtfulBlock& b) { return b.special || (!b.scale && !b.differ); };
  const auto special = std::count_if(doubtful.begin(), doubtful.end(), needs_reference);
  const bool few = static_cast<int64_t>(doubtful.size()) - special <= p.grid().count() / kSampledBlocks;
  const DoubtfulBlock *scale = nullptr, *code = nullptr;
  std::vector<BlockPlace> out;
  for (const DoubtfulBlock& b : doubtful) {
    if (few || needs_reference(b)) {
      out.push_back(b);
      continue;
    }
    if (b.scale && (!scale || p.scale_place(b) < p.scale_place(*scale))) scale = &b;
    if (b.differ && (!code || p.code_place(b, b.first) < p.code_place(*code, code->first))) code = &b;
  }
  for (const DoubtfulBlock* b : {scale, code})
    if (b) out.push_back(*b);
  add_sample(p, out);
  return out;
}

// The line of these blocks alone, side by side: a tensor of n rows, or of n columns. A shorter block is
// filled up with zeros, which change neither its amax nor its other codes.
Problem problem_of_blocks(const Problem& tile, const DirectionPlanes& p, int64_t n) {
  Problem out = tile;
  out.quantizer(p.rows() ? Direction::col : Direction::row).reset();
  out.x.fill = {};
  out.x.fill.kind = FillKind::zeros;  // replaced
  out.x.shape = p.rows() ? Shape{n, p.length()} : Shape{p.length(), n};
  return out;
}

PlaneData gathered(const DirectionPlanes& p, const std::vector<BlockPlace>& blocks, const Plane& plane) {
  PlaneData x{plane, std::vector<std::byte>(plane.bytes())};
  const size_t width = plane.bytes_of(1);
  for (size_t n = 0; n < blocks.size(); ++n) {
    const StridedBytes source = p.x_from(p.origin(blocks[n]));
    const size_t length = static_cast<size_t>(p.length(blocks[n])),
                 step = static_cast<size_t>(p.length()) * width;
    if (p.rows()) std::memcpy(x.bytes.data() + n * step, source.first, length * width);
    else
      for (size_t i = 0; i < length; ++i)
        std::memcpy(x.bytes.data() + (i * blocks.size() + n) * width, source.first + i * source.stride,
                    width);
  }
  return x;
}

// What the reference made of some blocks of a direction, beside what is recorded there.
class ReferredBlocks {
 public:
  ReferredBlocks(const DirectionPlanes& p, std::vector<BlockPlace> blocks)
      : p_(p), blocks_(std::move(blocks)) {}

  const std::vector<BlockPlace>& blocks() const { return blocks_; }

  // Runs the reference, and notes what it makes of planes of one value. False: it cannot run on blocks alone.
  bool run(const Problem& tile, const PlaneViews& out, Subject& reference, AcceptedTile& accepted) {
    const Problem few = problem_of_blocks(tile, p_, static_cast<int64_t>(blocks_.size()));
    const std::vector<Plane> inputs = input_planes(few);
    const bool x_alone = std::all_of(inputs.begin(), inputs.end(), [](const Plane& plane) {
      return plane.name == "x" || said_by_keys(plane.name);
    });
    if (!x_alone || !reference.supports(few).yes) return false;
    std::vector<PlaneData> planes = *make_inputs(few, reference);
    for (PlaneData& plane : planes)
      if (plane.plane.name == "x") plane = gathered(p_, blocks_, plane.plane);
    Execution run = execute(reference, few, planes, Environment{});
    if (run.error || run.trespass) return false;
    for (const PlaneData& plane : run.planes)
      if (const auto whole = out.find(plane.plane.name); whole != out.end() && is_scalar(whole->second.plane))
        accepted.scalars[plane.plane.name] = code_at(plane.plane, plane.bytes, 0);
    planes_ = std::move(run.planes);
    data_ = find_plane(planes_, plane_name(p_.direction, "data"));
    if (p_.scales) scales_ = find_plane(planes_, plane_name(p_.direction, "scale_inv"));
    return true;
  }

  // How the n-th block differs, as an acceptor says it.
  DoubtfulBlock seen(size_t n) const {
    DoubtfulBlock out{blocks_[n], false, false, 0, 0};
    out.scale = scales_ && scale(n) != recorded_scale(n);
    const Codes made = codes(n), there = recorded_codes(n);
    const int length = static_cast<int>(p_.length(blocks_[n]));
    const size_t bytes = data_->plane.bytes_of(length + (data_->plane.packed ? length % 2 : 0));  // N6.8
    if (p_.together() && std::memcmp(there.first, made.first, bytes) == 0) return out;
    for (int i = length; i-- > 0;)
      if (made[i] != there[i]) ++out.differ, out.first = i;
    return out;
  }

  // The codes of the n-th block, from its first on: the reference's, and the recorded ones.
  struct Codes {
    const std::byte* first;
    size_t step;
    bool packed;  // two in a byte (N6.8)
    uint32_t operator[](int i) const {
      if (packed) return std::to_integer<uint32_t>(first[i / 2]) >> i % 2 * 4 & 15;
      return std::to_integer<uint32_t>(first[static_cast<size_t>(i) * step]);
    }
  };
  Codes codes(size_t n) const {
    const size_t row = data_->plane.bytes_of(data_->plane.padded.cols);
    if (p_.together()) return {data_->bytes.data() + n * row, 1, data_->plane.packed};
    return {data_->bytes.data() + n, row, false};
  }
  Codes recorded_codes(size_t n) const {
    const StridedBytes there = p_.data_from(p_.origin(blocks_[n]));
    return {there.first, p_.together() ? 1 : there.stride, data_->plane.packed};
  }
  uint32_t scale(size_t n) const {
    const bool down = p_.is_fp4() || (p_.rows() && p_.format == FormatId::mxfp8);
    return code_at(scales_->plane.encoding, scales_->bytes,
                   static_cast<int64_t>(n) * (down ? scales_->plane.padded.cols : 1));
  }
  uint32_t recorded_scale(size_t n) const {
    const Encoding e = scales_->plane.encoding;
    return code_at(e, std::span(p_.scale_from(blocks_[n]).first, static_cast<size_t>(info(e).bytes())), 0);
  }

  // What the pattern of the differing scales, or codes, of these blocks suggests. No rule asks for more than
  // a few differences of a pair of codes, so that many are no more work than a few.
  std::string hint(bool of_scales) const {
    constexpr uint8_t kFew = 8;
    std::vector<uint8_t> times(size_t{1} << 16);
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    for (size_t n = 0; n < blocks_.size(); ++n) {
      if (of_scales) {
        if (scale(n) != recorded_scale(n)) pairs.emplace_back(recorded_scale(n), scale(n));
        continue;
      }
      const Codes made = codes(n), there = recorded_codes(n);
      const int length = static_cast<int>(p_.length(blocks_[n]));
      for (int i = 0; i < length; ++i)
        if (uint8_t& seen = times[there[i] << 8 | made[i]]; made[i] != there[i] && seen < kFew)
          ++seen, pairs.emplace_back(there[i], made[i]);
    }
    Plane plane = (of_scales ? *scales_ : *data_).plane;
    plane.packed = false;
    plane.logical = plane.padded = {1, static_cast<int64_t>(pairs.size())};
    PlaneData got{plane, std::vector<std::byte>(plane.bytes())}, want = got;
    Compared compared{nullptr, &got, &want, {}, {}, {}};
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      set_code(plane, got.bytes, at, pairs[i].first);
      set_code(plane, want.bytes, at, pairs[i].second);
      compared.differing.push_back(at);
    }
    return pairs.empty() ? "" : hint_of(compared, true);
  }

 private:
  const DirectionPlanes& p_;
  std::vector<BlockPlace> blocks_;
  std::vector<PlaneData> planes_;
  const PlaneData *data_ = nullptr, *scales_ = nullptr;  // scales: null where the tensor has one
};

// The planes of a direction as they differ, put together from blocks.
struct DirectionDifferences {
  PlaneDifference scales, codes;
  int64_t counted = 0;  // blocks that the reference did not see

  // A block of which only the numbers are known ...
  void add(const DoubtfulBlock& b) {
    scales.differ += b.scale;
    codes.differ += b.differ;
    if (b.scale) codes.explained += b.differ;
  }
  // ... and the n-th that the reference saw.
  void add(const DirectionPlanes& p, const ReferredBlocks& referred, size_t n, const DoubtfulBlock& b) {
    add(b);
    const auto note = [](PlaneDifference& d, std::pair<int64_t, int64_t> at, uint32_t got, uint32_t want) {
      if (d.place.row >= 0 && std::pair(d.place.row, d.place.col) <= at) return;
      d.place = {false, at.first, at.second};
      d.got = got;
      d.want = want;
    };
    if (b.scale) note(scales, p.scale_place(b), referred.recorded_scale(n), referred.scale(n));
    if (b.differ)
      note(codes, p.code_place(b, b.first), referred.recorded_codes(n)[b.first], referred.codes(n)[b.first]);
  }
};

// What the blocks of a direction come to. Nothing: the acceptor says of a block another thing than the
// reference.
std::optional<DirectionDifferences> added_up(const DirectionPlanes& p, const ReferredBlocks& referred,
                                             const std::vector<DoubtfulBlock>& doubtful) {
  DirectionDifferences out;
  out.scales.place.row = out.codes.place.row = -1;
  size_t n = 0;
  const auto refer = [&](const DoubtfulBlock& said) {
    const DoubtfulBlock seen = referred.seen(n);
    const bool same_first = p.rows() || seen.differ == 0 || seen.first == said.first;
    if (!said.special && (seen.scale != said.scale || seen.differ != said.differ || !same_first))
      return false;
    out.add(p, referred, n++, seen);
    return true;
  };
  const std::vector<BlockPlace>& blocks = referred.blocks();
  for (const DoubtfulBlock& b : doubtful) {
    for (; n < blocks.size() && is_before(blocks[n], b);)
      if (!refer(DoubtfulBlock{blocks[n], false, false, 0, 0})) return {};
    const bool asked = n < blocks.size() && key(blocks[n]) == key(b);
    if (!asked) out.add(b), ++out.counted;
    else if (!refer(b)) return {};
  }
  while (n < blocks.size())
    if (!refer(DoubtfulBlock{blocks[n], false, false, 0, 0})) return {};
  return out;
}

// Judges a direction, adding to `accepted`. False: the reference has to judge the tile.
bool accept_direction(const Problem& tile, const DirectionPlanes& p, const PlaneViews& out,
                      Acceptor& acceptor, Subject& reference, AcceptedTile& accepted) {
  const int64_t count = p.grid().count();
  std::vector<DoubtfulBlock> doubtful =
      acceptor.unknown(tile, p.direction, p.x_from({}), p.data_from({}), p.scale_from({}));
  if (!std::is_sorted(doubtful.begin(), doubtful.end(), is_before))
    std::sort(doubtful.begin(), doubtful.end(), is_before);
  ReferredBlocks referred(p, blocks_to_refer(p, doubtful));
  const auto asked = static_cast<int64_t>(referred.blocks().size());
  constexpr int64_t kFew = 4;  // one block in so many is worth a run of its own
  if (count == 0 || asked > count / kFew + count / kSampledBlocks + 1) return false;
  if (!referred.run(tile, out, reference, accepted)) return false;
  auto found = added_up(p, referred, doubtful);
  if (!found) return false;
  accepted.blocks.accepted += count - asked - found->counted;
  accepted.blocks.referred += asked;
  accepted.blocks.counted += found->counted;
  const bool first = accepted.differences.empty();
  for (const auto& [view, difference] :
       {std::pair(p.scales, &found->scales), std::pair(p.data, &found->codes)})
    if (difference->differ) {
      difference->plane = view->plane;
      accepted.differences.push_back(*difference);
    }
  if (first && !accepted.differences.empty()) accepted.hint = referred.hint(found->scales.differ > 0);
  return true;
}

}  // namespace

Result<PlaneViews> views_of(const PackCase& c, const std::vector<Plane>& planes) {
  PlaneViews out;
  for (const Plane& plane : planes) {
    const PackPlane* recorded = c.find(plane.name);
    if (!recorded || !recorded->tensor) continue;
    auto view = dump_view(*recorded->tensor, plane);
    if (!view) return Error{plane.name + ": " + view.error().text(), 0, ""};
    out.emplace(plane.name, std::move(*view));
  }
  return out;
}

std::string judges_text(const JudgedBlocks& b, const Acceptor& acceptor) {
  const int64_t all = b.accepted + b.referred + b.counted;
  std::string out = fmt::format("by simd {}: {} of {} blocks; by the reference: {}", acceptor.target(),
                                b.accepted, all, b.referred);
  if (b.counted)
    out += fmt::format(", which found differences; what differs in the other {} was counted by simd {} alone",
                       b.counted, acceptor.target());
  return out;
}

int64_t blocks_of(const Problem& tile, const PlaneViews& out, const Acceptor& acceptor) {
  if (!acceptor.accepts(tile).yes) return 0;
  int64_t count = 0;
  for (const Direction d : kDirections)
    if (tile.quantizer(d) && out.contains(plane_name(d, "data")))
      count += DirectionPlanes{d, tile.quantizer(d)->format, {0, 0, tile.x.shape}}.grid().count();
  return count;
}

std::optional<AcceptedTile> accept_tile(const Problem& line, const Tile& place, const PlaneViews& in,
                                        const PlaneViews& out, Acceptor& acceptor, Subject& reference) {
  const std::optional<Problem> recorded = with_recorded_keys(line, in);
  if (!recorded || !acceptor.accepts(*recorded).yes) return {};
  const Problem& tile = *recorded;
  AcceptedTile accepted;
  for (const Direction d : kDirections) {
    if (!tile.quantizer(d)) continue;
    bool absent = false;
    const auto planes = planes_of(tile, d, place, in, out, absent);
    if (absent) continue;
    if (!planes || !accept_direction(tile, *planes, out, acceptor, reference, accepted)) return {};
    const auto amax = accepted.scalars.find(plane_name(d, "amax"));
    if (tile.quantizer(d)->format == FormatId::fp8_delayed && amax != accepted.scalars.end())
      amax->second =
          amax_with_prior(*planes, tile.quantizer(d)->prior_amax);  // the reference saw a few blocks
  }
  return accepted;
}

}  // namespace assay
