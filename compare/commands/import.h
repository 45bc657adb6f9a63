// `assay import <checkpoint> --original <checkpoint>`: the quantized weights of a checkpoint against the
// weights that they were made from, a verdict per layer.
#pragma once
#include <iosfwd>
#include <string>

#include "compare/process/guarded_run.h"

namespace assay {

struct Program;

struct ImportOptions {
  std::string quantized, originals;  // folders, index files, safetensors or GGUF files
  std::string flavour;  // judge by these choices; empty: by those that make most of a layer's bytes
  std::string filter;   // only layers whose name contains this
  std::string folder;   // write layers that differ here, as packs
  double timeout = 60, budget = 2;  // seconds: of a run of the reference, of the search for the first cause
  int jobs = 0;
  bool cause = true;  // look for the cause of the first divergence
  bool progress = false;
};

// One layer is held at a time; weights are read where their files are mapped. Exit status: 0; 1 a layer
// differs; 2 a checkpoint cannot be read; 3 no layer was judged; 130 it was interrupted before anything
// differed.
int run_import(const ImportOptions&, const Subjects&, std::ostream& out, std::ostream& err);

void register_import(Program&);

}  // namespace assay
