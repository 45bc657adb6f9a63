#include "compare/commands/diff.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "compare/commands/case_screen.h"
#include "compare/commands/options.h"
#include "compare/packs/dump.h"
#include "compare/packs/pack.h"
#include "compare/process/interrupt.h"
#include "compare/text/printable.h"
#include "contract/line.h"

namespace assay {

namespace {

using std::string;

// A plane made from a tensor alone, where no line says what it is.
Plane plane_of(const string& name, const safetensors::Tensor& t) {
  using enum safetensors::Dtype;
  Plane p;
  p.name = name;
  const int bits = safetensors::bits(t.dtype);
  p.encoding = t.dtype == F32       ? Encoding::f32
               : t.dtype == BF16    ? Encoding::bf16
               : t.dtype == F16     ? Encoding::f16
               : t.dtype == F8_E4M3 ? Encoding::e4m3
               : t.dtype == F8_E5M2 ? Encoding::e5m2
               : bits == 16         ? Encoding::bf16
               : bits == 32         ? Encoding::f32
                                    : Encoding::e8m0;  // bytes of unknown meaning
  const int64_t count = static_cast<int64_t>(t.bytes.size()) / info(p.encoding).bytes();
  const int64_t cols = t.shape.empty() || bits < 8 || bits > 32 ? count : t.shape.back();
  p.logical = p.padded = cols > 0 ? Shape{count / cols, cols} : Shape{0, 0};
  return p;
}

// Causal order of plane names where no line gives one.
int stage(const string& name) {
  static constexpr std::string_view kStages[] = {"x",     "given",     "prior",      "noop", "amax",
                                                 "scale", "scale_inv", "scale_gemm", "data", "y"};
  const string last = name.substr(name.rfind('.') + 1);
  for (size_t i = 0; i < std::size(kStages); ++i)
    if (last == kStages[i] || name.find(string(kStages[i]) + ".") != string::npos) return static_cast<int>(i);
  return static_cast<int>(std::size(kStages));
}

// The planes of both cases: those of the line in causal order, then the others by their stage.
std::vector<string> plane_names(const PackCase& a, const PackCase& b, const std::vector<Plane>& order) {
  std::vector<string> names, others;
  for (const Plane& p : order) names.push_back(p.name);
  auto contains = [](const std::vector<string>& list, const string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const PackCase* c : {&a, &b})
    for (const PackPlane& p : c->planes)
      if (!contains(names, p.name) && !contains(others, p.name)) others.push_back(p.name);
  std::stable_sort(others.begin(), others.end(),
                   [](const string& l, const string& r) { return stage(l) < stage(r); });
  names.insert(names.end(), others.begin(), others.end());
  return names;
}

string digest_of(const PackPlane& p) {
  return p.digest.empty() && p.tensor ? digest(p.tensor->bytes) : p.digest;
}

// The bytes that both packs hold, plane by plane.
struct BothSides {
  std::vector<PlaneData> left, right;
  string first_digest;  // the first plane of which only digests can be compared, and which differ
};

BothSides both_sides(const PackCase& a, const PackCase& b, const std::vector<Plane>& order,
                     CaseReport& report) {
  BothSides out;
  for (const string& name : plane_names(a, b, order)) {
    const PackPlane *l = a.find(name), *r = b.find(name);
    if (!l && !r) continue;
    if (!l || !r) {
      report.missing.push_back(name);
      continue;
    }
    if (l->tensor && r->tensor) {
      const auto known =
          std::find_if(order.begin(), order.end(), [&](const Plane& p) { return p.name == name; });
      auto read = [&](const safetensors::Tensor& t) {
        return dump_plane(t, known != order.end() ? *known : plane_of(name, t));
      };
      auto le = read(*l->tensor), re = read(*r->tensor);
      if (!le || !re) {
        report.breach = message_breach(name + ": " + (le ? re.error().text() : le.error().text()));
        return out;
      }
      out.left.push_back(std::move(*le));
      out.right.push_back(std::move(*re));
    } else if (digest_of(*l) != digest_of(*r) && out.first_digest.empty()) {
      out.first_digest = name;
    }
    report.judged.push_back(name);
  }
  return out;
}

CaseReport diff_case(const PackCase& a, const PackCase& b) {
  CaseReport report;
  if (a.line != b.line && !a.line.empty() && !b.line.empty())
    report.notes.push_back("the lines differ: " + b.line);
  if (!a.unpinned.empty() || !b.unpinned.empty())
    report.notes.push_back(
        "bits of d are not pinned (N16.13): a difference may be one of order alone, and assay check judges "
        "each by the bound; " +
        (a.unpinned.empty() ? b : a).unpinned);
  const auto parsed = parse_line(a.line.empty() ? b.line : a.line);
  std::vector<Plane> order;
  if (parsed) {
    order = input_planes(*parsed);
    const std::vector<Plane> outputs = output_planes(*parsed);
    order.insert(order.end(), outputs.begin(), outputs.end());
  }
  const BothSides planes = both_sides(a, b, order, report);
  if (report.breach || report.judged.empty()) return report;
  if (!planes.left.empty()) {
    const Problem none;
    const Judgement judgement = judge(parsed ? &*parsed : nullptr, planes.left, planes.right);
    report.breach = breach_of(parsed ? *parsed : none, judgement, "first", "second");
  }
  if (!report.breach && !planes.first_digest.empty())
    report.breach = message_breach(planes.first_digest +
                                   ": the digests differ; the bytes were not recorded on both sides");
  return report;
}

// The case of `b` that `c` is compared with: of the same id, and of the same line where ids count the lines
// of different suites.
const PackCase* partner_of(const PackCase& c, const Pack& b) {
  const PackCase* partner = b.find(c.id);
  if (partner && (c.line.empty() || partner->line == c.line)) return partner;
  for (const PackCase& other : b.cases)
    if (!c.line.empty() && other.line == c.line) partner = &other;
  return partner;
}

}  // namespace

int run_diff(const DiffOptions& options, std::ostream& out, std::ostream& err) {
  const auto a = read_pack(options.a), b = read_pack(options.b);
  for (const auto* pack : {&a, &b})
    if (!*pack) {
      err << "assay: " << printable(pack->error().text()) << "\n";
      return 2;
    }
  std::vector<std::pair<const PackCase*, const PackCase*>> pairs;
  CasePrinter printer(out);
  std::set<const PackCase*> used;
  std::vector<const PackCase*> ordered;
  for (const PackCase& c : a->cases) ordered.push_back(&c);
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const PackCase* l, const PackCase* r) { return dump_order(l->id, r->id); });
  const InterruptScope scope;
  size_t judged = 0;
  for (const PackCase* c : ordered) {
    if (interrupted()) break;
    ++judged;
    const PackCase* partner = partner_of(*c, *b);
    if (!partner || !used.insert(partner).second) {
      printer.skip(a->path + ":" + c->id, "only in " + a->path);
      continue;
    }
    const CaseReport report = diff_case(*c, *partner);
    if (report.judged.empty() && !report.breach)
      printer.skip(a->path + ":" + c->id, "the packs have no plane in common");
    else printer.print(c->id, c->line, "first == second", report);
  }
  if (judged < ordered.size()) {
    printer.print_first();
    return printer.finish_interrupted(judged, ordered.size());
  }
  for (const PackCase& c : b->cases)
    if (!used.contains(&c)) printer.skip(b->path + ":" + c.id, "only in " + b->path);
  printer.print_first();
  return printer.finish();
}

void register_diff(Program& program) {
  const auto diff = std::make_shared<DiffOptions>();
  Command c(program.app, "diff", "compare two dumps with each other, without trusting either");
  c.footer(
      "Examples:\n"
      "  assay diff before.safetensors after.safetensors\n"
      "Exit status: 0 what both hold is equal; 1 something differs; 2 bad input; 3 they have nothing in "
      "common; 130 it "
      "was interrupted before anything differed.");
  c.option("a", diff->a, "a pack").required();
  c.option("b", diff->b, "another").required();
  c.callback([&program, diff] { program.status = run_diff(*diff, std::cout, std::cerr); });
}

}  // namespace assay
