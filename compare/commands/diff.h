// `assay diff <pack> <pack>`: compare two dumps with each other, without trusting either. The form of a pack:
// compare/packs/pack.h.
#pragma once
#include <iosfwd>
#include <string>

namespace assay {

struct Program;

struct DiffOptions {
  std::string a, b;
};

// Compares the cases that both packs hold (by id, else by line), plane by plane in causal order, inputs
// first. Cases and planes that only one holds are counted as skipped. Exit status: 0; 1 a case differs; 2 a
// pack cannot be read; 3 where nothing could be compared.
int run_diff(const DiffOptions&, std::ostream& out, std::ostream& err);

void register_diff(Program&);

}  // namespace assay
