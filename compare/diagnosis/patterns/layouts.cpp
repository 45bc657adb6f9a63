#include "compare/diagnosis/patterns/layouts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <unordered_map>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"

namespace assay {

namespace {

using std::string;

// One digit of an address: o or k, divided, and its remainder (0: all that is left). o counts what a layout's tiles have 128 of, k what they have 4 of: rows and columns of most
// planes, columns and rows of scales that run down (N6.3).
struct Digit {
  char axis;
  int64_t divisor = 1, modulus = 0;
};

// Where the element (o, k) stands: its digits, the slowest first.
struct Order {
  const char *name, *description;
  std::vector<Digit> digits;

  // Nothing where the order's tiles reach beyond its own extent; the caller checks the plane's.
  // `cut`: digits stop where the extent does, as where a tile is reshaped that is not filled up.
  int64_t at(int64_t o, int64_t k, int64_t outer, int64_t along, bool cut = false) const {
    int64_t address = 0;
    for (const Digit& d : digits) {
      const int64_t v = d.axis == 'o' ? o : k, extent = d.axis == 'o' ? outer : along;
      const int64_t all = ceil_div(extent, d.divisor), radix = !d.modulus ? all : cut ? std::min(d.modulus, all) : d.modulus, digit = v / d.divisor;
      address = address * radix + (d.modulus ? digit % d.modulus : digit);
    }
    return address;
  }
};

// Layouts that are met in other libraries, and slips of them.
const std::vector<Order>& orders() {
  static const std::vector<Order> kOrders = {
      {"row_major", "rows one after the other", {{'o'}, {'k'}}},
      {"column_major", "transposed: columns one after the other", {{'k'}, {'o'}}},
      {"tiles_128x4", "the tensor-core tile order of N6.3", {{'o', 128}, {'k', 4}, {'o', 1, 32}, {'o', 32, 4}, {'k', 1, 4}}},
      {"tiles_128x4_down", "tensor-core tiles, but tiles down before tiles along", {{'k', 4}, {'o', 128}, {'o', 1, 32}, {'o', 32, 4}, {'k', 1, 4}}},
      {"tiles_128x4_rows", "tiles of 128x4 with their rows in order", {{'o', 128}, {'k', 4}, {'o', 1, 128}, {'k', 1, 4}}},
      {"tiles_128x4_reshaped", "tensor-core tiles whose 128 rows were taken as 32x4 instead of 4x32", {{'o', 128}, {'k', 4}, {'o', 1, 4}, {'o', 4, 32}, {'k', 1, 4}}},
      {"tiles_128x4_words", "tensor-core tiles with the four scales of a word transposed", {{'o', 128}, {'k', 4}, {'o', 1, 32}, {'k', 1, 4}, {'o', 32, 4}}},
      {"tiles_128_whole", "tensor-core tiles as wide as a row of scales, not 4", {{'o', 128}, {'o', 1, 32}, {'o', 32, 4}, {'k'}}},
      {"tiles_32x4", "tiles of 32x4 with their rows in order", {{'o', 32}, {'k', 4}, {'o', 1, 32}, {'k', 1, 4}}},
      {"tiles_8x4", "tiles of 8x4 with their rows in order", {{'o', 8}, {'k', 4}, {'o', 1, 8}, {'k', 1, 4}}},
      {"words_along", "words of four along the contracted dimension, the words transposed (packed UE8M0 of DeepGEMM)", {{'k', 4}, {'o'}, {'k', 1, 4}}},
      {"words_down", "words of four rows", {{'o', 4}, {'k'}, {'o', 1, 4}}},
      {"blocks_16", "blocks of 16 columns one after the other", {{'k', 16}, {'o'}, {'k', 1, 16}}},
      {"blocks_32", "blocks of 32 columns one after the other", {{'k', 32}, {'o'}, {'k', 1, 32}}},
      {"blocks_64", "blocks of 64 columns one after the other", {{'k', 64}, {'o'}, {'k', 1, 64}}},
      {"blocks_128", "blocks of 128 columns one after the other", {{'k', 128}, {'o'}, {'k', 1, 128}}},
      {"tiles_16x16", "tiles of 16x16 one after the other", {{'o', 16}, {'k', 16}, {'o', 1, 16}, {'k', 1, 16}}},
      {"tiles_32x32", "tiles of 32x32 one after the other", {{'o', 32}, {'k', 32}, {'o', 1, 32}, {'k', 1, 32}}},
      {"tiles_64x64", "tiles of 64x64 one after the other", {{'o', 64}, {'k', 64}, {'o', 1, 64}, {'k', 1, 64}}},
      {"tiles_128x128", "tiles of 128x128 one after the other", {{'o', 128}, {'k', 128}, {'o', 1, 128}, {'k', 1, 128}}},
      {"tiles_128x128_down", "tiles of 128x128 one after the other, down before along", {{'k', 128}, {'o', 128}, {'o', 1, 128}, {'k', 1, 128}}},
      {"transposed_16x16", "each tile of 16x16 transposed where it stands", {{'o', 16}, {'k', 1, 16}, {'k', 16}, {'o', 1, 16}}},
      {"transposed_32x32", "each tile of 32x32 transposed where it stands", {{'o', 32}, {'k', 1, 32}, {'k', 32}, {'o', 1, 32}}},
      {"transposed_64x64", "each tile of 64x64 transposed where it stands", {{'o', 64}, {'k', 1, 64}, {'k', 64}, {'o', 1, 64}}},
      {"transposed_128x128", "each tile of 128x128 transposed where it stands", {{'o', 128}, {'k', 1, 128}, {'k', 128}, {'o', 1, 128}}},
  };
  return kOrders;
}

// A plane's elements by address, and what addresses mean.
class Search {
 public:
  Search(const Plane& plane, std::span<const std::byte> got, std::span<const std::byte> want) : plane_(plane), n_(plane.padded.count()) {
    by_columns_ = plane.layout == ScaleLayout::gemm && plane.tiles_by_columns();
    for (auto [codes, bytes] : {std::pair(&got_, got), std::pair(&want_, want)}) {
      codes->resize(static_cast<size_t>(n_));
      for (int64_t i = 0; i < n_; ++i) (*codes)[static_cast<size_t>(i)] = code_at(plane, bytes, i);
    }
    measure();
  }

