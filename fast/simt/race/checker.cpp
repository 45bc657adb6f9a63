#include "fast/simt/race/checker.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "fast/simt/race/race.h"
#include "fast/simt/race/source_lines.h"
#include "fast/simt/report.h"

namespace assay::simt::race {

namespace {

// Cells take 40 times the memory of their bytes. Cells of earlier grids are kept for the next up to the
// smaller limit.
constexpr size_t kPageOfCells = Shadow::kPage * sizeof(Cell);
constexpr size_t kKeptPages = (size_t{256} << 20) / kPageOfCells,
                 kMostPages = (size_t{2} << 30) / kPageOfCells;

// Accesses of one kind that matter to a byte: two, or one of each lane of a warp.
constexpr size_t kMostHeld = 4 * 32 + 2;

std::mutex grid_mutex;
constinit thread_local int unwatched = 0;

unsigned warp_of(const Access& a) { return a.thread / 32u; }

}  // namespace

constinit Checker* watching = nullptr;

// --- order ---------------------------------------------------------------------------------------

void Clocks::begin_block() { barrier(); }

void Clocks::warp_barrier(unsigned warp, uint32_t lanes) {
  ++now_;
  std::array<uint32_t, 32> seen{};
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(lanes >> lane & 1u)) continue;
    const auto& known = known_[warp * 32 + lane];
    for (unsigned i = 0; i < 32; ++i) seen[i] = std::max(seen[i], known[i]);
    seen[lane] = now_;
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(lanes >> lane & 1u)) continue;
    known_[warp * 32 + lane] = seen;
    own_[warp * 32 + lane] = now_;
  }
}

bool Checker::ordered(const Access& earlier, const Access& now) const {
  return earlier.block == now.block && clocks_.after(now.thread, earlier.thread, earlier.clock);
}

// --- grids and blocks ----------------------------------------------------------------------------

void Checker::begin_grid(const Grid& grid) {
  const uint64_t blocks = uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z;
  if (global_.pages() > kKeptPages) global_.forget();
  if (clocks_.nearly_spent() || block_ + blocks >= UINT32_MAX) {
    clocks_.reset();
    shared_.forget();
    global_.forget();
    block_ = 0;
  }
  const auto [window, bytes] = device_window();
  global_.cover(window, bytes);
  first_block_ = block_ + 1;
  findings_.clear();
  blocks_.clear();
  spent_ = false;
}

void Checker::begin_block(const std::byte* arena, size_t bytes) {
  shared_.cover(arena, bytes);
  ++block_;
  blocks_.push_back(current_block.index);
  clocks_.begin_block();
  arrays_.clear();
}

void Checker::end_block() {
  std::set<std::tuple<uint16_t, uint32_t, uint32_t>> seen;  // once for all bytes
  for (const auto& [p, reads] : unwritten_)
    for (const Access& a : reads)
      if (seen.emplace(a.thread, a.clock, a.place).second) {
        ++accesses_;
        found(What::uninitialised, p, a, {});
      }
  unwritten_.clear();
}

void Checker::shared_array(const std::byte* data, size_t bytes) {
  arrays_.push_back({data, bytes});
  shared_.clear(data, bytes);
}

bool Checker::in_array(const std::byte* p) const {
  for (const Range& a : arrays_)
    if (p >= a.data && p < a.data + a.bytes) return true;
  return false;
}

// --- accesses ------------------------------------------------------------------------------------

void Checker::access(const std::byte* p, size_t bytes, Kind kind, bool reads, const void* return_address) {
  const bool shared = shared_.holds(p);
  if ((!shared && !global_.holds(p)) || bytes == 0 || unwatched) return;
  ++accesses_;
  const Access now{block_,
                   clocks_.of(current->linear),
                   place_of(return_address),
                   static_cast<uint16_t>(current->linear),
                   static_cast<uint8_t>(std::min<size_t>(bytes, kManyBytes)),
                   kind};
  if (shared && !(in_array(p) && in_array(p + bytes - 1))) return found(What::outside, p, now, {});
  Shadow& shadow = shared ? shared_ : global_;
  const std::byte* const end = p + bytes;
  while (p < end) {
    Cell* cell = shadow.cell(p, shared ? SIZE_MAX : kMostPages);
    if (!cell) {
      spent_ = true;
      return;
    }
    const size_t left_in_page = Shadow::kPage - reinterpret_cast<uintptr_t>(p) % Shadow::kPage;
    for (const std::byte* const stop = p + std::min(left_in_page, static_cast<size_t>(end - p)); p < stop;
         ++p, ++cell)
      touch(*cell, p, now, shared, reads);
  }
}

