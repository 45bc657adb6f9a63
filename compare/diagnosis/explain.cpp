#include "compare/diagnosis/explain.h"

namespace assay {
int run_explain(const ExplainOptions&, const Subjects&, std::FILE*, std::FILE*) { return 2; }
}  // namespace assay
