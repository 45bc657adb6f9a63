#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/report/html_sections.h"
#include "compare/text/html.h"
#include "compare/text/shell.h"

namespace assay::sections {

using std::string;

namespace {

string cell(const std::optional<std::pair<Encoding, uint32_t>>& v) {
  return v ? fmt::format("<code><span class=\"code\">{}</span> {}</code>", code_hex(v->first, v->second),
                         value_text(v->first, v->second))
           : string("–");
}

}  // namespace

string trace(const Diagnosis& d) {
  if (d.trace.steps.empty() && d.trace.outputs.empty()) return {};
  const string subject = escaped(d.subject);
  string out = fmt::format(
      "<section>\n<h2>The first element that differs</h2>\n"
      "<p>Row {}, column {} of the tensor, along its {}: each step of the reference beside what came.</p>\n"
      "<div class=\"scroll\"><table class=\"trace\">{}\n",
      grouped(d.trace.row), grouped(d.trace.col), direction_text(d.trace.direction),
      table_head({{""}, {"clause"}, {"step"}, {"reference"}, {subject}}));
  bool found = false;
  for (const auto* rows : {&d.trace.steps, &d.trace.outputs}) {
    if (rows->empty()) continue;
    out += "<tbody>\n";
    for (const TraceRow& r : *rows) {
      const bool first = r.differs() && !found;
      found |= first;
      const char* mark = first ? "→ parts here" : r.differs() ? "differs" : "";
      out += fmt::format("<tr{}><td>{}</td><td>{}</td><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>\n",
                         first ? " class=\"parts\"" : "", mark, escaped(r.clause), escaped(r.what),
                         cell(r.left), cell(r.right));
    }
    out += "</tbody>\n";
  }
  return out + "</table></div>\n</section>\n";
}

string again(const Diagnosis& d) {
  string out;
  if (!d.command.empty()) out += "<h3>This diagnosis</h3>\n" + command(d.command);
  if (!d.reproducer.empty()) {
    const string subject = d.argument.empty() ? "" : " " + d.argument;
    out += string("<h3>The smallest line that still differs") +
           (d.reproducer_limited ? "; a limit ended the search for a smaller one" : "") + "</h3>\n" +
           (d.argument.empty() ? command(d.reproducer) : "");
    if (!d.argument.empty())
      out += command("assay run " + shell_quoted(d.reproducer) + subject) +
             command("assay trace " + shell_quoted(d.reproducer) + subject);
  }
  if (!d.reproducer_files.empty()) {
    out += "<h3>Files</h3>\n<ul>\n";
    for (const string& file : d.reproducer_files) out += "<li>" + code(file) + "</li>\n";
    out += "</ul>\n";
  }
  return out.empty() ? out : "<section>\n<h2>See it again</h2>\n" + out + "</section>\n";
}

string machine(const json::Value& doctor) {
  if (!doctor.object()) return {};
  string rows;
  auto row = [&](std::string_view name, const string& value) {
    if (!value.empty()) rows += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, escaped(value));
  };
  auto text = [&](std::string_view key) { return string(doctor.text(key)); };
  row("assay", text("version") + (text("commit").empty() ? "" : " (" + text("commit") + ")"));
  row("compiler", text("compiler") + "  " + text("build_type") + "  " + text("flags") +
                      (text("sanitizers").empty() ? "" : "  " + text("sanitizers")));
  row("system", text("os") + (text("distribution").empty() ? "" : ", " + text("distribution")));
  const json::Value* cores = doctor.find("cores");
  row("processor",
      text("cpu") + (cores && cores->to_int() ? fmt::format(", {} cores", *cores->to_int()) : ""));
  row("CUDA", text("cuda_toolkit").empty() ? "not compiled in" : "toolkit " + text("cuda_toolkit"));
  if (const json::Value* floats = doctor.find("float"); floats && floats->object()) {
    string broken;
    for (const auto& [name, value] : *floats->object())
      if (!value.to_bool())
        broken += (broken.empty() ? "" : "; ") + name + (value.string() ? ": " + *value.string() : "");
    row("float", broken.empty() ? "as clause N1.1 asks" : "NOT as clause N1.1 asks: " + broken);
  }
  if (const json::Value* subjects = doctor.find("subjects"); subjects && subjects->array()) {
    string present;
    for (const json::Value& s : *subjects->array())
      if (const json::Value* here = s.find("present"); here && here->to_bool().value_or(false))
        present += (present.empty() ? "" : ", ") + string(s.text("name"));
    row("subjects", present);
  }
  row("id", text("fingerprint"));
  return rows.empty()
             ? rows
             : "<section>\n<h2>The machine</h2>\n<dl class=\"machine\">\n" + rows + "</dl>\n</section>\n";
}

}  // namespace assay::sections
