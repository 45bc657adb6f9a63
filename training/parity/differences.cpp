#include "training/parity/differences.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fixtures/json.h"
#include "training/kit/records.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

string hex_at(const std::vector<std::byte>& bytes, size_t i) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  const unsigned b = std::to_integer<unsigned>(bytes[i]);
  return {kDigits[b >> 4], kDigits[b & 15]};
}

}  // namespace

Found compare_bytes(const string& what, const std::vector<std::byte>& got, const std::vector<std::byte>& want,
                    int64_t& compared) {
  if (got.size() != want.size())
    return Difference{what, std::to_string(want.size()) + " bytes", std::to_string(got.size()) + " bytes"};
  compared += static_cast<int64_t>(got.size());
  const auto at =
      static_cast<size_t>(std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin());
  if (at == got.size()) return std::nullopt;
  size_t differ = 0;
  for (size_t i = 0; i < got.size(); ++i) differ += got[i] != want[i];
  return Difference{what, hex_at(want, at) + " at byte " + std::to_string(at),
                    hex_at(got, at) + "; " + std::to_string(differ) + " of " + std::to_string(got.size()) +
                        " bytes differ"};
}

namespace {

std::vector<std::byte> bytes_of_array(const ArrayPtr& a) {
  if (!a) return {};
  const ArrayPtr dense = contiguous(a);
  const auto bytes = std::as_const(*dense).bytes();
  return {bytes.begin(), bytes.end()};
}

// Operand planes and result of every GEMM of one kind.
Found compare_gemms(string_view kind, const StepRecord& got, const StepRecord& want, int64_t& compared) {
  const std::vector<const GemmRecord*> a = gemms_of(got, kind), b = gemms_of(want, kind);
  if (a.size() != b.size() || b.empty())
    return Difference{"GEMMs of " + string(kind), std::to_string(b.size()), std::to_string(a.size())};
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i]->name != b[i]->name) return Difference{"name of a GEMM", b[i]->name, a[i]->name};
    if (a[i]->planes.size() != b[i]->planes.size())
      return Difference{a[i]->name + ": operand planes", std::to_string(b[i]->planes.size()),
                        std::to_string(a[i]->planes.size())};
    for (size_t p = 0; p < a[i]->planes.size(); ++p) {
      const PlaneData &x = a[i]->planes[p], &y = b[i]->planes[p];
      if (x.plane.name != y.plane.name)
        return Difference{a[i]->name + ": operand plane", y.plane.name, x.plane.name};
      if (Found d = compare_bytes(a[i]->name + ": " + x.plane.name, x.bytes, y.bytes, compared)) return d;
    }
    if (a[i]->line != b[i]->line) return Difference{a[i]->name + ": settings", b[i]->line, a[i]->line};
    if (Found d = compare_bytes(a[i]->name + ": result", bytes_of_array(a[i]->out), bytes_of_array(b[i]->out),
                                compared))
      return d;
  }
  return std::nullopt;
}

// Outputs that one kind of GEMM decides.
Found compare_outputs(const std::function<bool(const string&)>& wanted, const StepRecord& got,
                      const StepRecord& want, int64_t& compared) {
  for (const NamedArray& y : want.outputs) {
    if (!wanted(y.name)) continue;
    const ArrayPtr x = output_of(got, y.name);
    if (!x) return Difference{y.name, "present", "absent"};
    if (Found d = compare_bytes(y.name, bytes_of_array(x), bytes_of_array(y.array), compared)) return d;
  }
  return std::nullopt;
}

// A quantizer's settings for each direction, without what differs between the routes on purpose: class,
// usages, storage kind.
json::Value settings_of(const json::Value& quantizer, string_view child) {
  if (const json::Value* sub = quantizer.find(child)) return settings_of(*sub, child);
  json::Value out = json::object();
  if (!quantizer.object()) return out;
  for (const auto& [key, value] : *quantizer.object())
    if (key != "rowwise_usage" && key != "columnwise_usage" && key != "internal" &&
        key != "optimize_for_gemm" && key != "amax_reduction_group" && key != "with_amax_reduction")
      out.set(key, value);
  return out;
}

Found compare_quantizers(const RoleList& roles, const std::vector<json::Value>& got,
                         const std::vector<json::Value>& want) {
  if (got.size() != want.size())
    return Difference{"quantizers", std::to_string(want.size()), std::to_string(got.size())};
  for (size_t i = 0; i < got.size(); ++i) {
    if (!roles || i >= roles->size() || !(*roles)[i]) continue;  // a boundary without a consumer
    for (const string_view child : {string_view("rowwise_quantizer"), string_view("columnwise_quantizer")})
      if (const json::Value x = settings_of(got[i], child), y = settings_of(want[i], child); x != y)
        return Difference{"quantizer of " + to_text(*(*roles)[i]), json::dump(y), json::dump(x)};
  }
  return std::nullopt;
}

