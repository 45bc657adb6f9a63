#include "compare/packs/accepted_tile.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/packs/dump.h"
#include "compare/process/guarded_run.h"
#include "contract/planes.h"
#include "fixtures/inputs.h"

namespace assay {

namespace {

// From an element of a recorded plane on.
StridedBytes from(const PlaneView& view, int64_t row, int64_t col) {
  const size_t stride = view.plane.bytes_of(view.plane.padded.cols);
  return {view.bytes.data() + static_cast<size_t>(row) * stride + view.plane.bytes_of(col), stride};
}

// Of one direction: the planes that the pack holds, and how the tile's blocks lie in them.
struct DirectionPlanes {
  Direction direction;
  FormatId format;
  Tile tile;
  const PlaneView *x = nullptr, *data = nullptr,
                  *scales = nullptr;  // null: the tensor has one scale, or nothing is there

  bool rows() const { return direction == Direction::row; }
  bool has_block_scales() const { return format == FormatId::mxfp8 || format == FormatId::fp8_block; }
  bool transposed() const { return !rows() && format != FormatId::mxfp8; }  // N6.1
  int64_t length() const {                                                  // of a block
    if (format == FormatId::fp8_block) return length_of(Block::b1x128);
    return format == FormatId::mxfp8 ? length_of(Block::b1x32) : kAcceptedPiece;
  }
  Shape grid() const {
    const Shape s = tile.shape;
    return rows() ? Shape{s.rows, ceil_div(s.cols, length())} : Shape{ceil_div(s.rows, length()), s.cols};
  }
  // The elements of a block, and where its first one stands in the tile.
  Shape origin(const BlockPlace& b) const {
    return rows() ? Shape{b.row, b.col * length()} : Shape{b.row * length(), b.col};
  }
  int64_t length(const BlockPlace& b) const {
    const Shape at = origin(b);
    return std::min(length(), rows() ? tile.shape.cols - at.cols : tile.shape.rows - at.rows);
  }
  StridedBytes x_from(Shape at) const { return from(*x, tile.row + at.rows, tile.col + at.cols); }
  StridedBytes data_from(Shape at) const {
    return transposed() ? from(*data, tile.col + at.cols, tile.row + at.rows)
                        : from(*data, tile.row + at.rows, tile.col + at.cols);
  }
  // N6.2, N9.4: scales of 1x128 blocks along rows are stored block by block.
  StridedBytes scale_from(const BlockPlace& b) const {
    if (!scales) return {};
    const int64_t row = (rows() ? tile.row : tile.row / length()) + b.row,
                  col = (rows() ? tile.col / length() : tile.col) + b.col;
    return rows() && format == FormatId::fp8_block ? from(*scales, col, row) : from(*scales, row, col);
  }
};

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
    if (v && (v->plane.layout != ScaleLayout::compact || v->plane.packed)) return {};
  return planes;
}

// Pseudo-random numbers of a seed: SplitMix64.
uint64_t mixed(uint64_t seed) {
  uint64_t z = seed + 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

// Adds one block of every kSampledBlocks, and leaves every block in the list once.
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
  const auto key = [](const BlockPlace& b) { return std::pair(b.row, b.col); };
  std::sort(blocks.begin(), blocks.end(),
            [&](const BlockPlace& a, const BlockPlace& b) { return key(a) < key(b); });
  const auto same = [&](const BlockPlace& a, const BlockPlace& b) { return key(a) == key(b); };
  blocks.erase(std::unique(blocks.begin(), blocks.end(), same), blocks.end());
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

// Whether the recorded blocks hold what the reference made of them. `scales` may be null.
bool as_recorded(const DirectionPlanes& p, const std::vector<BlockPlace>& blocks, const PlaneData& data,
                 const PlaneData* scales) {
  const bool together = p.rows() || p.transposed();  // the codes of a block
  const auto step = static_cast<size_t>(data.plane.padded.cols);
  for (size_t n = 0; n < blocks.size(); ++n) {
    if (scales) {
      const bool down = p.rows() && p.format == FormatId::mxfp8;
      const size_t width = scales->plane.bytes_of(1),
                   at = (down ? n * static_cast<size_t>(scales->plane.padded.cols) : n) * width;
      if (std::memcmp(p.scale_from(blocks[n]).first, scales->bytes.data() + at, width) != 0) return false;
    }
    const StridedBytes there = p.data_from(p.origin(blocks[n]));
    const size_t length = static_cast<size_t>(p.length(blocks[n]));
    if (together) {
      if (std::memcmp(there.first, data.bytes.data() + n * step, length) != 0) return false;
      continue;
    }
    for (size_t i = 0; i < length; ++i)
      if (there.first[i * there.stride] != data.bytes[i * step + n]) return false;
  }
  return true;
}

bool reference_agrees(const Problem& tile, const DirectionPlanes& p, const std::vector<BlockPlace>& blocks,
                      const PlaneViews& out, Subject& reference, AcceptedTile& accepted) {
  const Problem few = problem_of_blocks(tile, p, static_cast<int64_t>(blocks.size()));
  const std::vector<Plane> inputs = input_planes(few);
  const bool x_alone = std::all_of(inputs.begin(), inputs.end(), [](const Plane& plane) {
    return plane.name == "x" || said_by_keys(plane.name);
  });
  if (!x_alone || !reference.supports(few).yes) return false;
  std::vector<PlaneData> planes = *make_inputs(few, reference);
  for (PlaneData& plane : planes)
    if (plane.plane.name == "x") plane = gathered(p, blocks, plane.plane);
  const Execution run = execute(reference, few, planes, Environment{});
  if (run.error || run.trespass) return false;
  for (const PlaneData& plane : run.planes)
    if (const auto whole = out.find(plane.plane.name); whole != out.end() && is_scalar(whole->second.plane))
      accepted.scalars[plane.plane.name] = code_at(plane.plane, plane.bytes, 0);
  return as_recorded(p, blocks, *find_plane(run.planes, plane_name(p.direction, "data")),
                     p.scales ? find_plane(run.planes, plane_name(p.direction, "scale_inv")) : nullptr);
}

// Judges a direction, adding to `accepted`. False: it is not known to be right.
bool accept_direction(const Problem& tile, const DirectionPlanes& p, const PlaneViews& out,
                      Acceptor& acceptor, Subject& reference, AcceptedTile& accepted) {
  const int64_t count = p.grid().count();
  std::vector<BlockPlace> blocks =
      acceptor.unknown(tile, p.direction, p.x_from({}), p.data_from({}), p.scale_from({}));
  constexpr int64_t kFew = 4;  // one doubtful block in so many is worth a run of its own
  if (count == 0 || static_cast<int64_t>(blocks.size()) > count / kFew) return false;
  add_sample(p, blocks);
  if (!reference_agrees(tile, p, blocks, out, reference, accepted)) return false;
  const auto referred = static_cast<int64_t>(blocks.size());
  accepted.blocks.accepted += count - referred;
  accepted.blocks.referred += referred;
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
  return fmt::format("by simd {}: {} of {} blocks; by the reference: {}", acceptor.target(), b.accepted,
                     b.accepted + b.referred, b.referred);
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
