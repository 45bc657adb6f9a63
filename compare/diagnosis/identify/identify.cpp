#include "compare/diagnosis/identify/identify.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/identify/approximate_kernels.h"
#include "compare/diagnosis/identify/choices.h"
#include "compare/diagnosis/patterns/layouts.h"
#include "compare/packs/dump.h"
#include "compare/process/run_in_child.h"
#include "compare/report/report.h"
#include "contract/line.h"
#include "contract/words.h"
#include "fixtures/files.h"

namespace assay {

namespace {

using std::string;
using std::string_view;

// ---- groups of cases -------------------------------------------------------------------------------------------------

// The module of "step12/blocks.0.fc1/weight": the name without its step and its role.
string module_of(const string& id) {
  static const std::set<string, std::less<>> kRoles = {"input", "x", "weight", "w", "output", "y", "grad_output", "dy", "grad_input", "dx", "grad_weight", "dw", "row", "col"};
  string out;
  for (size_t at = 0; at <= id.size();) {
    const size_t end = std::min(id.find('/', at), id.size());
    const string part = id.substr(at, end - at);
    const bool step = (part.starts_with("step") || part.starts_with("iter")) && !part.empty() && part.find_first_of("0123456789") != string::npos && part.find_first_not_of("0123456789_", 4) == string::npos;
    if (!step && !kRoles.contains(part)) out += (out.empty() ? "" : "/") + part;
    at = end + 1;
  }
  return out.empty() ? id : out;
}

struct Case {
  const DumpCase* dump = nullptr;
  Problem problem;
  std::vector<PlaneData> inputs;
  std::vector<Direction> directions;   // what is judged
};
struct Group {
  string module, pack, formats;
  FormatId format = FormatId::identity;
  std::optional<Direction> side;       // of a pair of formats: each direction has its own choices
  std::vector<Case> cases;
  std::vector<string> missing;         // why a case of it is not judged
  std::set<string> absent;             // planes that no case holds
};

// ---- one choice against a group --------------------------------------------------------------------------------------

struct Share {
  int64_t agree = 0, of = 0;
  double value() const { return of ? static_cast<double>(agree) / static_cast<double>(of) : 1; }
  bool all() const { return agree == of; }
};
struct Outcome {
  std::map<string, Share> planes;      // in causal order of `order`
  string bytes;                        // digest of what the choice makes: equal ones cannot be told apart here
  string trouble;                      // it cannot be run
  bool all() const { return trouble.empty() && !planes.empty() && std::all_of(planes.begin(), planes.end(), [](const auto& p) { return p.second.all(); }); }
  double agreement() const {
    double sum = 0;
    for (const auto& [name, share] : planes) sum += share.value();
    return planes.empty() ? 0 : sum / static_cast<double>(planes.size());
  }
};
// Choices that make the same bytes of this group.
struct Class {
  std::vector<Choice> choices;
  Outcome outcome;
};

// Bytes of the logical elements that agree. What a grouped plane holds beyond its members, and padding, is nobody's.
void compare_planes(const PlaneData& got, const PlaneData& want, Share& share) {
  const std::vector<PlaneData> gots = members_of(got), wants = members_of(want);
  for (size_t m = 0; m < wants.size() && m < gots.size(); ++m) {
    const Plane& plane = wants[m].plane;
    share.of += plane.logical.count();
    if (gots[m].bytes == wants[m].bytes) {
      share.agree += plane.logical.count();
      continue;
    }
    for (int64_t r = 0; r < plane.logical.rows; ++r)
      for (int64_t c = 0; c < plane.logical.cols; ++c) {
        const int64_t at = index_of(plane, r, c);
        share.agree += code_at(plane, gots[m].bytes, at) == code_at(plane, wants[m].bytes, at);
      }
  }
}

class Judge {
 public:
  Judge(const Group& group, Subject& reference, const IdentifyOptions& options) : group_(group), reference_(reference), timeout_(options.timeout) {
    environment_.threads = options.jobs > 0 ? options.jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }

