#include "compare/commands/identify.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "compare/commands/options.h"
#include "compare/diagnosis/identify/answer.h"
#include "compare/diagnosis/identify/groups.h"
#include "compare/packs/dump.h"
#include "compare/process/interrupt.h"
#include "compare/text/printable.h"
#include "compare/text/shell.h"
#include "compare/text/terminal.h"
#include "contract/flavours.h"
#include "fixtures/files.h"
#include "fixtures/json.h"

namespace assay {

using namespace identifying;

namespace {

using std::string;
using std::string_view;

string share_text(const Share& s) {
  if (s.all()) return "all";
  return fmt::format("{:.2f} %", std::floor(10000 * s.value()) / 100);
}

const FlavourInfo* row_of(const Choice& choice) {
  for (const FlavourInfo& f : flavours())
    if (choice.keys == "flavour=" + string(f.name)) return &f;
  return nullptr;
}

// Planes of both directions together, in causal order: "scales 98.82 % codes all     ocp". Names behind the
// shares, broken where a line is full.
string class_text(const Class& c) {
  Share amax, scale, scales, codes;
  for (const auto& [name, share] : c.outcome.planes) {
    const string_view stem = string_view(name).substr(name.find('.') + 1);
    if (stem.ends_with("offsets")) continue;
    Share& sum = stem == "amax" ? amax : stem == "scale" ? scale : stem == "data" ? codes : scales;
    sum.agree += share.agree;
    sum.of += share.of;
  }
  string out = c.exact() ? "  =" : "   ";
  for (const auto& [label, share] : {std::pair("amax", amax), std::pair("scale", scale),
                                     std::pair("scales", scales), std::pair("codes", codes)})
    if (share.of) out += fmt::format(" {} {:<7}", label, share_text(share));
  const size_t indent = out.size() + 2;
  size_t width = indent;
  out += "  ";
  for (const Choice& choice : c.choices) {
    const string name = choice.called.empty() ? choice.name : choice.called + " (" + choice.name + ")";
    if (width > indent && width + name.size() > 150) {
      out += ",\n" + string(indent, ' ');
      width = indent;
    } else if (width > indent) {
      out += ", ";
    }
    out += name;
    width += name.size() + 2;
  }
  return out + "\n";
}

// "a, b | c": choices that a fill does not part stand together.
string parting_text(const Parting& parting) {
  string text;
  for (const auto& part : parting.second)
    text += fmt::format("{}{}", text.empty() ? "" : " | ", fmt::join(part, ", "));
  return fmt::format("    this input does not tell them apart; {} does: {}\n", parting.first, text);
}

// Who uses the choices that make every byte, and what would tell them apart.
string exact_text(const Answer& a) {
  const std::vector<Choice>& choices = a.ranking.front().choices;
  string out;
  const auto rows =
      std::count_if(choices.begin(), choices.end(), [](const Choice& c) { return row_of(c) != nullptr; });
  for (const Choice& c : choices)
    if (const FlavourInfo* row = row_of(c); row && rows <= 3)
      out += fmt::format("    {} is {}\n", c.name, row->users);
  if (choices.size() == 1) return out;
  if (a.apart.empty() && !a.cut_short)
    out += "    these give equal bytes for this input and for every fill that was tried\n";
  for (const Parting& p : a.apart) out += parting_text(p);
  return out;
}

// What an interrupt left undone, and what was found until then.
string interrupted_text(const Answer& a) {
  const bool exact = !a.ranking.empty() && a.ranking.front().exact();
  string out = fmt::format("    interrupted: {} of {} known sets were tried; ", a.tried, a.of);
  if (exact)
    return out + (a.tried < a.of ? "those marked = above make these bytes, and others may make them too\n"
                                 : "those marked = above make these bytes; the search ended there\n");
  if (a.named()) return out + "what is said above holds, and more may be found\n";
  if (a.tried == 0) return out + "nothing is known of these bytes\n";
  return out + (a.tried < a.of ? "none of these makes these bytes\n"
                               : "none makes these bytes; one or two keys more were not all tried\n");
}

string answer_text(const Group& group, const Answer& a, size_t most) {
  string out;
  for (const Class& c : a.changed) out += class_text(c);
  bool sampled = false;
  for (size_t i = 0; i < a.ranking.size() && i < most; ++i) {
    out += class_text(a.ranking[i]);
    sampled |= a.ranking[i].sampled;
  }
  if (sampled)
    out += fmt::format(
        "    the whole of {} was run only for the sets that make a sample of {} elements; the shares of the "
        "others are of this sample\n",
        group.cases.size() == 1 ? "the case" : "the cases", a.sample);
  if (a.out_of_time)
    out += fmt::format(
        "    the search ended at its budget (--budget): a set without = whose shares are all \"all\" makes "
        "the "
        "sample, and was not run on the whole\n");
  if (a.ranking.empty() && !a.cut_short)
    out += "    no choice runs on this line, or the packs hold none of its output planes\n";
  if (!a.ranking.empty() && a.ranking.front().exact()) out += exact_text(a);
  else if (!a.changed.empty())
    out += "    no named set makes these bytes; the sets marked = above make them with the added keys\n";
  for (const Fit& f : a.layouts)
    out += fmt::format("  = {}, with {} in another layout: {}\n", f.choice.name, f.plane, f.description);
  std::vector<string_view> kernels;
  for (const Approximation& x : a.approximate) kernels.push_back(x.kernel->name);
  if (!kernels.empty())
    out +=
        fmt::format("  ~ consistent with {} (approximate reciprocals, N17.13)\n", fmt::join(kernels, ", "));
  if (a.cut_short) return out + interrupted_text(a);
  if (!a.named() && !a.ranking.empty()) {
    const DumpCase& first = *group.cases.front().dump;
    out += fmt::format(
        "    no known set makes these bytes; the nearest sets come first. `assay explain {} --case {}` looks "
        "for the "
        "cause\n",
        shell_word(first.pack->path), shell_word(first.recorded->id));
  }
  return out;
}

// What was not judged, and why.
string missing_text(const Group& group) {
  string out;
  if (!group.absent.empty())
    out += fmt::format("    not judged, absent from the pack: {}\n", fmt::join(group.absent, " "));
  for (const string& m : group.missing) out += "    not judged: " + printable(m) + "\n";
  const bool needs_x = std::any_of(group.missing.begin(), group.missing.end(),
                                   [](const string& m) { return m.find("no plane x") != string::npos; });
  if (group.cases.empty() && needs_x)
    out +=
        "    identify needs the tensor before quantization: pass x= to Pack.add "
        "(docs/from-a-tensor-dump.md); `assay check --coherence` does not need it\n";
  return out;
}

string text_of(const Group& group, const Answer& a, size_t most) {
  const string pack = group.pack.size() > 100 ? group.pack.substr(0, 97) + "..." : group.pack;
  string out = fmt::format("{}   {}{}, {} case{}   {}\n", printable(group.module), group.formats,
                           group.side ? " " + string(name_of(*group.side)) : "", group.cases.size(),
                           group.cases.size() == 1 ? "" : "s", printable(pack));
  if (!group.cases.empty()) out += answer_text(group, a, most);
  return out + missing_text(group) + "\n";
}

json::Value json_of(const std::vector<Class>& classes) {
  json::Value out = json::array();
  for (const Class& c : classes) {
    json::Value list = json::array(), planes = json::array();
    for (const Choice& choice : c.choices) {
      json::Value one = json::object({{"name", choice.name}, {"keys", choice.keys}});
      if (!choice.called.empty()) one.set("called", choice.called);
      list.push(std::move(one));
    }
    for (const auto& [name, share] : c.outcome.planes)
      planes.push(json::object({{"plane", name}, {"agree", share.agree}, {"of", share.of}}));
    json::Value one = json::object({{"choices", list}, {"exact", c.exact()}, {"planes", planes}});
    if (c.sampled) one.set("sampled", true);
    out.push(std::move(one));
  }
  return out;
}

json::Value json_of(const Group& group, const Answer& a) {
  json::Value cases = json::array(), missing = json::array(), layouts = json::array(),
              approximate = json::array();
  for (const identifying::Case& c : group.cases) cases.push(c.dump->where());
  for (const string& m : group.missing) missing.push(m);
  for (const Fit& f : a.layouts)
    layouts.push(json::object(
        {{"choice", f.choice.name}, {"plane", f.plane}, {"layout", f.name}, {"description", f.description}}));
  for (const Approximation& x : a.approximate)
    approximate.push(
        json::object({{"kernel", x.kernel->name}, {"scales", x.sum.scales_of}, {"codes", x.sum.codes_of}}));
  json::Value out = json::object({{"module", group.module},
                                  {"pack", group.pack},
                                  {"formats", group.formats},
                                  {"named", a.named()},
                                  {"cases", cases},
                                  {"not_judged", missing},
                                  {"ranking", json_of(a.ranking)},
                                  {"with_more_keys", json_of(a.changed)},
                                  {"layouts", layouts},
                                  {"consistent", approximate}});
  if (a.out_of_time) out.set("out_of_time", true);
  if (a.cut_short) {
    out.set("cut_short", true);
    out.set("tried", a.tried);
    out.set("of", a.of);
  }
  if (group.side) out.set("direction", name_of(*group.side));
  return out;
}

}  // namespace

int run_identify(const IdentifyOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  const auto fail = [&](const string& message, int status) {
    fmt::print(err, "assay: {}\n", message);
    return status;
  };
  if (!options.json.empty())
    if (const auto error = cannot_write(options.json, "--json")) return fail(error->text(), 2);
  std::vector<Error> unread;
  const auto dump = read_dump(options.paths, &unread);
  if (!dump) return fail(printable(dump.error().text()), 2);
  const InterruptScope scope;
  const std::vector<Group> groups = groups_of(*dump, options.filter, subjects.reference());
  if (groups.empty()) {
    const string of_filter = options.filter.empty() ? "" : " whose name contains '" + options.filter + "'";
    return fail(
        fmt::format(
            "no case{}: expected tensors named <case>/<plane> and metadata assay.line.<case> (docs/packs.md)",
            of_filter),
        3);
  }
  size_t named = 0, unnamed = 0;
  json::Value all = json::array();
  ProgressLine progress(err, options.progress);
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& group = groups[i];
    if (interrupted()) {
      fmt::print(out, "interrupted: {} of {} modules were examined\n", i, groups.size());
      break;
    }
    const string place = fmt::format("{} of {}: {}", i + 1, groups.size(), printable(group.module));
    progress.show(place);
    const auto on_progress = [&](size_t done, size_t of) {
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      progress.show(fmt::format("{}, {} of {} sets{}", place, done, of,
                                left_text(seconds, i * of + done, groups.size() * of)));
    };
    const Answer a = group.cases.empty() ? Answer{}
                                         : answer(group, subjects.reference(), options.jobs, options.timeout,
                                                  {options.large, options.budget, on_progress});
    progress.wipe();
    named += a.named();
    unnamed += !a.named() && !a.cut_short;
    fmt::print(out, "{}", text_of(group, a, options.most));
    all.push(json_of(group, a));
  }
  const size_t open = groups.size() - named - unnamed;  // an interrupt came before they were decided
  fmt::print(out, "{} named, {} not named{}\n", named, unnamed,
             open ? fmt::format(", {} not decided", open) : "");
  if (!options.json.empty())
    if (auto error = write_file(
            options.json,
            json::dump(json::object({{"schema", "assay.identification"}, {"version", 1}, {"groups", all}}),
                       1) +
                "\n"))
      return fail(error->text(), 2);
  for (const Error& e : unread) fmt::print(err, "assay: not read: {}\n", printable(e.text()));
  if (!unread.empty() && !interrupted()) return 2;
  return unnamed ? 1 : interrupted() ? kInterrupted : 0;
}

