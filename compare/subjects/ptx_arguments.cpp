#include "compare/subjects/ptx_arguments.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>

#include <fmt/format.h>

#include "fast/ptx/run.h"
#include "fast/ptx/tensor_map.h"

namespace assay {

namespace {

using What = PtxArgument::What;

// Why an argument cannot be handed to a parameter; empty where it can.
std::string misfit(const PtxArgument& a, const ptx::Parameter& p) {
  const auto needs = [&](uint64_t bytes, bool pointer) -> std::string {
    if (p.array)
      return "is a struct of " + std::to_string(p.bytes) + " bytes, which \"bytes:\" or \"zeros\" can give" +
             (p.bytes == ptx::kTensorMapBytes ? ", or \"tensormap:\"" : "");
    if (p.bytes != bytes) return "takes " + std::to_string(p.bytes) + " bytes, not " + std::to_string(bytes);
    if (!pointer && p.pointer) return "is a pointer";
    return "";
  };
  switch (a.what) {
    case What::plane:
    case What::null:
    case What::scratch:
    case What::poison:
    case What::raw:
    case What::drawn: return needs(8, true);
    case What::i64:
    case What::u64: return needs(8, false);
    case What::i32:
    case What::u32:
    case What::f32: return needs(4, false);
    case What::bf16: return needs(2, false);
    case What::bytes:
      if (a.text.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
        return "is given digits that are not hexadecimal";
      return a.text.size() == 2 * p.bytes
                 ? ""
                 : "takes " + std::to_string(p.bytes) + " bytes, not " + std::to_string(a.text.size() / 2);
    case What::zeros: return "";
    case What::map:
      return p.bytes == ptx::kTensorMapBytes || (p.bytes == 8 && !p.array)
                 ? ""
                 : "is neither 128 bytes nor a pointer, as a tensor map needs";
  }
  return "";
}

}  // namespace

std::optional<Error> check_arguments(const ptx::Entry& e, const PtxLaunch& launch) {
  const auto refuse = [&](const std::string& why) {
    return Error{"entry " + e.signature() + ": " + why, 0, ""};
  };
  if (launch.args.size() != e.parameters.size())
    return refuse("has " + std::to_string(e.parameters.size()) + " parameters, and \"args\" has " +
                  std::to_string(launch.args.size()));
  for (size_t n = 0; n < launch.args.size(); ++n)
    if (const std::string why = misfit(launch.args[n], e.parameters[n]); !why.empty())
      return refuse("argument \"" + launch.args[n].spelled + "\": parameter " + e.parameters[n].name + " " +
                    why);
  if (launch.block[0].empty() && !e.required_block[0])
    return refuse("\"block\" is missing, and the entry has no .reqntid");
  return {};
}

std::optional<Error> check_text(const std::string& path, const std::string& text, PtxLaunch& launch) {
  try {
    ptx::Module module(text);
    const auto entries = module.entries();
    if (launch.entry.empty() && entries.size() == 1) launch.entry = entries.front();
    if (launch.entry.empty()) {
      return Error{fmt::format("{}: name one of its entries by --entry: {}", path, fmt::join(entries, ", ")),
                   0, ""};
    }
    if (auto e = check_arguments(module.entry(launch.entry), launch))
      return Error{path + ": " + e->message, 0, ""};
    module.kernel(launch.entry);
  } catch (const ptx::Fault& e) {
    return Error{launch.ptx + ": " + e.what(), 0, ""};
  }
  return {};
}

namespace {

Bounds size_bounds(const char* what, const ptx::Dim& most, size_t place) {
  const std::array<unsigned, 3> sizes = {most.x, most.y, most.z};
  return {"size " + std::to_string(place + 1) + " of a " + what, 1, sizes.at(place)};
}

}  // namespace

Bounds grid_bounds(size_t place) { return size_bounds("grid", ptx::kMostBlocks, place); }
Bounds block_bounds(size_t place) { return size_bounds("block", ptx::kWidestBlock, place); }

namespace {

// "32x(rows / 2)x64" in its parts: an x parts where a digit or a parenthesis stands on both sides of it.
std::vector<std::string> sizes_in(const std::string& text) {
  std::vector<std::string> out(1);
  for (size_t n = 0; n < text.size(); ++n) {
    const auto ends = [&](size_t at, char bracket) {
      return at < text.size() && (std::isdigit(static_cast<unsigned char>(text[at])) || text[at] == bracket);
    };
    if (text[n] == 'x' && n > 0 && ends(n - 1, ')') && ends(n + 1, '(')) out.emplace_back();
    else out.back() += text[n];
  }
  return out;
}

}  // namespace

std::vector<std::byte> tensor_map_of(const PtxArgument& a, const Plane& plane, uint64_t address,
                                     const std::function<int64_t(const std::string&)>& integer) {
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error("\"" + a.spelled + "\": " + why);
  };
  ptx::TensorMap m;
  m.address = address;
  m.element_bytes = plane.packed ? 1 : static_cast<uint32_t>(plane.bits() / 8);
  std::vector<int64_t> box,
      dims = {plane.logical.rows, plane.packed ? plane.stored().cols : plane.logical.cols};
  bool own_sizes = false, own_bytes = false;
  for (size_t at = a.text.find(','); at != std::string::npos;) {
    const size_t end = a.text.find(',', at + 1);
    std::string word = a.text.substr(at + 1, end == std::string::npos ? end : end - at - 1);
    word.erase(0, word.find_first_not_of(' '));
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals),
                      value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key != "box" && key != "dims" && key != "swizzle" && key != "atom" && key != "bytes" && key != "bits")
      refuse("'" + word + "' is none of box=, dims=, swizzle=, atom=, bytes=, bits=");
    std::vector<int64_t> numbers;
    for (const std::string& size : sizes_in(value)) numbers.push_back(integer(size));
    if (key == "box") box = numbers;
    else if (key == "dims") dims = numbers, own_sizes = true;
    else if (key == "swizzle") m.swizzle = static_cast<uint32_t>(numbers.front());
    else if (key == "atom") m.atom = static_cast<uint32_t>(numbers.front());
    else if (key == "bytes") m.element_bytes = static_cast<uint32_t>(numbers.front()), own_bytes = true;
    else if (numbers.front() == 4 && plane.packed) m.half_bytes = true, dims[1] = plane.logical.cols;
    else refuse("bits=4 is for planes of two codes in a byte, and there is no other bits=");
    at = end;
  }
  if (!a.size.empty() && !(own_sizes && own_bytes))
    refuse("needs dims= and bytes=, for only planes have their own");
  if (box.size() == 1 && !own_sizes)
    dims = {static_cast<int64_t>(plane.bytes() / m.element_bytes)}, own_sizes = true;
  if (box.size() != dims.size() || dims.size() > ptx::kMostDimensions)
    refuse("its box has " + std::to_string(box.size()) + " sizes, and the tensor " +
           std::to_string(dims.size()));
  m.rank = static_cast<uint32_t>(dims.size());
  // The innermost size comes last in the text and first in the map. A plane has its own pitch.
  for (size_t d = 0; d < dims.size(); ++d) {
    m.sizes[d] = static_cast<uint64_t>(std::max<int64_t>(dims[dims.size() - 1 - d], 0));
    m.box[d] = static_cast<uint32_t>(box[box.size() - 1 - d]);
    m.strides[d] = d == 0 ? m.element_bytes : m.strides[d - 1] * m.sizes[d - 1];
  }
  if (!own_sizes)
    m.strides[1] = plane.bytes() / static_cast<uint64_t>(std::max<int64_t>(plane.padded.rows, 1));
  try {
    const auto bytes = ptx::encode(m);
    return {bytes.begin(), bytes.end()};
  } catch (const ptx::Fault& e) {
    refuse(e.what());
  }
  return {};
}

}  // namespace assay