  Result<Problem> problem(const Case& c, const string& keys) const { return group_.side ? with_choice(c.problem, keys, *group_.side) : with_choice(c.problem, keys); }

  // A key of the choices that is unknown to the line is trouble of the choice, not of the case.
  const Outcome& outcome(const string& keys) {
    string means;   // what the keys come to, so that te on a line where it is the default is not run again
    std::vector<Problem> problems;
    Outcome out;
    for (const Case& c : group_.cases) {
      auto p = problem(c, keys);
      if (!p) {
        out.trouble = p.error().text();
        return outcomes_[keys] = out;
      }
      p->flavour = Flavour::assay;
      means += to_canonical_line(*p) + "\n";
      problems.push_back(std::move(*p));
    }
    if (const auto known = outcomes_.find(means); known != outcomes_.end()) return known->second;
    string made;
    for (size_t i = 0; i < problems.size() && out.trouble.empty(); ++i) judge(group_.cases[i], problems[i], out, made);
    out.bytes = digest(std::as_bytes(std::span(made)));
    return outcomes_[means] = out;
  }

  // The planes of one choice for one case, or nothing.
  std::optional<std::vector<PlaneData>> planes(const Case& c, const Problem& p) {
    IsolatedRun run = run_isolated(reference_, p, c.inputs, environment_, timeout_);
    if (!run.sound()) {
      trouble_ = run.trouble();
      return {};
    }
    for (PlaneData& plane : run.execution.planes) clear_spare(plane);
    return std::move(run.execution.planes);
  }

 private:
  void judge(const Case& c, const Problem& p, Outcome& out, string& made) {
    const auto want = planes(c, p);
    if (!want) {
      out.trouble = trouble_;
      return;
    }
    for (const PlaneData& plane : *want) {
      if (group_.side && plane.plane.direction != group_.side) continue;
      const PackPlane* recorded = c.dump->recorded->find(plane.plane.name);
      if (!recorded) continue;
      Share& share = out.planes[plane.plane.name];
      const string bytes = digest(plane.bytes);
      made += plane.plane.name + bytes;
      if (!recorded->tensor) {
        const int64_t n = plane.plane.logical.count();
        share.of += n;
        if (recorded->digest == bytes) share.agree += n;
      } else if (const auto got = dump_plane(*recorded->tensor, plane.plane, &plane)) {
        compare_planes(*got, plane, share);
      } else {
        out.trouble = plane.plane.name + ": " + got.error().text();
      }
    }
  }

