// Layouts that are met in other libraries, and slips of them, as data.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/diagnosis/patterns/layout_search.h"

namespace assay::patterns {

namespace {

using std::string;
using Addresses = LayoutSearch::Addresses;

// One digit of an address: o or k (compare/diagnosis/patterns/layout_search.h), divided, and its remainder; a
// remainder of 0 takes all that is left.
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
      const int64_t all = ceil_div(extent, d.divisor), limit = cut ? std::min(d.modulus, all) : d.modulus;
      const int64_t radix = d.modulus ? limit : all, digit = v / d.divisor;
      address = address * radix + (d.modulus ? digit % d.modulus : digit);
    }
    return address;
  }
};

// Layouts that are met in other libraries, and slips of them.
const std::vector<Order>& orders() {
  // clang-format off
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
      {"transposed_16x16", "each tile of 16x16 transposed in place (and 32x32, 64x64, 128x128)", {{'o', 16}, {'k', 1, 16}, {'k', 16}, {'o', 1, 16}}},
      {"transposed_32x32", "each tile of 32x32 transposed where it stands", {{'o', 32}, {'k', 1, 32}, {'k', 32}, {'o', 1, 32}}},
      {"transposed_64x64", "each tile of 64x64 transposed where it stands", {{'o', 64}, {'k', 1, 64}, {'k', 64}, {'o', 1, 64}}},
      {"transposed_128x128", "each tile of 128x128 transposed where it stands", {{'o', 128}, {'k', 1, 128}, {'k', 128}, {'o', 1, 128}}},
  };
  // clang-format on
  return kOrders;
}

// The layouts that one order gives of a plane of `extent`: with its padding or bare.
void offer_order(LayoutSearch& search, const Order& order, Shape extent) {
  const AddressedCodes& codes = search.codes();
  const Plane& plane = codes.plane;
  const string name = order.name;
  const bool tiled = plane.layout == ScaleLayout::gemm, bare = !(extent == plane.padded);
  const int64_t rows = codes.outer(extent), cols = codes.along(extent);
  const auto place = [&](int64_t o, int64_t k) { return order.at(o, k, rows, cols); };
  const auto right = [&](int64_t o, int64_t k) { return codes.right_place(o, k); };
  const string what =
      bare ? fmt::format("{}, without padding", order.description) : string(order.description);

  search.offer(bare ? name + "_unpadded" : name, what, plane.logical,
               [&](int64_t o, int64_t k) { return Addresses(place(o, k), right(o, k)); });
  if (bare && tiled && name == "tiles_128x4" && rows < 128)
    search.offer(
        name + "_cut", "tensor-core tiles of as many rows as there are, not padded to 128", plane.logical,
        [&](int64_t o, int64_t k) { return Addresses(order.at(o, k, rows, cols, true), right(o, k)); });
  // Of planes whose contracted dimension runs down: the order's rows are the plane's columns.
  if (!codes.by_columns && name.starts_with("tiles_"))
    search.offer(name + (bare ? "_across_unpadded" : "_across"), what + ", its rows being columns",
                 plane.logical,
                 [&](int64_t o, int64_t k) { return Addresses(order.at(k, o, cols, rows), right(o, k)); });
  if (bare || name == "row_major") return;
  search.offer(name + "_inverse", fmt::format("the inverse of: {}", order.description), plane.padded,
               [&](int64_t o, int64_t k) { return Addresses(right(o, k), place(o, k)); });
  if (!tiled) return;
  // Rearranged once more than it should: the right bytes were taken for rows one after the other.
  const bool twice = name == "tiles_128x4";
  search.offer(twice ? "swizzled_twice" : name + "_of_swizzled",
               twice ? "swizzled twice" : fmt::format("swizzled, and then: {}", order.description),
               plane.padded, [&](int64_t o, int64_t k) { return Addresses(place(o, k), o * cols + k); });
}

// Of scales of other lines, which run across these: the tiles along one, with blocks of that many elements.
template <int block> int64_t stride_of_others(Shape lines) {
  const int64_t tiles = ceil_div(ceil_div(lines.rows, block), 4);
  const bool differs = lines.rows > 128 && tiles != ceil_div(lines.cols, 4);
  return differs ? tiles * 512 : -1;
}

// Tensor-core tiles whose groups of 128 lines stand at a wrong distance: where it is too small, they overlap.
struct GroupStride {
  const char *name, *what;
  // Codes from one group to the next, of so many lines and scales along one; negative where the mistake
  // cannot be.
  int64_t (*stride)(Shape lines);
};
constexpr GroupStride kStrides[] = {
    {"floored", "tiles along a line are counted rounded down",
     [](Shape s) { return s.cols % 4 != 0 && s.cols > 4 ? s.cols / 4 * 512 : -1; }},
    {"floored_to_0", "tiles along a line are counted rounded down, to none",
     [](Shape s) { return int64_t{s.cols < 4 ? 0 : -1}; }},
    {"one_less", "one tile too few along a line is counted",
     [](Shape s) { return s.cols % 4 == 0 ? (s.cols / 4 - 1) * 512 : -1; }},
    {"groups_close", "128 lines take as much room as their scales without padding",
     [](Shape s) { return s.cols % 4 != 0 ? 128 * s.cols : -1; }},
    {"of_others_32", "tiles along a line are as many as the other direction's scales of 32 elements have",
     stride_of_others<32>},
    {"of_others_16", "tiles along a line are as many as the other direction's scales of 16 elements have",
     stride_of_others<16>},
};