  // One layout by its name, of a plane without codes.
  Search(const Plane& plane, string name) : plane_(plane), n_(plane.padded.count()), wanted_(std::move(name)) { by_columns_ = plane.layout == ScaleLayout::gemm && plane.tiles_by_columns(); }
  std::optional<LayoutFit> named() {
    constexpr std::string_view kBits = "address_bits=";
    if (wanted_.starts_with(kBits)) {
      bits_named(wanted_.substr(kBits.size()));
    } else if (plane_.logical.count() > 0) {
      known_orders();
      moved_elements();
    }
    return fits_.empty() ? std::nullopt : std::optional(std::move(fits_.front()));
  }

  // Of some names, those that leave nothing; these codes are too few for chance to be told from a cause by shares.
  std::vector<LayoutFit> exact() {
    static constexpr const char* kNames[] = {"column_major", "row_major", "tiles_128x4", "tiles_128x4_across", "tiles_128x4_down", "tiles_128x4_rows", "tiles_128x4_reshaped", "tiles_128x4_words", "swizzled_twice", "words_along",
                                             "words_down", "rows_reversed", "columns_reversed", "rows_swapped_1", "columns_swapped_1", "row_offset_1", "row_offset_-1", "column_offset_1", "column_offset_-1"};
    if (same_ == logical_) return {};
    strict_ = true;
    for (const string name : kNames)
      for (const char* form : {"", "_unpadded", "_inverse"}) {
        wanted_ = name + form;
        known_orders();
        moved_elements();
      }
    return std::move(fits_);
  }

  std::vector<LayoutFit> run() {
    if (same_ == logical_ || (1 - chance_) * static_cast<double>(logical_) < 24) return {};   // equal, or nearly constant
    known_orders();
    moved_elements();
    if (!any_exact()) address_bits();
    if (!any_exact()) runs();
    std::stable_sort(fits_.begin(), fits_.end(), [](const LayoutFit& a, const LayoutFit& b) { return a.exact != b.exact ? a.exact : a.share > b.share; });
    if (fits_.size() > 5) fits_.resize(5);
    return std::move(fits_);
  }

 private:
  int64_t outer(Shape s) const { return by_columns_ ? s.cols : s.rows; }
  int64_t along(Shape s) const { return by_columns_ ? s.rows : s.cols; }
  int64_t right_place(int64_t o, int64_t k) const { return by_columns_ ? index_of(plane_, k, o) : index_of(plane_, o, k); }
  bool equal(int64_t got, int64_t want) const { return got_[static_cast<size_t>(got)] == want_[static_cast<size_t>(want)]; }
  bool any_exact() const {
    return std::any_of(fits_.begin(), fits_.end(), [](const LayoutFit& f) { return f.exact; });
  }

  // How many logical elements there are and agree as they stand, and how often two places hold the same code by chance.
  void measure() {
    std::unordered_map<uint32_t, int64_t> count;
    int64_t near = 0;
    meant_.assign(static_cast<size_t>(n_), false);
    for (int64_t r = 0; r < plane_.logical.rows; ++r)
      for (int64_t c = 0; c < plane_.logical.cols; ++c) {
        const int64_t i = index_of(plane_, r, c);
        ++logical_;
        meant_[static_cast<size_t>(i)] = true;
        same_ += equal(i, i);
        near += equal(i, i) || codes_apart(plane_.encoding, got_[static_cast<size_t>(i)], want_[static_cast<size_t>(i)]).value_or(2) <= 1;
        ++count[want_[static_cast<size_t>(i)]];
      }
    double squares = 0;
    for (const auto& [code, times] : count) squares += static_cast<double>(times) * static_cast<double>(times);
    chance_ = logical_ ? squares / (static_cast<double>(logical_) * static_cast<double>(logical_)) : 1;
    const double stands = logical_ ? static_cast<double>(same_) / static_cast<double>(logical_) : 1;
    worth_ = std::max(chance_ + (1 - chance_) / 2, stands + (1 - stands) / 2);
    // Where most codes are right or nearly so as they stand, it is values that are wrong: smooth data fit shifted copies of themselves.
    if (near * 2 > logical_) worth_ = std::max(worth_, 0.85);
  }