  const Group& group_;
  Subject& reference_;
  double timeout_;
  Environment environment_;
  string trouble_;
  std::map<string, Outcome> outcomes_;
};

// Classes by what they make, the best first; among equals in the order of the choices.
std::vector<Class> rank(Judge& judge, const std::vector<Choice>& choices) {
  std::vector<Class> out;
  for (const Choice& choice : choices) {
    const Outcome& outcome = judge.outcome(choice.keys);
    if (!outcome.trouble.empty() || outcome.planes.empty()) continue;
    const auto same = std::find_if(out.begin(), out.end(), [&](const Class& c) { return c.outcome.bytes == outcome.bytes; });
    if (same != out.end()) same->choices.push_back(choice);
    else out.push_back({{choice}, outcome});
  }
  std::stable_sort(out.begin(), out.end(), [](const Class& a, const Class& b) { return std::pair(a.outcome.all(), a.outcome.agreement()) > std::pair(b.outcome.all(), b.outcome.agreement()); });
  return out;
}

std::vector<Choice> choices_for(Judge& judge, const Group& group) {
  std::vector<Choice> out = choices_of(group.format);
  const Problem& first = group.cases.front().problem;
  auto quantizers = [](const Result<Problem>& p) { return std::pair(p->row, p->col); };
  const auto te = judge.problem(group.cases.front(), "flavour=te");
  for (const char* arch : {"sm90", "sm120"})
    if (const auto other = judge.problem(group.cases.front(), string("flavour=te arch=") + arch); te && other && quantizers(te) != quantizers(other))
      out.insert(out.begin() + 2, {string("te arch=") + arch, string("flavour=te arch=") + arch});
  if (const auto plain = judge.problem(group.cases.front(), ""); plain && first.flavour == Flavour::assay && quantizers(plain) != std::pair(first.row, first.col) && !group.side) {
    string keys;   // the Numerics that the line itself names
    const string line = to_line(first);
    for (size_t at = 0; at < line.size();) {
      const size_t end = std::min(line.find(' ', at), line.size());
      const string word = line.substr(at, end - at), key = word.substr(0, word.find('='));
      const string stem = key.starts_with("row.") || key.starts_with("col.") ? key.substr(4) : key;
      if (std::any_of(kNumerics.begin(), kNumerics.end(), [&](const NumericInfo& n) { return n.name == stem; })) keys += (keys.empty() ? "" : " ") + word;
      at = end + 1;
    }
    out.insert(out.begin(), {"the line's own: " + keys, keys});
  }
  return out;
}

// One more key on top of a choice: every value of every Numerics field, and what a dumper may have told wrong.
std::vector<Choice> changes_of(const Choice& base) {
  std::vector<Choice> out;
  auto add = [&](string_view key, string_view value) {
    const string keys = (base.keys.empty() ? "" : base.keys + " ") + string(key) + "=" + string(value);
    out.push_back({(base.name == "defaults" ? "" : base.name + " ") + string(key) + "=" + string(value), keys});
  };
  for (const NumericInfo& n : kNumerics)
    for (size_t at = 0; at < n.values.size();) {
      const size_t end = std::min(n.values.find(',', at), n.values.size());
      add(n.name, n.values.substr(at, end - at));
      at = n.values.find_first_not_of(", ", end);
    }
  for (const char* v : {"0", "1"}) add("pow2", v);
  for (const char* v : {"0", "1e-12", "1e-10", "1e-4", "0.001953125"}) add("eps", v);
  for (const char* v : {"e4m3", "e5m2"}) add("element", v);
  for (string_view v : words_of(kWords<Block>, ',')) add("block", v);
  for (const char* v : {"off", "mae", "mse"}) add("four_over_six", v);
  add("rht", "0");
  return out;
}

// ---- the answer for a group ------------------------------------------------------------------------------------------

struct Approximation {
  const Approximate* kernel;
  Consistency sum;
};
struct Fit {
  Choice choice;
  string plane, name, description;
};
struct Answer {
  std::vector<Class> ranking, changed;      // changed: exact ones with one or two more keys, where no choice is exact
  std::vector<Fit> layouts;                 // of planes that a choice makes in another order, where no choice is exact
  std::vector<Approximation> approximate;   // kernels that the bytes are consistent with
  std::vector<std::pair<string, std::vector<std::vector<string>>>> apart;   // fill, and how it parts the exact choices
  bool named() const { return (!ranking.empty() && ranking.front().outcome.all()) || !changed.empty() || !layouts.empty() || !approximate.empty(); }
};

// Fills on which choices that made equal bytes here differ: the first one, and more while they part further.
std::vector<std::pair<string, std::vector<std::vector<string>>>> tell_apart(const Group& group, const std::vector<Choice>& choices, Subject& reference) {
  std::vector<std::pair<string, std::vector<std::vector<string>>>> out;
  Problem base = group.cases.front().problem;
  base.op = Quantize{};
  base.x.shape = {64, 256};
  size_t parts = 1;
  for (FillKind kind : {FillKind::nonfinite, FillKind::zeros, FillKind::negative_zeros, FillKind::amax_edges, FillKind::ties, FillKind::denormal, FillKind::wide, FillKind::normal}) {
    base.x.fill = Fill{};
    base.x.fill.kind = kind;
    std::map<string, std::vector<string>> by_bytes;
    std::vector<string> order;
    for (const Choice& choice : choices) {
      const auto p = group.side ? with_choice(base, choice.keys, *group.side) : with_choice(base, choice.keys);
      const auto inputs = p ? make_inputs(*p, reference) : Result<std::vector<PlaneData>>(Error{});
      if (!inputs) continue;
      const IsolatedRun run = run_isolated(reference, *p, *inputs, Environment{}, 60);
      string bytes;
      for (const PlaneData& plane : run.execution.planes) bytes += digest(plane.bytes);
      if (by_bytes[bytes].empty()) order.push_back(bytes);
      by_bytes[bytes].push_back(choice.name);
    }
    if (order.size() <= parts) continue;
    parts = order.size();
    std::vector<std::vector<string>> split;
    for (const string& bytes : order) split.push_back(by_bytes[bytes]);
    const string line = to_line(base);
    out.assign(1, {line.substr(line.find("fill=") == string::npos ? line.size() : line.find("fill=")), split});
    if (out.front().first.empty()) out.front().first = "fill=normal";
    if (parts == choices.size()) break;
  }
  return out;
}

// The first choice of the ranking whose every plane that differs is the wanted one in another order, by the group's first case.
std::vector<Fit> layouts_of(Judge& judge, const Group& group, const std::vector<Class>& ranking) {
  const Case& c = group.cases.front();
  for (const Class& choice : ranking) {
    const auto p = judge.problem(c, choice.choices.front().keys);
    const auto want = p ? judge.planes(c, *p) : std::nullopt;
    if (!want) continue;
    std::vector<Fit> found;
    bool explained = true;
    for (const PlaneData& plane : *want) {
      const PackPlane* recorded = c.dump->recorded->find(plane.plane.name);
      if (!recorded || !recorded->tensor || !plane.plane.members.empty() || (group.side && plane.plane.direction != group.side)) continue;
      const auto got = dump_plane(*recorded->tensor, plane.plane, &plane);
      if (!got || got->bytes == plane.bytes) continue;
      const std::vector<LayoutFit> fits = fit_layouts(plane.plane, got->bytes, plane.bytes);
      if (fits.empty() || !fits.front().exact) explained = false;
      else found.push_back({choice.choices.front(), plane.plane.name, fits.front().name, fits.front().description});
    }
    if (explained && !found.empty()) return found;
  }
  return {};
}

// The smallest case that the best choice does not make.
Group smallest_open(const Group& group, const Choice& best, Subject& reference, const IdentifyOptions& options) {
  Group out = group;
  out.cases.clear();
  for (const Case& c : group.cases) {
    Group one = out;
    one.cases = {c};
    const bool smaller = out.cases.empty() || c.problem.x.shape.count() < out.cases.front().problem.x.shape.count();
    if (smaller && !Judge(one, reference, options).outcome(best.keys).all()) out.cases = {c};
  }
  return out;
}

// Exact choices that are one more key, or two, away from one of the three best. They are looked for on the smallest case that tells, and then held to all.
std::vector<Class> one_or_two_keys(Judge& judge, const Group& group, const std::vector<Class>& ranking, Subject& reference, const IdentifyOptions& options) {
  const Group small = smallest_open(group, ranking.front().choices.front(), reference, options);
  if (small.cases.empty()) return {};
  Judge screen(small, reference, options);
  std::vector<Choice> found, next;
  for (size_t i = 0; i < std::min<size_t>(3, ranking.size()); ++i) {
    const Choice& base = ranking[i].choices.front();
    const double before = screen.outcome(base.keys).agreement();
    const std::vector<Class> changed = rank(screen, changes_of(base));
    for (const Class& c : changed)
      if (c.outcome.all()) found.push_back(c.choices.front());
      else if (next.size() < 4 && c.outcome.agreement() > before) next.push_back(c.choices.front());
  }
  if (found.empty())
    for (const Choice& base : next)
      for (const Class& c : rank(screen, changes_of(base)))
        if (c.outcome.all()) found.push_back(c.choices.front());
  std::vector<Class> out = rank(judge, found);
  std::erase_if(out, [](const Class& c) { return !c.outcome.all(); });
  return out;
}

Answer answer(const Group& group, Subject& reference, const IdentifyOptions& options) {
  Answer out;
  Judge judge(group, reference, options);
  out.ranking = rank(judge, choices_for(judge, group));
  if (out.ranking.empty()) return out;
  if (out.ranking.front().outcome.all()) {
    if (out.ranking.front().choices.size() > 1) out.apart = tell_apart(group, out.ranking.front().choices, reference);
  } else {
    out.layouts = layouts_of(judge, group, out.ranking);
    if (out.layouts.empty()) out.changed = one_or_two_keys(judge, group, out.ranking, reference, options);
  }
  for (const Approximate& kernel : approximates()) {
    if (kernel.format != group.format || group.side) continue;
    Approximation a{&kernel, {}};
    a.sum.decided = true;
    for (const Case& c : group.cases) {
      std::vector<PlaneData> got;
      for (const Plane& plane : output_planes(c.problem))
        if (const PackPlane* recorded = c.dump->recorded->find(plane.name); recorded && recorded->tensor)
          if (auto data = dump_plane(*recorded->tensor, plane)) got.push_back(std::move(*data));
      const Consistency one = consistent(kernel, c.problem, c.inputs, got);
      a.sum.decided = a.sum.decided && one.decided;
      a.sum.amaxes_outside += one.amaxes_outside;
      a.sum.scales_outside += one.scales_outside;
      a.sum.scales_of += one.scales_of;
      a.sum.codes_outside += one.codes_outside;
      a.sum.codes_of += one.codes_of;
    }
    if (a.sum.consistent()) out.approximate.push_back(a);
  }
  return out;
}

// ---- text and JSON ---------------------------------------------------------------------------------------------------

string share_text(const Share& s) {
  if (s.all()) return "all";
  return fmt::format("{:.2f} %", std::floor(10000 * s.value()) / 100);
}

// A word of a command; quoted where it needs it.
string word(const string& text) { return text.find_first_of(" '\"\\$`*?!&|;<>()[]{}#~") == string::npos && printable(text) == text ? text : shell_quoted(text); }

const FlavourInfo* row_of(const Choice& choice) {
  for (const FlavourInfo& f : flavours())
    if (choice.keys == "flavour=" + string(f.name)) return &f;
  return nullptr;
}

// Planes of both directions together, in causal order: "scales 98.82 % codes all     ocp". Names behind the shares, broken where a line is full.
string class_text(const Class& c) {
  Share amax, scale, scales, codes;
  for (const auto& [name, share] : c.outcome.planes) {
    const string_view stem = string_view(name).substr(name.find('.') + 1);
    if (stem.ends_with("offsets")) continue;
    Share& sum = stem == "amax" ? amax : stem == "scale" ? scale : stem == "data" ? codes : scales;
    sum.agree += share.agree;
    sum.of += share.of;
  }
  string out = c.outcome.all() ? "  =" : "   ";
  for (const auto& [label, share] : {std::pair("amax", amax), std::pair("scale", scale), std::pair("scales", scales), std::pair("codes", codes)})
    if (share.of) out += fmt::format(" {} {:<7}", label, share_text(share));
  const size_t indent = out.size() + 2;
  size_t width = indent;
  out += "  ";
  for (const Choice& choice : c.choices) {
    if (width > indent && width + choice.name.size() > 150) {
      out += ",\n" + string(indent, ' ');
      width = indent;
    } else if (width > indent) {
      out += ", ";
    }
    out += choice.name;
    width += choice.name.size() + 2;
  }
  return out + "\n";
}

string text_of(const Group& group, const Answer& a, size_t most) {
  string out = fmt::format("{}   {}{}, {} case{}   {}\n", printable(group.module), group.formats, group.side ? " " + string(name_of(*group.side)) : "", group.cases.size(), group.cases.size() == 1 ? "" : "s", printable(group.pack.size() > 100 ? group.pack.substr(0, 97) + "..." : group.pack));
  if (!group.cases.empty()) {
    for (const Class& c : a.changed) out += class_text(c);
    for (size_t i = 0; i < a.ranking.size() && i < most; ++i) out += class_text(a.ranking[i]);
    if (a.ranking.empty()) out += "    no choice runs on this line, or the packs hold none of its output planes\n";
    if (!a.ranking.empty() && a.ranking.front().outcome.all()) {
      size_t rows = 0;
      for (const Choice& c : a.ranking.front().choices) rows += row_of(c) != nullptr;
      for (const Choice& c : a.ranking.front().choices)
        if (const FlavourInfo* row = row_of(c); row && rows <= 3) out += fmt::format("    {} is {}\n", c.name, row->users);
      if (a.ranking.front().choices.size() > 1) {
        if (a.apart.empty()) out += "    these make equal bytes of this input, and of every fill tried\n";
        for (const auto& [fill, parts] : a.apart) {
          string text;
          for (const auto& part : parts) {
            text += text.empty() ? "" : " | ";
            for (size_t i = 0; i < part.size(); ++i) text += (i ? ", " : "") + part[i];
          }
          out += fmt::format("    this input does not tell them apart; {} does: {}\n", fill, text);
        }
      }
    } else if (!a.changed.empty()) {
      out += "    no named set makes these bytes; the ones above marked = do, with the keys added\n";
    }
    for (const Fit& f : a.layouts) out += fmt::format("  = {}, with {} in another layout: {}\n", f.choice.name, f.plane, f.description);
    string kernels;
    for (const Approximation& x : a.approximate) kernels += (kernels.empty() ? "" : ", ") + string(x.kernel->name);
    if (!kernels.empty()) out += fmt::format("  ~ consistent with {} (approximate reciprocals, N17.13)\n", kernels);
    if (!a.named() && !a.ranking.empty()) out += fmt::format("    nobody known makes these bytes; nearest first. `assay explain {} --case {}` looks for the cause\n", word(group.cases.front().dump->pack->path),
                                                        word(group.cases.front().dump->recorded->id));
  }
  if (!group.absent.empty()) {
    string text;
    for (const string& p : group.absent) text += " " + p;
    out += "    not judged, absent from the pack:" + text + "\n";
  }
  for (const string& m : group.missing) out += "    not judged: " + printable(m) + "\n";
  if (group.cases.empty() && std::any_of(group.missing.begin(), group.missing.end(), [](const string& m) { return m.find("no plane x") != string::npos; }))
    out += "    identify needs the tensor before quantization: pass x= to Pack.add (docs/from-a-tensor-dump.md); `assay check --coherence` needs none\n";
  return out + "\n";
}

json::Value json_of(const std::vector<Class>& classes) {
  json::Value out = json::array();
  for (const Class& c : classes) {
    json::Value list = json::array(), planes = json::array();
    for (const Choice& choice : c.choices) list.push(json::object({{"name", choice.name}, {"keys", choice.keys}}));
    for (const auto& [name, share] : c.outcome.planes) planes.push(json::object({{"plane", name}, {"agree", share.agree}, {"of", share.of}}));
    out.push(json::object({{"choices", list}, {"exact", c.outcome.all()}, {"planes", planes}}));
  }
  return out;
}

json::Value json_of(const Group& group, const Answer& a) {
  json::Value cases = json::array(), missing = json::array(), layouts = json::array(), approximate = json::array();
  for (const Case& c : group.cases) cases.push(c.dump->where());
  for (const string& m : group.missing) missing.push(m);
  for (const Fit& f : a.layouts) layouts.push(json::object({{"choice", f.choice.name}, {"plane", f.plane}, {"layout", f.name}, {"description", f.description}}));
  for (const Approximation& x : a.approximate) approximate.push(json::object({{"kernel", x.kernel->name}, {"scales", x.sum.scales_of}, {"codes", x.sum.codes_of}}));
  json::Value out = json::object({{"module", group.module}, {"pack", group.pack}, {"formats", group.formats}, {"named", a.named()}, {"cases", cases}, {"not_judged", missing},
                                  {"ranking", json_of(a.ranking)}, {"with_more_keys", json_of(a.changed)}, {"layouts", layouts}, {"consistent", approximate}});
  if (group.side) out.set("direction", name_of(*group.side));
  return out;
}

}  // namespace

int run_identify(const IdentifyOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  const auto dump = read_dump(options.paths);
  if (!dump) {
    fmt::print(err, "error: {}\n", printable(dump.error().text()));
    return 2;
  }
  // Cases of one module made by one program belong together, over steps and roles.
  std::vector<Group> groups;
  for (const DumpCase& c : dump->cases) {
    if (!options.filter.empty() && c.where().find(options.filter) == string::npos) continue;
    const string module = module_of(c.recorded->id);
    const auto problem = problem_of(*c.recorded);
    const bool pair = problem && problem->row && problem->col && problem->row->format != problem->col->format;
    std::vector<std::optional<Direction>> sides{std::nullopt};
    if (pair) sides = {Direction::row, Direction::col};
    for (const auto& side : sides) {
      const std::optional<Quantizer>& q = problem ? (side ? problem->quantizer(*side) : problem->row ? problem->row : problem->col) : std::nullopt;
      const string formats = q ? string(info(q->format).name) : "?";
      string pack = c.pack->path.substr(c.pack->path.rfind('/') + 1);
      if (!c.pack->fingerprint.empty()) pack += " (" + c.pack->fingerprint + ")";
      auto at = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
        return g.module == module && g.formats == formats && g.side == side && (g.pack == pack || (!c.pack->fingerprint.empty() && g.pack.ends_with("(" + c.pack->fingerprint + ")")));
      });
      if (at == groups.end()) {
        groups.push_back({module, pack, formats, q ? q->format : FormatId::identity, side, {}, {}, {}});
        at = groups.end() - 1;
      }
      auto skip = [&](const string& why) { at->missing.push_back(c.recorded->id + ": " + why); };
      if (!problem) skip(problem.error().text());
      else if (!problem->as<Quantize>() && !problem->as<Split>()) skip("a " + string(op_name(*problem)) + " has no choices; identify takes quantize and split");
      else if (auto inputs = dump_inputs(*c.recorded, *problem, subjects.reference()); !inputs) skip(inputs.error().text());
      else {
        for (const Plane& plane : output_planes(*problem))
          if (!c.recorded->find(plane.name) && (!side || plane.direction == side)) at->absent.insert(plane.name);
        at->cases.push_back({&c, *problem, std::move(*inputs), {}});
      }
    }
  }
  if (groups.empty()) {
    fmt::print(err, "error: no case{}: expected tensors named <case>/<plane> and metadata assay.line.<case> (docs/packs.md)\n", options.filter.empty() ? "" : " whose name contains '" + options.filter + "'");
    return 3;
  }
  size_t named = 0;
  json::Value all = json::array();
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& group = groups[i];
    if (options.progress) fmt::print(err, "\r\x1b[K{} of {}: {}", i + 1, groups.size(), printable(group.module));
    const Answer a = group.cases.empty() ? Answer{} : answer(group, subjects.reference(), options);
    if (options.progress) fmt::print(err, "\r\x1b[K");
    named += a.named();
    fmt::print(out, "{}", text_of(group, a, options.most));
    all.push(json_of(group, a));
  }
  fmt::print(out, "{} named, {} not named\n", named, groups.size() - named);
  if (!options.json.empty())
    if (auto error = write_file(options.json, json::dump(json::object({{"version", 1}, {"groups", all}}), 1) + "\n")) {
      fmt::print(err, "error: {}\n", error->text());
      return 2;
    }
  return named == groups.size() ? 0 : 1;
}

}  // namespace assay