// Whether the place of (o, k) is written again, with (o, k) at `within` from the start of its group: by a
// later line of a kernel that goes along lines, by a later column of one that goes across them.
bool is_overwritten(Shape lines, int64_t stride, bool across, int64_t o, int64_t k, int64_t within) {
  const int64_t room = round_up(lines.cols, 4) * 128, groups = (lines.rows + 127) / 128, own = o / 128;
  const int64_t place = own * stride + within;
  int64_t group = stride > 0 ? std::min(groups - 1, place / stride) : groups - 1;
  for (; group >= 0 && (across || group > own); --group) {
    const int64_t there = place - group * stride;
    if (there >= room) return false;  // as in all groups before this one
    const int64_t line = group * 128 + there % 16 / 4 * 32 + there % 512 / 16,
                  col = there / 512 * 4 + there % 4;
    if (line < lines.rows && col < lines.cols && (!across || std::pair(col, line) > std::pair(k, o)))
      return true;
  }
  return false;
}

// What is written later stays there: of a kernel that goes along lines the next line's, of one that goes
// across lines the last tile's.
void offer_stride(LayoutSearch& search, const GroupStride& wrong) {
  const AddressedCodes& codes = search.codes();
  const Shape lines{codes.outer(codes.plane.logical), codes.along(codes.plane.logical)};
  const int64_t stride = wrong.stride(lines);
  if (stride < 0) return;
  const Order& order = *std::ranges::find(orders(), std::string_view("tiles_128x4"), &Order::name);
  const bool apart = stride >= round_up(lines.cols, 4) * 128;
  const auto offer = [&](const char* form, const char* what, bool across) {
    search.offer(fmt::format("tiles_128x4_{}{}", wrong.name, form),
                 fmt::format("tensor-core tiles: {}, and {}", wrong.what, what), codes.plane.logical,
                 [&, across](int64_t o, int64_t k) {
                   const int64_t within = order.at(o % 128, k, 128, lines.cols);
                   const bool lost = is_overwritten(lines, stride, across, o, k, within);
                   return Addresses(lost ? -1 : o / 128 * stride + within, codes.right_place(o, k));
                 });
  };
  offer("", apart ? "the last ones lie beyond the plane" : "later lines overwrite earlier ones", false);
  // In a single tile only other lines have the same place.
  if (lines.cols > 4 && !apart) offer("_across", "last tiles overwrite those of later lines", true);
}

// Tensor-core tiles of which the last one along a line keeps its rows in order.
void offer_plain_last_tile(LayoutSearch& search) {
  const AddressedCodes& codes = search.codes();
  const int64_t tiles = ceil_div(codes.along(codes.plane.logical), 4);
  if (tiles < 2) return;
  search.offer("tiles_128x4_last_rows",
               "tensor-core tiles, but the last one along a line has its rows in order", codes.plane.logical,
               [&, tiles](int64_t o, int64_t k) {
                 const int64_t right = codes.right_place(o, k);
                 return Addresses(k / 4 + 1 < tiles ? right : right / 512 * 512 + o % 128 * 4 + k % 4, right);
               });
}

// Rows of another pitch.
void offer_pitches(LayoutSearch& search) {
  const AddressedCodes& codes = search.codes();
  const Plane& plane = codes.plane;
  for (const int64_t multiple : {4, 8, 16, 32, 64, 128, 256}) {
    const int64_t pitch = round_up(plane.logical.cols, multiple);
    if (pitch == plane.padded.cols || pitch == plane.logical.cols) continue;
    search.offer(fmt::format("pitch_{}", pitch),
                 fmt::format("rows {} elements apart instead of {}", pitch, plane.padded.cols), plane.logical,
                 [&](int64_t o, int64_t k) { return Addresses(o * pitch + k, codes.right_place(o, k)); });
  }
}

}  // namespace

void offer_known_orders(LayoutSearch& search) {
  const Plane& plane = search.codes().plane;
  for (const Order& order : orders())
    for (const Shape extent : {plane.padded, plane.logical}) offer_order(search, order, extent);
  if (plane.layout != ScaleLayout::gemm) return offer_pitches(search);
  for (const GroupStride& wrong : kStrides) offer_stride(search, wrong);
  offer_plain_last_tile(search);
}

}  // namespace assay::patterns
