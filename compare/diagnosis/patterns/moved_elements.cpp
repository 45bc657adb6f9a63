// Elements that have changed places by a rule that looks at one coordinate or the address alone.
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compare/diagnosis/patterns/layout_search.h"

namespace assay::patterns {

namespace {

using std::string;
using Addresses = LayoutSearch::Addresses;
using Rule = std::function<int64_t(int64_t)>;  // from where an element, a row or a column comes

// The element at each address comes from another address.
void offer_addresses(LayoutSearch& search, const string& name, const string& text, const Rule& from) {
  const Shape padded = search.codes().plane.padded;
  const int64_t width = search.codes().along(padded);
  search.offer(name, text, padded,
               [&](int64_t o, int64_t k) { return Addresses(o * width + k, from(o * width + k)); });
}

// Each row (o) comes from another row; one outside the plane comes from nowhere.
void offer_rows(LayoutSearch& search, const string& name, const string& text, const Rule& from) {
  const AddressedCodes& codes = search.codes();
  const int64_t rows = codes.outer(codes.plane.logical);
  search.offer(name, text, codes.plane.logical, [&](int64_t o, int64_t k) {
    const int64_t row = from(o);
    return Addresses(codes.right_place(o, k), row >= 0 && row < rows ? codes.right_place(row, k) : -1);
  });
}

// The same for columns (k).
void offer_columns(LayoutSearch& search, const string& name, const string& text, const Rule& from) {
  const AddressedCodes& codes = search.codes();
  const int64_t cols = codes.along(codes.plane.logical);
  search.offer(name, text, codes.plane.logical, [&](int64_t o, int64_t k) {
    const int64_t col = from(k);
    return Addresses(codes.right_place(o, k), col >= 0 && col < cols ? codes.right_place(o, col) : -1);
  });
}

// Codes that stand in another order inside a few bytes.
void offer_orders_in_words(LayoutSearch& search) {
  const auto reversed = [&](int64_t m, const char* what) {
    offer_addresses(search, fmt::format("codes_reversed_{}", m),
                    fmt::format("the {} of each {} reversed", what, m),
                    [m](int64_t i) { return i ^ (m - 1); });
  };
  if (search.codes().plane.bits() != 4) {
    for (const int64_t m : {2, 4, 8, 16}) reversed(m, "elements");
    return;
  }
  offer_addresses(search, "nibbles_swapped", "the two codes of a byte are swapped",
                  [](int64_t i) { return i ^ 1; });
  for (const int64_t m : {2, 4, 8})
    offer_addresses(search, fmt::format("bytes_reversed_{}", m),
                    fmt::format("the bytes of each {} reversed", m),
                    [m](int64_t i) { return i ^ (2 * m - 2); });
  for (const int64_t m : {4, 8, 16}) reversed(m, "codes");
  offer_addresses(search, "low_twice", "both halves of a byte hold its low code",
                  [](int64_t i) { return i & ~int64_t{1}; });
  offer_addresses(search, "high_twice", "both halves of a byte hold its high code",
                  [](int64_t i) { return i | 1; });
}

void offer_repeated_lines(LayoutSearch& search, int64_t rows, int64_t cols) {
  for (const int64_t m : {2, 4, 8, 16, 32, 64, 128}) {
    const Rule first = [m](int64_t i) { return i / m * m; };
    if (m < rows)
      offer_rows(search, fmt::format("first_row_of_{}", m),
                 fmt::format("each {} rows hold the first of them", m), first);
    if (m < cols)
      offer_columns(search, fmt::format("first_column_of_{}", m),
                    fmt::format("each {} columns hold the first of them", m), first);
  }
}

void offer_reversed_lines(LayoutSearch& search, int64_t rows, int64_t cols) {
  offer_addresses(search, "reversed", "everything in reverse",
                  [n = search.codes().n](int64_t i) { return n - 1 - i; });
  offer_rows(search, "rows_reversed", "rows from the last to the first",
             [rows](int64_t o) { return rows - 1 - o; });
  offer_columns(search, "columns_reversed", "columns from the last to the first",
                [cols](int64_t k) { return cols - 1 - k; });
}

void offer_swapped_lines(LayoutSearch& search) {
  for (int64_t m = 1; m <= 128; m *= 2) {
    const Rule other = [m](int64_t i) { return i ^ m; };
    const auto text = [m](const char* axis) {
      const string what = m == 1 ? fmt::format("{}s", axis) : fmt::format("groups of {} {}s", m, axis);
      return "neighbouring " + what + " have changed places";
    };
    offer_rows(search, fmt::format("rows_swapped_{}", m), text("row"), other);
    offer_columns(search, fmt::format("columns_swapped_{}", m), text("column"), other);
  }
}

// How far elements may have moved: where a name is looked for, as far as it says.
std::vector<int64_t> offsets(const string& only) {
  const size_t digits = only.find_first_of("123456789");
  if (only.find("offset_") != string::npos && digits != string::npos && only.size() - digits < 10)
    return {std::stoll(only.substr(digits))};
  return {1, 2, 3, 4, 8, 16, 32, 64, 128};
}

void offer_offsets(LayoutSearch& search, int64_t rows, int64_t cols) {
  for (const int64_t by : offsets(search.only()))
    for (const int64_t step : {by, -by}) {
      const auto text = [&](const char* what) {
        return fmt::format("every {} stands {} place{} {}", what, by, by == 1 ? "" : "s",
                           step > 0 ? "later" : "earlier");
      };
      const Rule before = [step](int64_t i) { return i - step; };
      offer_addresses(search, fmt::format("offset_{}", step), text("code"), before);
      if (by < rows) offer_rows(search, fmt::format("row_offset_{}", step), text("row"), before);
      if (by >= cols) continue;
      offer_columns(search, fmt::format("column_offset_{}", step), text("column"), before);
      offer_columns(search, fmt::format("column_rotation_{}", step), text("column") + ", around the end",
                    [step, cols](int64_t k) { return (k - step + cols) % cols; });
    }
}

}  // namespace

void offer_moved_elements(LayoutSearch& search) {
  const AddressedCodes& codes = search.codes();
  const int64_t rows = codes.outer(codes.plane.logical), cols = codes.along(codes.plane.logical);
  offer_orders_in_words(search);
  offer_repeated_lines(search, rows, cols);
  offer_reversed_lines(search, rows, cols);
  offer_swapped_lines(search);
  offer_offsets(search, rows, cols);
}

}  // namespace assay::patterns