Found compare_roles(const RoleList& got, const RoleList& want) {
  if (got.has_value() != want.has_value() || (got && got->size() != want->size()))
    return Difference{"role list", "vanilla's", "another length"};
  for (size_t i = 0; got && i < got->size(); ++i) {
    const RolePtr &x = (*got)[i], &y = (*want)[i];
    if (!x != !y || (x && *x != *y))
      return Difference{"role " + std::to_string(i), y ? to_text(*y) : "none", x ? to_text(*x) : "none"};
  }
  return std::nullopt;
}

template <class T>
Found compare_lists(const string& what, const std::vector<T>& got, const std::vector<T>& want,
                    std::type_identity_t<string (*)(const T&)> text = to_text) {
  const auto words = [&](const std::vector<T>& list) {
    string out;
    for (const T& item : list) out += (out.empty() ? "" : ", ") + text(item);
    return out.empty() ? string("none") : out;
  };
  const string x = words(got), y = words(want);
  return x == y ? std::nullopt : Found(Difference{what, y, x});
}

// A hybrid reduces in each of its two launches where vanilla reduces in its one: the same tensor over the
// same group twice in a row counts once.
std::vector<Collective> once_per_tensor(std::vector<Collective> trace) {
  trace.erase(std::unique(trace.begin(), trace.end()), trace.end());
  return trace;
}

// Roles and quantizers of a cell of one format.
Found compare_plans(const Cell& c, const StepRecord& hybrid, const StepRecord& vanilla) {
  if (Found x = compare_roles(hybrid.forward_roles, vanilla.forward_roles)) return x;
  if (Found x = compare_roles(hybrid.backward_roles, vanilla.backward_roles)) return x;
  // A factory's quantizers are compared by what each direction makes of them, before anything runs.
  if (!c.factory.empty()) return std::nullopt;
  if (Found x =
          compare_quantizers(vanilla.forward_roles, hybrid.forward_quantizers, vanilla.forward_quantizers))
    return x;
  return compare_quantizers(vanilla.backward_roles, hybrid.backward_quantizers, vanilla.backward_quantizers);
}

// Random states.
Found compare_draws(const StepRecord& hybrid, const StepRecord& vanilla) {
  const auto text = [](const RngDraw& r) { return std::to_string(r.offset) + (r.used ? "" : " unused"); };
  if (Found x = compare_lists("random states drawn", hybrid.draws, vanilla.draws, text)) return x;
  if (hybrid.rng_offset == vanilla.rng_offset) return std::nullopt;
  return Difference{"generator's offset after the step", std::to_string(vanilla.rng_offset),
                    std::to_string(hybrid.rng_offset)};
}

}  // namespace

Found compare_steps(const Cell& c, const StepRecord& hybrid, const std::array<StepRecord, 3>& vanilla,
                    bool states_given, int64_t& compared) {
  const StepRecord &f = vanilla[0], &d = vanilla[1], &w = vanilla[2];
  const bool one = c.formats.one() && c.backward_override.empty() && c.formats.fprop != "identity";
  if (one)
    if (Found x = compare_plans(c, hybrid, f)) return x;
  if (Found x = compare_gemms("fprop", hybrid, f, compared)) return x;
  if (Found x = compare_outputs([](const string& n) { return n == "output"; }, hybrid, f, compared)) return x;
  if (Found x = compare_gemms("dgrad", hybrid, d, compared)) return x;
  if (Found x = compare_gemms("wgrad", hybrid, w, compared)) return x;
  const auto of_wgrad = [](const string& n) {
    return n.find("weight") != string::npos && n.find("layer_norm") == string::npos;
  };
  const auto of_dgrad = [&](const string& n) { return n != "output" && !of_wgrad(n); };
  if (Found x = compare_outputs(of_dgrad, hybrid, d, compared)) return x;
  if (Found x = compare_outputs(of_wgrad, hybrid, w, compared)) return x;
  if (!one) return std::nullopt;
  if (!states_given)
    if (Found x = compare_draws(hybrid, f)) return x;
  const auto meetings = [&](const StepRecord& r) {
    std::vector<Collective> trace = r.collectives;
    // What travels as codes reduces its amax before, what is quantized whole after: bytes tell which was
    // right.
    if (c.sequence) std::erase_if(trace, [](const Collective& x) { return x.what == "all_reduce_max"; });
    return once_per_tensor(std::move(trace));
  };
  if (Found x = compare_lists("collectives", meetings(hybrid), meetings(f))) return x;
  return compare_lists("workspaces", hybrid.cache, f.cache);
}

}  // namespace assay::training