  // Takes a map from addresses of got to those of want where it explains enough. Places that the map does not reach are nobody's.
  void take(string name, string description, std::vector<int32_t> source) {
    int64_t mapped = 0, agree = 0, moved = 0;
    for (int64_t i = 0; i < n_; ++i) {
      const int32_t from = source[static_cast<size_t>(i)];
      if (from < 0 || !meant_[static_cast<size_t>(from)]) continue;
      ++mapped;
      moved += from != i;
      agree += equal(i, from);
    }
    if (mapped * 10 < logical_ * 9 || moved == 0) return;
    const double share = static_cast<double>(agree) / static_cast<double>(mapped);
    if (share < worth_) return;
    for (const LayoutFit& f : fits_)
      if (f.source == source) return;
    fits_.push_back({std::move(name), std::move(description), share, agree == mapped && mapped >= logical_, true, std::move(source)});
  }

  // The same where only what makes every byte counts: places that nothing is put in hold 0.
  void take_exact(string name, string description, std::vector<int32_t> source) {
    int64_t moved = 0;
    for (int64_t i = 0; i < n_; ++i) {
      if (!meant_[static_cast<size_t>(i)]) continue;
      const int32_t from = source[static_cast<size_t>(i)];
      if (from >= 0 ? !equal(i, from) : got_[static_cast<size_t>(i)] != 0) return;
      moved += !equal(i, i);
    }
    if (moved >= 4 && std::none_of(fits_.begin(), fits_.end(), [&](const LayoutFit& f) { return f.source == source; })) fits_.push_back({std::move(name), std::move(description), 1, true, true, std::move(source)});
  }

  // Whether a map of logical elements is worth the whole look: got's address of the element at (o, k), -1 for nowhere.
  template <class Map>
  void try_map(const string& name, const string& description, Shape extent, Map map) {
    if (!wanted_.empty() && name != wanted_) return;
    const int64_t rows = outer(extent), cols = along(extent), samples = wanted_.empty() || strict_ ? std::min<int64_t>(rows * cols, 2048) : 0;
    int64_t looked = 0, agree = 0;
    for (int64_t n = 0; n < samples; ++n) {
      const int64_t i = samples < 2048 ? n : static_cast<int64_t>(mixed(static_cast<uint64_t>(n)) % static_cast<uint64_t>(rows * cols));
      const auto [to, from] = map(i / cols, i % cols);
      if (to < 0 || to >= n_ || from < 0 || from >= n_) continue;
      ++looked;
      agree += equal(to, from);
      if (strict_ && meant_[static_cast<size_t>(to)] && !equal(to, from)) return;
    }
    if (wanted_.empty() && (looked < 16 || static_cast<double>(agree) < (worth_ - 0.1) * static_cast<double>(looked))) return;
    std::vector<int32_t> source(static_cast<size_t>(n_), -1);
    for (int64_t o = 0; o < rows; ++o)
      for (int64_t k = 0; k < cols; ++k) {
        const auto [to, from] = map(o, k);
        if (to >= 0 && to < n_ && from >= 0 && from < n_) source[static_cast<size_t>(to)] = static_cast<int32_t>(from);
      }
    if (strict_) take_exact(name, description, std::move(source));
    else if (wanted_.empty()) take(name, description, std::move(source));
    else if (fits_.empty()) fits_.push_back({name, description, 0, false, true, std::move(source)});
  }

  void known_orders() {
    using Pair = std::pair<int64_t, int64_t>;
    const bool tiled = plane_.layout == ScaleLayout::gemm;
    for (const Order& order : orders()) {
      const string name = order.name;
      for (const Shape extent : {plane_.padded, plane_.logical}) {
        const int64_t rows = outer(extent), cols = along(extent);
        const bool bare = !(extent == plane_.padded);
        auto place = [&](int64_t o, int64_t k) { return order.at(o, k, rows, cols); };
        const string what = bare ? fmt::format("{}, without padding", order.description) : string(order.description);
        try_map(bare ? name + "_unpadded" : name, what, plane_.logical, [&](int64_t o, int64_t k) { return Pair(place(o, k), right_place(o, k)); });
        if (bare && tiled && name == "tiles_128x4" && rows < 128)
          try_map(name + "_cut", "tensor-core tiles of as many rows as there are, not padded to 128", plane_.logical, [&](int64_t o, int64_t k) { return Pair(order.at(o, k, rows, cols, true), right_place(o, k)); });
        // Of planes whose contracted dimension runs down: the order's rows are the plane's columns.
        if (!by_columns_ && name.starts_with("tiles_"))
          try_map(name + (bare ? "_across_unpadded" : "_across"), what + ", its rows being columns", plane_.logical, [&](int64_t o, int64_t k) { return Pair(order.at(k, o, cols, rows), right_place(o, k)); });
        if (bare || name == "row_major") continue;
        try_map(name + "_inverse", fmt::format("the inverse of: {}", order.description), plane_.padded, [&](int64_t o, int64_t k) { return Pair(right_place(o, k), place(o, k)); });
        // Rearranged once more than it should: the right bytes taken for rows one after the other.
        if (tiled)
          try_map(name == "tiles_128x4" ? "swizzled_twice" : name + "_of_swizzled", name == "tiles_128x4" ? "swizzled twice" : fmt::format("swizzled, and then: {}", order.description), plane_.padded,
                  [&](int64_t o, int64_t k) { return Pair(place(o, k), o * cols + k); });
      }
    }
    // Rows of another pitch.
    if (!tiled)
      for (const int64_t multiple : {4, 8, 16, 32, 64, 128, 256}) {
        const int64_t pitch = round_up(plane_.logical.cols, multiple);
        if (pitch == plane_.padded.cols || pitch == plane_.logical.cols) continue;
        try_map(fmt::format("pitch_{}", pitch), fmt::format("rows {} elements apart instead of {}", pitch, plane_.padded.cols), plane_.logical,
                [&](int64_t o, int64_t k) { return Pair(o * pitch + k, right_place(o, k)); });
      }
  }

