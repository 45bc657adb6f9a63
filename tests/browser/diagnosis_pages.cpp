// Writes the pages of the sample diagnoses into a folder, for the browser to render: diagnosis_pages
// <folder>.
#include <cstdio>
#include <string>

#include "compare/diagnosis/report/html.h"
#include "compare/report/doctor.h"
#include "tests/compare/diagnosis/sample_diagnosis.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "diagnosis_pages <folder>\n");
    return 2;
  }
  using namespace assay;
  const json::Value doctor = doctor_facts({});
  for (const auto& [name, d] : {std::pair{"certain", samples::certain()},
                                {"equivalent", samples::equivalent()},
                                {"partial", samples::partial()},
                                {"unexplained", samples::unexplained()},
                                {"random", samples::random()},
                                {"equal", samples::equal()},
                                {"large", samples::large()},
                                {"hostile", samples::hostile()},
                                {"empty", Diagnosis{}}})
    if (const auto error = write_diagnosis_page(d, std::string(argv[1]) + "/" + name + ".html", doctor)) {
      std::fprintf(stderr, "%s\n", error->text().c_str());
      return 2;
    }
  return 0;
}
