#include <fmt/format.h>

#include "compare/report/report.h"
#include "compare/text/html.h"
#include "fixtures/files.h"

namespace assay {

namespace {

class JunitReport final : public Report {
 public:
  explicit JunitReport(std::string path) : path_(std::move(path)) {}

  void result(const SuiteEntry& e, const Verdict& v) override {
    Group& g = group(e.file);
    ++g.tests;
    g.seconds += v.seconds;
    g.text +=
        fmt::format("    <testcase classname=\"{}\" name=\"{}\" file=\"{}\" line=\"{}\" time=\"{:.6f}\"",
                    escaped(e.file + "." + v.subject), escaped(e.text), escaped(e.file), e.line, v.seconds);
    if (v.outcome == Outcome::passed) {
      g.text += v.unpinned.empty() ? "/>\n"
                                   : fmt::format(">\n      <system-out>{}</system-out>\n    </testcase>\n",
                                                 escaped(unpinned_text(v)));
      return;
    }
    const char* element = v.outcome == Outcome::crashed ? "error" : is_red(v.outcome) ? "failure" : "skipped";
    (v.outcome == Outcome::crashed ? g.errors : is_red(v.outcome) ? g.failures : g.skipped)++;
    const Breach* b = v.breaches.empty() ? nullptr : &v.breaches[0];
    const std::string message =
        b ? (b->plane.empty() ? b->message : fmt::format("{}: {} first at {}", b->claim, b->plane, b->where))
          : v.reason;
    g.text += fmt::format(">\n      <{} message=\"{}\"", element, escaped(message));
    if (is_red(v.outcome))
      g.text += fmt::format(" type=\"{}\">{}</{}>\n", name_of(v.outcome), escaped(failure_screen(e, v, {})),
                            element);
    else g.text += "/>\n";
    g.text += "    </testcase>\n";
  }

  void finish(const Totals& t) override {
    std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    Group all;
    for (const Group& g : groups_) {
      all.tests += g.tests;
      all.failures += g.failures;
      all.errors += g.errors;
      all.skipped += g.skipped;
    }
    xml += fmt::format(
        "<testsuites name=\"assay\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" "
        "time=\"{:.6f}\">\n",
        all.tests, all.failures, all.errors, all.skipped, t.seconds);
    for (const Group& g : groups_) {
      xml += fmt::format(
          "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" "
          "time=\"{:.6f}\">\n",
          escaped(g.name), g.tests, g.failures, g.errors, g.skipped, g.seconds);
      xml += g.text + "  </testsuite>\n";
    }
    xml += "</testsuites>\n";
    trouble_ = write_file(path_, std::string_view(xml));
  }
  std::optional<Error> trouble() const override { return trouble_; }

 private:
  struct Group {
    std::string name, text;
    size_t tests = 0, failures = 0, errors = 0, skipped = 0;
    double seconds = 0;
  };
  Group& group(const std::string& name) {
    for (Group& g : groups_)
      if (g.name == name) return g;
    groups_.push_back({name, {}, 0, 0, 0, 0, 0});
    return groups_.back();
  }
  std::string path_;
  std::vector<Group> groups_;
  std::optional<Error> trouble_;
};

}  // namespace

Result<std::unique_ptr<Report>> make_junit_report(const std::string& path) {
  // An empty report at once: after an hour of cases is no time to learn of a wrong path.
  if (const auto error = write_file(path, std::string_view()))
    return Error{"cannot write " + error->message, 0, "--junit takes a file in a folder that exists"};
  return std::unique_ptr<Report>(std::make_unique<JunitReport>(path));
}

}  // namespace assay