// Whether every later access that conflicts with `earlier` conflicts with `now` too, so that `earlier` may be
// forgotten when `now` comes after it.
bool covers(Kind now, Kind earlier) {
  return now == Kind::write || now == earlier || earlier == Kind::atomic_read;
}

void Checker::touch(Cell& cell, const std::byte* p, const Access& now, bool shared, bool reads) {
  // The accesses to keep. Those of earlier grids and of earlier blocks' shared memory are ordered before
  // everything.
  Access kept[kMostHeld];
  size_t count = 0;
  bool written = false;
  auto look_at = [&](const Access& e) {
    if (e.block < first_block_) return;
    written |= writes(e.kind);
    const bool before = ordered(e, now);
    if (!before && conflict(e, now)) found(What::race, p, now, e);
    // A write that races has been reported, and stands for what it overwrites.
    if (covers(now.kind, e.kind) && (before || now.kind == Kind::write)) return;
    kept[count++] = e;
  };
  look_at(cell.held[0]);
  look_at(cell.held[1]);
  if (cell.more)
    for (const Access& e : *cell.more) look_at(e);
  if (shared && reads && !written) unwritten_[p].push_back(now);
  if (shared && writes(now.kind) && !unwritten_.empty())
    if (const auto read_before = unwritten_.find(p); read_before != unwritten_.end())
      std::erase_if(read_before->second,
                    [&](const Access& e) { return conflict(e, now) && !ordered(e, now); });

  // What is left of the same kind is unordered with `now`. A later access may be ordered after some of one
  // warp's lanes only, so that all count; but after no two warps of a block without its barrier, and after no
  // two blocks at all: then two suffice.
  const auto same_kind = [&](const Access& e) { return e.kind == now.kind; };
  const auto keep_two = [&](const Access& other) {
    const Access partner = other;
    count = static_cast<size_t>(std::remove_if(kept, kept + count, same_kind) - kept);
    kept[count++] = partner;
    kept[count++] = now;
  };
  const Access* const end = kept + count;
  const Access* const first = std::find_if(kept, kept + count, same_kind);
  const Access* const other_block =
      std::find_if(first, end, [&](const Access& e) { return same_kind(e) && e.block != now.block; });
  if (first == end) {
    kept[count++] = now;
  } else if (other_block != end) {
    keep_two(*other_block);
  } else {
    const Access* const other_warp =
        std::find_if(first, end, [&](const Access& e) { return same_kind(e) && warp_of(e) != warp_of(now); });
    if (other_warp != end) keep_two(*other_warp);
    else kept[count++] = now;
  }

  for (size_t i = 0; i < 2; ++i) cell.held[i] = i < count ? kept[i] : Access{};
  if (count > 2) {
    if (!cell.more) cell.more = new std::vector<Access>;
    cell.more->assign(kept + 2, kept + count);
  } else if (cell.more) {
    delete cell.more;
    cell.more = nullptr;
  }
}

// --- findings ------------------------------------------------------------------------------------

int Checker::distance(const Access& a, const Access& b) {
  return a.block != b.block ? 2 : warp_of(a) != warp_of(b) ? 1 : 0;
}

void Checker::found(What what, const std::byte* p, const Access& now, const Access& earlier) {
  Finding& f = findings_[{what, std::min(now.place, earlier.place), std::max(now.place, earlier.place)}];
  // The example is of the threads that are farthest apart: what mends it mends the others.
  if (f.count == 0 || (what == What::race && distance(earlier, now) > distance(f.one, f.other))) {
    f.one = earlier.block ? earlier : now;
    f.other = earlier.block ? now : Access{};
    f.memory = describe_worker_address(p);
    if (f.memory.empty()) f.memory = describe_device_address(p);
  }
  if (f.last_access == accesses_) return;  // another byte of the same
  f.last_access = accesses_;
  ++f.count;
}

std::string Checker::describe(const Grid& grid, const Access& a, const std::string& line) const {
  constexpr const char* kNames[] = {"read", "write", "atomic read", "atomic"};
  const Index3 extent = grid.threads;
  const Index3 thread{a.thread % extent.x, a.thread / extent.x % extent.y, a.thread / (extent.x * extent.y)};
  const char* const unit = a.bytes == 1 ? " byte" : a.bytes == kManyBytes ? " or more bytes" : " bytes";
  return "\n    " + std::string(kNames[static_cast<size_t>(a.kind)]) + " of " + std::to_string(a.bytes) +
         unit + " by block " + to_text(blocks_[a.block - first_block_]) + " thread " + to_text(thread) +
         " (warp " + std::to_string(warp_of(a)) + " lane " + std::to_string(a.thread % 32) + ") at " + line;
}