void register_identify(Program& program) {
  const auto identify = std::make_shared<IdentifyOptions>();
  CommonOptions& common = program.common;
  Command c(program.app, "identify", "name the library whose choices made these bytes");
  c.footer(
      "Examples:\n"
      "  assay identify dump.safetensors\n"
      "  assay identify fixtures/packs/libraries --filter mxfp4\n"
      "Exit status: 0 every group of cases has a flavour that makes its bytes; 1 a group has no such "
      "flavour; 2 bad input; "
      "3 no case; 130 it was interrupted before a group was found to have none.");
  c.option("pack", identify->paths, "safetensors files, or folders of them").required();
  c.option("--filter", identify->filter, "only cases whose name contains this");
  c.option("--most", identify->most, "flavours shown for a group").range(1, 1000).show_default();
  c.option("--json", identify->json, "write the ranking here");
  c.option("--budget", identify->budget,
           "seconds after which no further set is run on the whole of a large case; the first always is")
      .seconds()
      .show_default();
  add_timeout(c, common);
  add_jobs(c, common);
  c.callback([&program, identify] {
    identify->timeout = program.common.timeout;
    identify->jobs = program.common.jobs;
    identify->progress = program.progress;
    identify->colour = program.colour;
    program.status = run_identify(*identify, program.make_subjects(program.common), stdout, stderr);
  });
}

}  // namespace assay
