// The search for a layout: maps of addresses are offered, and those that explain the bytes are kept. Only for
// layouts.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/patterns/layouts.h"
#include "contract/planes.h"

namespace assay::patterns {

// The codes of a plane by address, as they came and as they are wanted. Rows and columns are called o and k:
// o counts what a layout's tiles have 128 of, k what they have 4 of. These are the plane's rows and columns,
// or its columns and rows where scales run down (N6.3).
struct AddressedCodes {
  const Plane& plane;
  int64_t n = 0;  // addresses
  bool by_columns = false;
  std::vector<uint32_t> got, want;  // empty where a layout is made by its name
  std::vector<bool> meant;          // addresses of logical elements
  int64_t logical = 0, same = 0;    // logical elements; those that agree as they stand
  double chance = 1;                // how often two places hold the same code by chance
  double worth = 1;                 // the share of agreement from which on a layout is kept

  explicit AddressedCodes(const Plane& plane);
  AddressedCodes(const Plane& plane, std::span<const std::byte> got, std::span<const std::byte> want);

  int64_t outer(Shape s) const { return by_columns ? s.cols : s.rows; }
  int64_t along(Shape s) const { return by_columns ? s.rows : s.cols; }
  int64_t right_place(int64_t o, int64_t k) const {
    return by_columns ? index_of(plane, k, o) : index_of(plane, o, k);
  }
  bool equal(int64_t in_got, int64_t in_want) const {
    return got[static_cast<size_t>(in_got)] == want[static_cast<size_t>(in_want)];
  }
};

class LayoutSearch {
 public:
  // What a layout must achieve to be kept: explain the bytes clearly better than the plane's own order, make
  // every code that came, or only have the name that is looked for.
  enum class Aim : uint8_t { better, every_code, name };

  // Looks for better layouts.
  LayoutSearch(const Plane& plane, std::span<const std::byte> got, std::span<const std::byte> want)
      : codes_(plane, got, want) {}
  // Makes the layout of that name, without codes.
  LayoutSearch(const Plane& plane, std::string name)
      : codes_(plane), aim_(Aim::name), only_(std::move(name)) {}

  // From here on only the layout of that name is tried, and it must make every code.
  void look_for_every_code_of(std::string name);

  // Two addresses that belong to the element (o, k): in the bytes that came, and in those that are wanted. A
  // negative one is nowhere.
  using Addresses = std::pair<int64_t, int64_t>;
  using Map = std::function<Addresses(int64_t o, int64_t k)>;
  // Tries a map of the elements of `extent`: on a sample, and where that is good on everything.
  void offer(const std::string& name, const std::string& description, Shape extent, const Map& map);
  // Keeps a map from addresses of got to those of want (LayoutFit::source) where it explains enough.
  void take(std::string name, std::string description, std::vector<int32_t> source);
  void keep(LayoutFit fit) { fits_.push_back(std::move(fit)); }

  const AddressedCodes& codes() const { return codes_; }
  const std::string& only() const { return only_; }  // empty: any name
  bool any_exact() const;
  std::vector<LayoutFit>& fits() { return fits_; }

 private:
  void take_if_every_code(std::string name, std::string description, std::vector<int32_t> source);

  AddressedCodes codes_;
  Aim aim_ = Aim::better;
  std::string only_;
  std::vector<LayoutFit> fits_;
};

// What is offered. known_orders.cpp: orders that other libraries have, and slips of them.
void offer_known_orders(LayoutSearch& search);
// moved_elements.cpp: elements that have changed places by a rule that looks at one coordinate or the address
// alone.
void offer_moved_elements(LayoutSearch& search);
// address_bits.cpp: permutations of the bits of addresses, and maps that are linear in them.
void offer_address_bits(LayoutSearch& search);
// runs.cpp: whatever keeps runs of codes together.
void offer_runs(LayoutSearch& search);

// "address_bits=1,!4,2": the masks of each bit of got's address in hexadecimal, the lowest bit first; those
// that are inverted are marked. Nothing where the name is no such list or does not fit the plane.
std::optional<LayoutFit> address_bits_named(const std::string& name, const AddressedCodes& codes);

// A hash, by which samples are drawn and codes are given weights.
uint64_t mixed(uint64_t v);

}  // namespace assay::patterns
