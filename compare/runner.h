// For programs of users (docs/library.md): runs the cases of a suite. It is declared in compare/process/pool.h.
#pragma once
#include "compare/process/pool.h"