  // Elements that have changed places by a rule that looks at one coordinate or the address alone.
  void moved_elements() {
    using Pair = std::pair<int64_t, int64_t>;
    const Shape s = plane_.logical;
    const int64_t rows = outer(s), cols = along(s);
    auto flat = [&](const string& name, const string& text, auto from) {
      const int64_t width = along(plane_.padded);
      try_map(name, text, plane_.padded, [&](int64_t o, int64_t k) { return Pair(o * width + k, from(o * width + k)); });
    };
    if (plane_.packed) {
      flat("nibbles_swapped", "the two codes of a byte have changed places", [](int64_t i) { return i ^ 1; });
      for (const int64_t m : {2, 4, 8}) flat(fmt::format("bytes_reversed_{}", m), fmt::format("the bytes of each {} reversed", m), [m](int64_t i) { return i ^ (2 * m - 2); });
      for (const int64_t m : {4, 8, 16}) flat(fmt::format("codes_reversed_{}", m), fmt::format("the codes of each {} reversed", m), [m](int64_t i) { return i ^ (m - 1); });
    } else {
      for (const int64_t m : {2, 4, 8, 16}) flat(fmt::format("codes_reversed_{}", m), fmt::format("the elements of each {} reversed", m), [m](int64_t i) { return i ^ (m - 1); });
    }
    if (plane_.packed) {
      flat("low_twice", "both halves of a byte hold its low code", [](int64_t i) { return i & ~int64_t{1}; });
      flat("high_twice", "both halves of a byte hold its high code", [](int64_t i) { return i | 1; });
    }
    for (const int64_t m : {2, 4, 8, 16, 32, 64, 128}) {
      if (m < rows) try_map(fmt::format("first_row_of_{}", m), fmt::format("each {} rows hold the first of them", m), s, [&](int64_t o, int64_t k) { return Pair(right_place(o, k), right_place(o / m * m, k)); });
      if (m < cols) try_map(fmt::format("first_column_of_{}", m), fmt::format("each {} columns hold the first of them", m), s, [&](int64_t o, int64_t k) { return Pair(right_place(o, k), right_place(o, k / m * m)); });
    }
    flat("reversed", "everything in reverse", [&](int64_t i) { return n_ - 1 - i; });
    try_map("rows_reversed", "rows from the last to the first", s, [&](int64_t o, int64_t k) { return Pair(right_place(o, k), right_place(rows - 1 - o, k)); });
    try_map("columns_reversed", "columns from the last to the first", s, [&](int64_t o, int64_t k) { return Pair(right_place(o, k), right_place(o, cols - 1 - k)); });
    for (int64_t m = 1; m <= 128; m *= 2) {
      const string groups = m == 1 ? "neighbouring {}s" : fmt::format("neighbouring groups of {} {{}}s", m);
      auto name = [&](const char* axis) { return fmt::format(fmt::runtime(groups), axis) + " have changed places"; };
      try_map(fmt::format("rows_swapped_{}", m), name("row"), s, [&](int64_t o, int64_t k) { return Pair((o ^ m) < rows ? right_place(o, k) : -1, (o ^ m) < rows ? right_place(o ^ m, k) : -1); });
      try_map(fmt::format("columns_swapped_{}", m), name("column"), s,
              [&](int64_t o, int64_t k) { return Pair((k ^ m) < cols ? right_place(o, k) : -1, (k ^ m) < cols ? right_place(o, k ^ m) : -1); });
    }
    std::vector<int64_t> steps = {1, 2, 3, 4, 8, 16, 32, 64, 128};
    if (const size_t digits = wanted_.find_first_of("123456789"); wanted_.find("offset_") != string::npos && digits != string::npos && wanted_.size() - digits < 10)
      steps = {std::stoll(wanted_.substr(digits))};
    for (const int64_t by : steps)
      for (const int64_t k : {by, -by}) {
        auto text = [&](const char* what) { return fmt::format("every {} stands {} place{} {}", what, by, by == 1 ? "" : "s", k > 0 ? "later" : "earlier"); };
        flat(fmt::format("offset_{}", k), text("code"), [&](int64_t i) { return i - k; });
        if (by < rows) try_map(fmt::format("row_offset_{}", k), text("row"), s, [&](int64_t o, int64_t c) { return Pair(right_place(o, c), o - k >= 0 && o - k < rows ? right_place(o - k, c) : -1); });
        if (by < cols) try_map(fmt::format("column_offset_{}", k), text("column"), s, [&](int64_t o, int64_t c) { return Pair(right_place(o, c), c - k >= 0 && c - k < cols ? right_place(o, c - k) : -1); });
        if (by < cols) try_map(fmt::format("column_rotation_{}", k), text("column") + ", around the end", s, [&](int64_t o, int64_t c) { return Pair(right_place(o, c), right_place(o, (c - k + cols) % cols)); });
      }
  }