std::string Checker::findings(const Grid& grid) const {
  if (findings_.empty() && !spent_) return {};
  std::set<uint32_t> places;
  for (const auto& [key, f] : findings_) places.insert({f.one.place, f.other.place});
  const std::vector<uint32_t> unique(places.begin(), places.end());
  const std::map<uint32_t, std::string> lines = source_lines(unique);

  // One source line may be many places. Writes are named first, so that the text does not depend on who came
  // first.
  std::map<std::tuple<What, std::string, std::string>, Finding> merged;
  for (const auto& [key, f] : findings_) {
    const What what = std::get<0>(key);
    Finding g = f;
    auto rank = [&](const Access& a) { return std::tuple(!writes(a.kind), lines.at(a.place)); };
    if (what == What::race && rank(g.other) < rank(g.one)) std::swap(g.one, g.other);
    const auto [place, is_new] = merged.try_emplace(
        {what, lines.at(g.one.place), what == What::race ? lines.at(g.other.place) : ""}, g);
    if (is_new) continue;
    Finding& m = place->second;
    g.count += m.count;
    if (what != What::race || distance(g.one, g.other) <= distance(m.one, m.other)) m.count = g.count;
    else m = g;
  }

  constexpr const char* kWhat[] = {"data race", "uninitialised shared read",
                                   "access outside every shared array"};
  constexpr const char* kPlural[] = {"data races", "uninitialised shared reads",
                                     "accesses outside every shared array"};
  size_t counts[3] = {};
  for (const auto& [key, f] : merged) ++counts[static_cast<size_t>(std::get<0>(key))];
  std::string text = std::string("kernel '") + grid.name + "':";
  const char* separator = " ";
  for (size_t i = 0; i < 3; ++i)
    if (counts[i]) {
      text += separator + std::to_string(counts[i]) + " " + (counts[i] == 1 ? kWhat : kPlural)[i];
      separator = ", ";
    }
  constexpr int kShown = 6;
  int shown = 0;
  for (const auto& [key, f] : merged) {
    if (++shown > kShown) {
      text += "\n  and " + std::to_string(merged.size() - kShown) + " more";
      break;
    }
    const auto& [what, line, other_line] = key;
    text += std::string("\n  ") + kWhat[static_cast<size_t>(what)] + ": " + f.memory +
            describe(grid, f.one, line);
    if (what == What::race) {
      text += describe(grid, f.other, other_line) + "\n    ";
      constexpr const char* kMissing[] = {"no __syncwarp or barrier between these lanes",
                                          "no barrier of the block between them",
                                          "blocks of one grid are not ordered"};
      text += kMissing[distance(f.one, f.other)];
      if (atomic(f.one.kind) != atomic(f.other.kind)) text += ", and only one is atomic";
      if (f.count > 1) text += "; " + std::to_string(f.count) + " such pairs";
    } else if (f.count > 1) {
      text += "; " + std::to_string(f.count) + " such accesses";
    }
  }
  if (spent_)
    text += std::string(merged.empty() ? " " : "\n  ") + "device memory beyond the first " +
            std::to_string(kMostPages * Shadow::kPage >> 20) +
            " MB that the grid touches is not checked: take a smaller shape";
  return text;
}

Watch::Watch(const Grid& grid) : grid_(grid), one_grid_(grid_mutex) {
  if (!watching) watching = new Checker;  // never destroyed
  watching->begin_grid(grid);
}
Watch::~Watch() = default;
std::string Watch::findings() const { return watching->findings(grid_); }

Unwatched::Unwatched() { ++unwatched; }
Unwatched::~Unwatched() { --unwatched; }

void begin_block(const std::byte* arena, size_t bytes) { watching->begin_block(arena, bytes); }
void end_block() { watching->end_block(); }
void shared_array(const std::byte* data, size_t bytes) { watching->shared_array(data, bytes); }
void barrier() { watching->barrier(); }
void warp_barrier(unsigned warp, uint32_t lanes) { watching->warp_barrier(warp, lanes); }

}  // namespace assay::simt::race
