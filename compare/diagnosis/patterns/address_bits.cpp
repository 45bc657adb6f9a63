// Maps of addresses that are linear in their bits, such as swizzles and transpositions of powers of two.
#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compare/diagnosis/patterns/layout_search.h"

namespace assay::patterns {

namespace {

using std::string;

constexpr std::string_view kPrefix = "address_bits=";

// A map of addresses: each bit of got's address is the parity of the bits of want's address under a mask, or
// its inverse.
struct BitMap {
  std::vector<uint64_t> masks;  // of each bit, the lowest first
  std::vector<bool> inverted;

  string name() const {
    string out(kPrefix);
    for (size_t a = 0; a < masks.size(); ++a)
      out += fmt::format("{}{}{:x}", a ? "," : "", inverted[a] ? "!" : "", masks[a]);
    return out;
  }
};

// Adds a mask to a basis that is sorted downwards, unless it follows from it.
bool add_independent(std::vector<uint64_t>& basis, uint64_t mask) {
  for (uint64_t b : basis) mask = std::min(mask, mask ^ b);
  if (mask == 0) return false;
  basis.insert(std::upper_bound(basis.begin(), basis.end(), mask, std::greater<>()), mask);
  return true;
}
bool independent(const std::vector<uint64_t>& masks) {
  std::vector<uint64_t> basis;
  return std::all_of(masks.begin(), masks.end(), [&](uint64_t m) { return add_independent(basis, m); });
}

// LayoutFit::source of a map, over all `n` addresses.
std::vector<int32_t> source_of(const BitMap& map, int64_t n) {
  const int bits = static_cast<int>(map.masks.size());
  const int64_t size = int64_t{1} << bits;
  // From an address of want to that of got, one bit after the other.
  std::vector<int64_t> column(static_cast<size_t>(bits));
  int64_t origin = 0;
  for (int a = 0; a < bits; ++a) {
    if (map.inverted[static_cast<size_t>(a)]) origin |= int64_t{1} << a;
    for (int b = 0; b < bits; ++b)
      if (map.masks[static_cast<size_t>(a)] >> b & 1) column[static_cast<size_t>(b)] |= int64_t{1} << a;
  }
  std::vector<int64_t> to(static_cast<size_t>(size));
  to[0] = origin;
  for (int64_t j = 1; j < size; ++j) {
    const auto lowest = static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(j)));
    to[static_cast<size_t>(j)] = to[static_cast<size_t>(j & (j - 1))] ^ column[lowest];
  }
  std::vector<int32_t> source(static_cast<size_t>(n));
  for (int64_t q = 0; q < n; q += size)
    for (int64_t j = 0; j < size; ++j)
      source[static_cast<size_t>(q + to[static_cast<size_t>(j)])] = static_cast<int32_t>(q + j);
  return source;
}

// ---- words for bits ---------------------------------------------------------------------------------------

// "c0", "r5": what each bit of the right address is, or "a7".
std::vector<string> bit_names(const Plane& plane, size_t bits) {
  std::vector<string> names;
  for (size_t b = 0; b < bits; ++b) names.push_back(fmt::format("a{}", b));
  for (const bool row : {true, false})
    for (int k = 0; int64_t{1} << k < (row ? plane.padded.rows : plane.padded.cols); ++k) {
      const int64_t v = int64_t{1} << k, address = row ? index_of(plane, v, 0) : index_of(plane, 0, v);
      if (!std::has_single_bit(static_cast<uint64_t>(address)) || address >= int64_t{1} << bits) continue;
      names[static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(address)))] =
          fmt::format("{}{}", row ? "r" : "c", k);
    }
  return names;
}

string text_of(const BitMap& map, const Plane& plane) {
  const size_t bits = map.masks.size();
  const std::vector<string> names = bit_names(plane, bits);
  string came, right;
  for (size_t a = bits; a-- > 0;) {
    string one = map.inverted[a] ? "!" : "";
    for (size_t b = bits, first = 1; b-- > 0;)
      if (map.masks[a] >> b & 1) {
        one += (first ? "" : "^") + names[b];
        first = 0;
      }
    came += (came.empty() ? "" : " ") + one;
    right += (right.empty() ? "" : " ") + names[a];
  }
  return fmt::format(
      "the bits of the address, from the highest, are {} instead of {} (r: of the row, c: of the column)",
      came, right);
}

// ---- the search -------------------------------------------------------------------------------------------