  // ---- address bits ------------------------------------------------------------------------------------------------

  static uint64_t mixed(uint64_t v) {
    v = (v + 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
    v = (v ^ (v >> 29)) * 0x94D049BB133111EBu;
    return v ^ (v >> 32);
  }

  // The Walsh-Hadamard transform of weights that codes have by chance. A map of addresses that is linear in their bits only moves its values, so that the value at one bit of got's
  // address stands, up to its sign, at the bits of want's address whose parity that bit is.
  std::vector<int64_t> weights(const std::vector<uint32_t>& codes, int64_t size) const {
    std::vector<int64_t> t(static_cast<size_t>(size));
    for (int64_t i = 0; i < n_; ++i)
      t[static_cast<size_t>(i % size)] += static_cast<int64_t>(mixed(static_cast<uint64_t>(codes[static_cast<size_t>(i)]) << 24 ^ static_cast<uint64_t>(i / size)) >> 40) - (int64_t{1} << 23);
    return t;
  }
  static void transform(std::vector<int64_t>& t) {
    const int64_t size = static_cast<int64_t>(t.size());
    for (int64_t half = 1; half < size; half *= 2)
      for (int64_t block = 0; block < size; block += 2 * half)
        for (int64_t i = block; i < block + half; ++i) {
          const int64_t a = t[static_cast<size_t>(i)], b = t[static_cast<size_t>(i + half)];
          t[static_cast<size_t>(i)] = a + b;
          t[static_cast<size_t>(i + half)] = a - b;
        }
  }

  // Adds a mask to a basis that is sorted downwards, unless it follows from it.
  static bool add_independent(std::vector<uint64_t>& basis, uint64_t mask) {
    for (uint64_t b : basis) mask = std::min(mask, mask ^ b);
    if (mask == 0) return false;
    basis.insert(std::upper_bound(basis.begin(), basis.end(), mask, std::greater<>()), mask);
    return true;
  }

  void address_bits() {
    const int64_t size = n_ & -n_;   // bits that are whole
    if (size < 16) return;
    const int bits = std::countr_zero(static_cast<uint64_t>(size));
    std::vector<int64_t> g = weights(got_, size), w = weights(want_, size);
    if (std::accumulate(g.begin(), g.end(), int64_t{0}) != std::accumulate(w.begin(), w.end(), int64_t{0})) return;   // other codes
    transform(g);
    transform(w);
    std::vector<uint64_t> masks;     // of each bit of got's address
    std::vector<std::vector<uint64_t>> likely;   // all that the weights allow, the plainest first
    std::vector<uint64_t> basis;     // of the masks, in echelon form
    for (int a = 0; a < bits; ++a) {
      const int64_t value = g[size_t{1} << a];
      std::vector<uint64_t>& found = likely.emplace_back();
      for (uint64_t m = 1; m < static_cast<uint64_t>(size); ++m)
        if (w[m] == value || w[m] == -value) found.push_back(m);
      const uint64_t own = uint64_t{1} << a;
      std::stable_sort(found.begin(), found.end(), [&](uint64_t x, uint64_t y) { return std::pair(x != own, std::popcount(x)) < std::pair(y != own, std::popcount(y)); });
      const auto m = std::find_if(found.begin(), found.end(), [&](uint64_t mask) { return add_independent(basis, mask); });
      if (m == found.end()) return;
      masks.push_back(*m);
      found.resize(std::min<size_t>(found.size(), 64));
    }
    const auto fit = [&](const std::vector<uint64_t>& of) {
      string name = "address_bits=";
      std::vector<bool> inverted;
      for (size_t a = 0; a < of.size(); ++a) {
        inverted.push_back(w[of[a]] != g[size_t{1} << a]);
        name += fmt::format("{}{}{:x}", a ? "," : "", inverted[a] ? "!" : "", of[a]);
      }
      take(name, bits_text(of, inverted), by_bits(of, inverted));
    };
    fit(masks);
    // Where codes are few, other bits may do as well: then none of them is known to be the one.
    constexpr size_t kAlternatives = 4;
    size_t tried = 0;
    for (size_t a = 0; any_exact() && a < masks.size(); ++a)
      for (const uint64_t other : likely[a]) {
        std::vector<uint64_t> changed = masks, independent;
        changed[a] = other;
        if (other == masks[a] || !std::all_of(changed.begin(), changed.end(), [&](uint64_t m) { return add_independent(independent, m); })) continue;
        if (tried++ == kAlternatives) return;
        fit(changed);
        break;
      }
  }

  // The map whose bit a of got's address is the parity of masks[a] of want's.
  std::vector<int32_t> by_bits(const std::vector<uint64_t>& masks, const std::vector<bool>& inverted) const {
    const int bits = static_cast<int>(masks.size());
    const int64_t size = int64_t{1} << bits;
    // From an address of want to that of got, one bit after the other.
    std::vector<int64_t> column(static_cast<size_t>(bits));
    int64_t origin = 0;
    for (int a = 0; a < bits; ++a) {
      if (inverted[static_cast<size_t>(a)]) origin |= int64_t{1} << a;
      for (int b = 0; b < bits; ++b)
        if (masks[static_cast<size_t>(a)] >> b & 1) column[static_cast<size_t>(b)] |= int64_t{1} << a;
    }
    std::vector<int64_t> to(static_cast<size_t>(size));
    to[0] = origin;
    for (int64_t j = 1; j < size; ++j) to[static_cast<size_t>(j)] = to[static_cast<size_t>(j & (j - 1))] ^ column[static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(j)))];
    std::vector<int32_t> source(static_cast<size_t>(n_));
    for (int64_t q = 0; q < n_; q += size)
      for (int64_t j = 0; j < size; ++j) source[static_cast<size_t>(q + to[static_cast<size_t>(j)])] = static_cast<int32_t>(q + j);
    return source;
  }

