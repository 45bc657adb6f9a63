#include "compare/program.h"

int main(int argc, char** argv) { return assay::program_main(argc, argv); }
