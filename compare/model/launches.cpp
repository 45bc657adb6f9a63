#include "compare/model/launches.h"

#include "compare/process/pool.h"
#include "fixtures/inputs.h"

namespace assay {

namespace {

// With what a compiler behind the PTX needs.
json::Value to_pipe(const LaunchCounts& l) {
  json::Value v = to_json(l);
  v.set("symbol", l.symbol);
  v.set("text", l.text);
  v.set("dynamic_shared", l.dynamic_shared);
  return v;
}

uint64_t natural(const json::Value* v) { return v ? static_cast<uint64_t>(v->to_int().value_or(0)) : 0; }

LaunchCounts launch_of(const json::Value& v) {
  LaunchCounts l;
  l.entry = v.text("entry"), l.grid = v.text("grid"), l.block = v.text("block");
  l.symbol = v.text("symbol"), l.text = v.text("text");
  l.dynamic_shared = natural(v.find("dynamic_shared"));
  for (const json::Value& one : *v.find("totals")->array())
    l.totals.emplace_back(one.text("name"), natural(one.find("count")));
  for (const json::Value& name : *v.find("columns")->array()) l.columns.emplace_back(*name.string());
  for (const json::Value& line : *v.find("lines")->array()) {
    LaunchCounts::Line one{static_cast<uint32_t>(natural(line.find("line"))),
                           std::string(line.text("instruction")),
                           std::string(line.text("source")),
                           {}};
    for (const json::Value& n : *line.find("counts")->array()) one.counts.push_back(natural(&n));
    l.lines.push_back(std::move(one));
  }
  return l;
}

}  // namespace

json::Value to_json(const LaunchCounts& l) {
  json::Value totals = json::array(), columns = json::array(), lines = json::array();
  for (const auto& [name, n] : l.totals) totals.push(json::object({{"name", name}, {"count", n}}));
  for (const std::string& name : l.columns) columns.push(name);
  for (const LaunchCounts::Line& line : l.lines) {
    json::Value counts = json::array();
    for (const uint64_t n : line.counts) counts.push(n);
    lines.push(json::object({{"line", line.line},
                             {"instruction", line.instruction},
                             {"source", line.source},
                             {"counts", std::move(counts)}}));
  }
  return json::object({{"entry", l.entry},
                       {"grid", l.grid},
                       {"block", l.block},
                       {"totals", std::move(totals)},
                       {"columns", std::move(columns)},
                       {"lines", std::move(lines)}});
}

Result<std::vector<LaunchCounts>> counted_launches(Subject& subject, const Problem& problem,
                                                   Subject& reference, const Environment& environment,
                                                   double timeout) {
  const auto inputs = make_inputs(problem, reference);
  if (!inputs) return inputs.error();
  const auto text = in_child(
      [&] {
        json::Value list = json::array();
        for (const LaunchCounts& l : subject.count(problem, views(*inputs), environment))
          list.push(to_pipe(l));
        return json::dump(list);
      },
      timeout);
  const auto list = text ? json::parse(*text) : Result<json::Value>(text.error());
  if (!list) return list.error();
  std::vector<LaunchCounts> out;
  for (const json::Value& one : *list->array()) out.push_back(launch_of(one));
  return out;
}

uint64_t total(const LaunchCounts& l, std::string_view name) {
  for (const auto& [each, n] : l.totals)
    if (each == name) return n;
  return 0;
}

}  // namespace assay