  // "1,!4,2": the masks in hexadecimal, the lowest bit first, those that are inverted marked.
  void bits_named(const string& text) {
    std::vector<uint64_t> masks;
    std::vector<bool> inverted;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find(',', at), text.size());
      const bool turned = text[at] == '!';
      const string digits = text.substr(at + turned, end - at - turned);
      if (digits.empty() || digits.size() > 8 || digits.find_first_not_of("0123456789abcdef") != string::npos) return;
      masks.push_back(std::stoull(digits, nullptr, 16));
      inverted.push_back(turned);
      at = end + 1;
    }
    if (masks.empty() || masks.size() > 31 || n_ % (int64_t{1} << masks.size()) != 0) return;
    std::vector<uint64_t> basis;
    for (uint64_t m : masks)
      if (m >> masks.size() != 0 || !add_independent(basis, m)) return;
    fits_.push_back({wanted_, bits_text(masks, inverted), 0, false, true, by_bits(masks, inverted)});
  }

  // "c0", "r5": what a bit of the right address is, or "a7".
  std::vector<string> bit_names(size_t bits) const {
    std::vector<string> names;
    for (size_t b = 0; b < bits; ++b) names.push_back(fmt::format("a{}", b));
    for (const bool row : {true, false})
      for (int k = 0; int64_t{1} << k < (row ? plane_.padded.rows : plane_.padded.cols); ++k) {
        const int64_t v = int64_t{1} << k, address = row ? index_of(plane_, v, 0) : index_of(plane_, 0, v);
        if (std::has_single_bit(static_cast<uint64_t>(address)) && address < int64_t{1} << bits) names[static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(address)))] = fmt::format("{}{}", row ? "r" : "c", k);
      }
    return names;
  }

  string bits_text(const std::vector<uint64_t>& masks, const std::vector<bool>& inverted) const {
    const std::vector<string> names = bit_names(masks.size());
    string came, right;
    for (size_t a = masks.size(); a-- > 0;) {
      string one = inverted[a] ? "!" : "";
      for (size_t b = masks.size(), first = 1; b-- > 0;)
        if (masks[a] >> b & 1) {
          one += (first ? "" : "^") + names[b];
          first = 0;
        }
      came += (came.empty() ? "" : " ") + one;
      right += (right.empty() ? "" : " ") + names[a];
    }
    return fmt::format("the bits of the address, from the highest, are {} instead of {} (r: of the row, c: of the column)", came, right);
  }

  // ---- runs --------------------------------------------------------------------------------------------------------

  // Windows of codes that stand once in want and are found in got: a map of whatever keeps runs of them together.
  void runs() {
    const double bits = -std::log2(chance_), needed = std::log2(static_cast<double>(n_)) + 6;
    int64_t window = 4;
    while (window < 64 && static_cast<double>(window) * bits < needed) window *= 2;
    if (static_cast<double>(window) * bits < needed || n_ < 2 * window) return;
    auto hashes = [&](const std::vector<uint32_t>& codes) {
      constexpr uint64_t kBase = 0x9E3779B97F4A7C15u;
      uint64_t power = 1, h = 0;
      for (int64_t i = 0; i < window; ++i) power *= kBase;
      std::vector<uint64_t> out(static_cast<size_t>(n_ - window + 1));
      for (int64_t i = 0; i < n_; ++i) {
        h = h * kBase + codes[static_cast<size_t>(i)] + 1;
        if (i >= window) h -= power * (codes[static_cast<size_t>(i - window)] + 1);
        if (i >= window - 1) out[static_cast<size_t>(i - window + 1)] = h;
      }
      return out;
    };
    const std::vector<uint64_t> in_want = hashes(want_), in_got = hashes(got_);
    if (!displaced(in_got, in_want)) return;
    std::vector<std::pair<uint64_t, int32_t>> sorted(in_want.size());
    for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = {in_want[i], static_cast<int32_t>(i)};
    std::sort(sorted.begin(), sorted.end());
    std::vector<int32_t> source(static_cast<size_t>(n_), -1);
    int64_t found = -1;   // of the window before
    for (int64_t i = 0; i + window <= n_; ++i) {
      const uint64_t h = in_got[static_cast<size_t>(i)];
      if (found >= 0 && found + 1 < static_cast<int64_t>(in_want.size()) && in_want[static_cast<size_t>(found + 1)] == h) {
        ++found;
      } else {
        const auto at = std::lower_bound(sorted.begin(), sorted.end(), std::pair<uint64_t, int32_t>(h, -1));
        const bool once = at != sorted.end() && at->first == h && (at + 1 == sorted.end() || (at + 1)->first != h);
        found = once ? at->second : -1;
      }
      for (int64_t k = 0; found >= 0 && k < window; ++k) source[static_cast<size_t>(i + k)] = static_cast<int32_t>(found + k);
    }
    // Elements between, which no window holds alone, go with their neighbours.
    for (const int64_t step : {1, -1})
      for (int64_t i = step > 0 ? 1 : n_ - 2; i >= 0 && i < n_; i += step) {
        const int32_t before = source[static_cast<size_t>(i - step)];
        const int64_t from = before + step;
        if (source[static_cast<size_t>(i)] < 0 && before >= 0 && from >= 0 && from < n_ && equal(i, from)) source[static_cast<size_t>(i)] = static_cast<int32_t>(from);
      }
    // A permutation of runs: few of them, no place taken twice, and most of them elsewhere. Anything else is a patchwork.
    std::vector<bool> taken(static_cast<size_t>(n_));
    int64_t mapped = 0, moved = 0, twice = 0, pieces = 0;
    for (int64_t i = 0; i < n_; ++i) {
      const int32_t from = source[static_cast<size_t>(i)];
      if (from < 0) continue;
      ++mapped;
      moved += from != i;
      twice += taken[static_cast<size_t>(from)];
      taken[static_cast<size_t>(from)] = true;
      pieces += i == 0 || source[static_cast<size_t>(i - 1)] + 1 != from;
    }
    if (mapped * 2 < n_ || moved * 2 < mapped || twice * 20 > mapped || pieces * window > n_) return;
    const auto [name, text] = describe(source);
    // What was not found may be anybody's; an exact fit is one that leaves nothing.
    const double share = static_cast<double>(mapped) / static_cast<double>(n_);
    if (share < worth_) return;
    fits_.push_back({name, text, share, mapped == n_, name.starts_with("offset_"), std::move(source)});
  }

  // Whether enough of some windows of got stand elsewhere in want: a quick look before the long one.
  bool displaced(const std::vector<uint64_t>& in_got, const std::vector<uint64_t>& in_want) const {
    std::unordered_map<uint64_t, int64_t> looked;   // where it stands in got; -1 once it is found elsewhere in want
    for (uint64_t n = 0; n < 512; ++n) {
      const uint64_t i = mixed(n) % in_got.size();
      looked.emplace(in_got[i], static_cast<int64_t>(i));
    }
    std::vector<bool> among(1 << 16);               // so that few are looked up
    for (const auto& [h, i] : looked) among[h >> 48] = true;
    size_t found = 0;
    for (size_t j = 0; j < in_want.size(); ++j) {
      if (!among[in_want[j] >> 48]) continue;
      const auto at = looked.find(in_want[j]);
      if (at == looked.end() || at->second < 0 || at->second == static_cast<int64_t>(j)) continue;
      at->second = -1;
      ++found;
    }
    return found * 4 >= looked.size();
  }

  // One offset, strides of whole runs, or rows in an order.
  std::pair<string, string> describe(const std::vector<int32_t>& source) const {
    std::map<int64_t, int64_t> offsets, lengths;
    int64_t mapped = 0, run = 0;
    for (int64_t i = 0; i < n_; ++i) {
      const int32_t s = source[static_cast<size_t>(i)];
      if (s >= 0) {
        ++offsets[i - s];
        ++mapped;
      }
      const bool goes_on = i > 0 && s >= 0 && source[static_cast<size_t>(i - 1)] >= 0 && s == source[static_cast<size_t>(i - 1)] + 1;
      if (goes_on) ++run;
      else {
        if (run) lengths[run] += run;
        run = s >= 0;
      }
    }
    if (run) lengths[run] += run;
    const auto most = std::max_element(offsets.begin(), offsets.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most->second * 10 >= mapped * 9) return {fmt::format("offset_{}", most->first), fmt::format("every code stands {} places {}", std::abs(most->first), most->first > 0 ? "later" : "earlier")};
    const int64_t length = std::max_element(lengths.begin(), lengths.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->first;
    if (n_ % length == 0) {
      std::vector<int64_t> starts;
      for (int64_t i = 0; i < n_; i += length) starts.push_back(source[static_cast<size_t>(i)]);
      if (const string nest = strides(starts); !nest.empty()) return {"strides", fmt::format("runs of {} codes; their places, the fastest first: {}", length, nest)};
      string list;
      for (size_t k = 0; k < std::min<size_t>(starts.size(), 6); ++k) {
        const Place p = place_of(plane_, std::max<int64_t>(0, starts[k]));
        list += fmt::format("{}{}", k ? ", " : "", starts[k] < 0 ? string("?") : fmt::format("({}, {})", p.row, p.col));
      }
      return {"runs", fmt::format("runs of {} codes in another order: they come from (row, column) {}{}", length, list, starts.size() > 6 ? ", ..." : "")};
    }
    return {"runs", fmt::format("runs of about {} codes in another order", length)};
  }

  // "4 steps of 128, 32 of 4": loops that go through `at`, or nothing.
  static string strides(std::vector<int64_t> at) {
    string out;
    while (at.size() > 1) {
      const int64_t step = at[1] - at[0];
      size_t n = 1;
      while (n < at.size() && at[n] - at[n - 1] == step) ++n;
      if (n == 1 || at.size() % n != 0) return "";
      std::vector<int64_t> heads;
      for (size_t k = 0; k < at.size(); k += n) {
        for (size_t i = 1; i < n; ++i)
          if (at[k + i] - at[k + i - 1] != step) return "";
        heads.push_back(at[k]);
      }
      out += out.empty() ? fmt::format("{} steps of {}", n, step) : fmt::format(", {} of {}", n, step);
      at = std::move(heads);
    }
    return out;
  }

  const Plane& plane_;
  int64_t n_ = 0, logical_ = 0, same_ = 0;
  bool by_columns_ = false;
  double chance_ = 1, worth_ = 1;
  std::vector<uint32_t> got_, want_;
  std::vector<bool> meant_;           // places of logical elements
  string wanted_;                     // not empty: this one only, whatever the codes are
  bool strict_ = false;               // ... or where it makes all of them
  std::vector<LayoutFit> fits_;
};

}  // namespace

