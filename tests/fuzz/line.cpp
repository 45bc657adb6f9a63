// A line: what can be read is printed, and reads back as the same Problem.
#include "contract/line.h"

#include <stdexcept>

#include "contract/planes.h"
#include "contract/subject.h"
#include "tests/fuzz/readers.h"

void assay::fuzz::line(std::string_view bytes) {
  if (const auto environment = parse_environment(bytes))
    if (parse_environment(to_text(*environment)).operator bool() == false)
      throw std::logic_error("an environment is not read back");
  const auto problem = parse_line(bytes);
  if (!problem) {
    problem.error().text();
    return;
  }
  for (const std::string& text : {to_line(*problem), to_canonical_line(*problem)}) {
    const auto again = parse_line(text);
    if (!again || !(*again == *problem)) throw std::logic_error("not read back: " + text);
  }
  input_planes(*problem);
  output_planes(*problem);
}