// The Walsh-Hadamard transform of weights that codes have by chance. A map of addresses that is linear in
// their bits only moves its values: the value at one bit of got's address stands, up to its sign, at the bits
// of want's address whose parity that bit is.
std::vector<int64_t> weights(const std::vector<uint32_t>& codes, int64_t size) {
  std::vector<int64_t> t(static_cast<size_t>(size));
  for (int64_t i = 0; i < static_cast<int64_t>(codes.size()); ++i) {
    const uint64_t key =
        static_cast<uint64_t>(codes[static_cast<size_t>(i)]) << 24 ^ static_cast<uint64_t>(i / size);
    t[static_cast<size_t>(i % size)] += static_cast<int64_t>(mixed(key) >> 40) - (int64_t{1} << 23);
  }
  return t;
}
void transform(std::vector<int64_t>& t) {
  const int64_t size = static_cast<int64_t>(t.size());
  for (int64_t half = 1; half < size; half *= 2)
    for (int64_t block = 0; block < size; block += 2 * half)
      for (int64_t i = block; i < block + half; ++i) {
        const int64_t a = t[static_cast<size_t>(i)], b = t[static_cast<size_t>(i + half)];
        t[static_cast<size_t>(i)] = a + b;
        t[static_cast<size_t>(i + half)] = a - b;
      }
}

// All masks of bit `a` that the transforms allow, the plainest first.
std::vector<uint64_t> likely_masks(const std::vector<int64_t>& got, const std::vector<int64_t>& want, int a) {
  const int64_t value = got[size_t{1} << a];
  std::vector<uint64_t> out;
  for (uint64_t m = 1; m < want.size(); ++m)
    if (want[m] == value || want[m] == -value) out.push_back(m);
  const uint64_t own = uint64_t{1} << a;
  std::stable_sort(out.begin(), out.end(), [&](uint64_t x, uint64_t y) {
    return std::pair(x != own, std::popcount(x)) < std::pair(y != own, std::popcount(y));
  });
  return out;
}

}  // namespace

void offer_address_bits(LayoutSearch& search) {
  const AddressedCodes& codes = search.codes();
  const int64_t size = codes.n & -codes.n;  // bits that are whole
  if (size < 16) return;
  std::vector<int64_t> got = weights(codes.got, size), want = weights(codes.want, size);
  const auto sum = [](const std::vector<int64_t>& t) {
    return std::accumulate(t.begin(), t.end(), int64_t{0});
  };
  if (sum(got) != sum(want)) return;  // other codes
  transform(got);
  transform(want);

  std::vector<uint64_t> masks, basis;         // of each bit of got's address; the same in echelon form
  std::vector<std::vector<uint64_t>> likely;  // all that each bit may have
  for (int a = 0; a < std::countr_zero(static_cast<uint64_t>(size)); ++a) {
    std::vector<uint64_t>& list = likely.emplace_back(likely_masks(got, want, a));
    const auto m =
        std::find_if(list.begin(), list.end(), [&](uint64_t mask) { return add_independent(basis, mask); });
    if (m == list.end()) return;
    masks.push_back(*m);
    list.resize(std::min<size_t>(list.size(), 64));
  }
  const auto take = [&](const std::vector<uint64_t>& of) {
    BitMap map{of, {}};
    for (size_t a = 0; a < of.size(); ++a) map.inverted.push_back(want[of[a]] != got[size_t{1} << a]);
    search.take(map.name(), text_of(map, codes.plane), source_of(map, codes.n));
  };
  take(masks);
  // Where codes are few, other bits may do as well; then none of them is known to be the one.
  constexpr size_t kAlternatives = 4;
  size_t tried = 0;
  for (size_t a = 0; search.any_exact() && a < masks.size(); ++a)
    for (const uint64_t other : likely[a]) {
      std::vector<uint64_t> changed = masks;
      changed[a] = other;
      if (other == masks[a] || !independent(changed)) continue;
      if (tried++ == kAlternatives) return;
      take(changed);
      break;
    }
}

std::optional<LayoutFit> address_bits_named(const string& name, const AddressedCodes& codes) {
  if (!name.starts_with(kPrefix)) return {};
  const string text = name.substr(kPrefix.size());
  BitMap map;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const bool turned = text[at] == '!';
    const string digits = text.substr(at + turned, end - at - turned);
    const bool hexadecimal = digits.find_first_not_of("0123456789abcdef") == string::npos;
    if (digits.empty() || digits.size() > 8 || !hexadecimal) return {};
    map.masks.push_back(std::stoull(digits, nullptr, 16));
    map.inverted.push_back(turned);
    at = end + 1;
  }
  const size_t bits = map.masks.size();
  if (bits == 0 || bits > 31 || codes.n % (int64_t{1} << bits) != 0) return {};
  const auto inside = [&](uint64_t m) { return m >> bits == 0; };
  if (!std::all_of(map.masks.begin(), map.masks.end(), inside) || !independent(map.masks)) return {};
  return LayoutFit{name, text_of(map, codes.plane), 0, false, true, source_of(map, codes.n)};
}

}  // namespace assay::patterns