std::vector<LayoutFit> fit_layouts(const Plane& plane, std::span<const std::byte> got, std::span<const std::byte> want) {
  if (!plane.members.empty() || got.size() != plane.bytes() || want.size() != plane.bytes() || plane.padded.count() < 32) return {};
  return Search(plane, got, want).run();
}

std::vector<LayoutFit> exact_layouts(const Plane& plane, std::span<const std::byte> got, std::span<const std::byte> want) {
  if (!plane.members.empty() || got.size() != plane.bytes() || want.size() != plane.bytes()) return {};
  return Search(plane, got, want).exact();
}

std::optional<LayoutFit> layout_named(std::string_view name, const Plane& plane) {
  if (!plane.members.empty() || name.empty()) return {};
  return Search(plane, string(name)).named();
}

std::optional<std::vector<std::byte>> relayout(const LayoutFit& fit, const Plane& plane, std::span<const std::byte> got, std::span<const std::byte> want) {
  const int64_t n = plane.padded.count();
  if (static_cast<int64_t>(fit.source.size()) != n || got.size() != plane.bytes() || want.size() != plane.bytes()) return {};
  std::vector<std::byte> out(want.begin(), want.end());
  for (int64_t i = 0; i < n; ++i) {
    const int32_t to = fit.source[static_cast<size_t>(i)];
    if (to >= n) return {};
    if (to >= 0) set_code(plane, out, to, code_at(plane, got, i));
  }
  return out;
}

string padding_text(const Plane& plane, std::span<const std::byte> got) {
  if (!plane.members.empty() || plane.logical == plane.padded || plane.logical.count() == 0) return "";
  std::map<uint32_t, int64_t> codes;
  int64_t all = 0, last = 0, wrapped = 0;
  for (int64_t i = 0; i < plane.padded.count(); ++i) {
    const Place p = place_of(plane, i);
    if (!p.padding) continue;
    const uint32_t code = code_at(plane, got, i);
    ++codes[code];
    ++all;
    const Shape s = plane.logical;
    last += code == code_at(plane, got, index_of(plane, std::min(p.row, s.rows - 1), std::min(p.col, s.cols - 1)));
    wrapped += code == code_at(plane, got, index_of(plane, p.row % s.rows, p.col % s.cols));
  }
  if (codes.size() == 1) {
    const uint32_t code = codes.begin()->first;
    return code == 0 ? "zeros" : fmt::format("{} everywhere{}", code_hex(plane.encoding, code), code == (info(plane.encoding).bits == 8 ? 0x7Fu : 0x7F7F7F7Fu) ? ": poison, never written" : "");
  }
  if (last == all) return "the last row and column again";
  if (wrapped == all) return "the first rows and columns again";
  const auto zeros = codes.find(0);
  return fmt::format("{} different codes in {} places, {} of them zero: stale, or a neighbour's", codes.size(), all, zeros == codes.end() ? 0 : zeros->second);
}

}  // namespace assay
